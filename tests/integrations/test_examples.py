"""The examples run as they stand; more of FastAPI and Django is with their frameworks' tests."""

import asyncio
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
from tests.integrations.conftest import as_django_says
from tests.integrations.test_starlette import uvicorn
from tests.webhooks.receivers import EVENT, SECRET, attempt, sender
from towpath import App
from towpath.model.signatures import new_secret
from towpath.webhooks import job_id

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


def test_the_receiver_of_webhooks(durable_place, tmp_path, monkeypatch):
    """A webhook that comes twice runs nothing twice; one that is not genuine runs nothing."""
    monkeypatch.setenv("WEBHOOK_SECRETS", f"{new_secret()} {SECRET}")
    url, needed = durable_place

    async def deliver(where):
        async with sender() as client:
            sent = attempt(f"{where}/webhooks/shop")
            forged = attempt(f"{where}/webhooks/shop", secrets=[new_secret()])
            return [
                (await client.send(each)).response_status for each in (sent, sent, forged, sent)
            ]

    with (
        uvicorn("examples.receiver:api", durable_place, tmp_path) as (_, where),
        App(url, **needed) as app,
    ):
        assert asyncio.run(deliver(where)) == [204, 204, 401, 204]
        id = job_id("shop", str(EVENT))
        eventually(lambda: app.jobs.get(id).state == "completed")
        assert [(job.id, job.returned) for job in app.jobs.list()] == [(id, "order.paid with a, b")]
        assert id.version == 8


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
        url = request.getfixturevalue("postgres").url()
        databases = {"default": {**as_django_says(url), "TEST": {"NAME": f"test_{uuid4().hex}"}}}
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
