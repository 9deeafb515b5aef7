"""The examples run as they stand; those of FastAPI and Django are with their frameworks' tests."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conftest import eventually
from towpath import App

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(*command, cwd, check=True, **options):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment,
        check=check,
        timeout=120,
        capture_output=True,
        text=True,
        **options,
    )


def test_the_orders_of_sqlalchemy(tmp_path):
    """US1-5"""
    done = run(EXAMPLES / "sqlalchemy_orders.py", cwd=tmp_path)

    assert done.stdout.splitlines() == [
        "refused: there is nothing to order",
        "orders [1, 2] checks [1, 2]",
    ]


def test_the_tests_of_reminders():
    done = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "test_reminders.py"),
        cwd=EXAMPLES,
    )

    assert "2 passed" in done.stdout


@pytest.fixture
def shop(tmp_path):
    """Django's shop, in a directory of its own."""
    shutil.copytree(
        EXAMPLES / "django_shop", tmp_path / "shop", ignore=shutil.ignore_patterns("*.db*")
    )
    run("manage.py", "migrate", "--run-syncdb", cwd=tmp_path / "shop")
    return tmp_path / "shop"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_tests_of_the_shop_of_django(shop, kind, request):
    """The test database is dropped at the end, which needs it to have no connection."""
    if kind == "postgres":
        server = request.getfixturevalue("postgres")
        databases = {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "postgres",
                "USER": "postgres",
                "HOST": "127.0.0.1",
                "PORT": server.port,
                "TEST": {"NAME": f"test_{uuid4().hex}"},
            }
        }
        with (shop / "shop" / "settings.py").open("a") as settings:
            settings.write(f"DATABASES = {databases!r}\n")

    told = run("manage.py", "test", "--noinput", cwd=shop)

    assert "Ran 4 tests" in told.stderr


def test_the_shop_of_django(shop):
    """US1-5: An order and its task share a transaction; a worker of manage.py runs the task."""
    asked = (
        "from django.test import Client; c = Client();"
        "print([c.post('/orders', {'item': item}).status_code for item in ('nothing', 'rope')])"
    )
    assert "[400, 201]" in run("manage.py", "shell", "-c", asked, cwd=shop).stdout
    worker = subprocess.Popen(
        [sys.executable, "manage.py", "towpath_worker", "--concurrency", "2"],
        cwd=shop,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"},
    )
    try:
        with contextlib.closing(sqlite3.connect(shop / "shop.db")) as db:
            eventually(lambda: _orders(db) == [("rope", True)] or worker.poll() is not None)
            assert _orders(db) == [("rope", True)]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()
    with App(f"sqlite:///{shop / 'shop.db'}") as app:
        assert [(job.state, job.returned) for job in app.jobs.list()] == [
            ("completed", f"order {_id(shop)} is paid")
        ]


def _orders(db):
    return [(item, bool(paid)) for item, paid in db.execute("select item, paid from shop_order")]


def _id(shop):
    with contextlib.closing(sqlite3.connect(shop / "shop.db")) as db:
        return db.execute("select id from shop_order").fetchone()[0]
