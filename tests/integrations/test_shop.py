"""The shop of examples/shop: its own tests, and the walk of its README with real processes."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import eventually

ROOT = Path(__file__).parents[2]
README = (ROOT / "examples" / "shop" / "README.md").read_text()
WALK = re.findall(r"^\$ (curl .*)\n(.*)$", README, re.MULTILINE)
COMMANDS = re.findall(r"^(towpath (?!worker).*)$", README, re.MULTILINE)


@pytest.fixture
def database(new_database):
    """The URL of an empty database, as SQLAlchemy spells it."""
    return new_database.replace("postgresql:", "postgresql+psycopg:")


@pytest.fixture
def shop(tmp_path):
    """The shop, in a directory of its own."""
    left_out = shutil.ignore_patterns("*.db*", "files", "__pycache__")
    return shutil.copytree(ROOT / "examples" / "shop", tmp_path / "shop", ignore=left_out)


def environment(**more):
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", **more}


def test_the_tests_of_the_shop(shop, database):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=shop,
        env=environment(TEST_DATABASE_URL=database),
        check=False,
        timeout=300,
        capture_output=True,
        text=True,
    )

    assert re.search(r"^10 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_the_shop_with_a_worker_inside(shop):
    """As in development: one process, and a file of SQLite in its directory."""
    told = environment(SHOP_WORKER="inside")
    told.pop("DATABASE_URL", None)
    with serving(shop, told) as address:
        walk(address)
    assert (shop / "shop.db").exists()


def test_the_shop_with_a_worker_apart(shop, database):
    """As in production; the commands of the README work beside."""
    told = environment(SHOP_WORKER="apart", DATABASE_URL=database)
    with serving(shop, told) as address, process(shop, told, "worker", "towpath", "worker"):
        walk(address)

        assert len(COMMANDS) == 8
        for command in COMMANDS:
            towpath(command, shop, told)
        key = towpath("towpath keys create support --scope manage", shop, told).strip()
        failed = f"{address}/queue/api/jobs?status=failed"
        assert httpx.get(failed, timeout=30).status_code == 401
        allowed = httpx.get(failed, headers={"Authorization": f"Bearer {key}"}, timeout=30)
        assert allowed.status_code == 200


def towpath(command, shop, told):
    words = shlex.split(command, comments=True)
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=shop, env=told, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode()


def walk(address):
    """Do what the README says, and see what it shows."""
    assert len(WALK) == 6
    made = ""
    for command, expected in WALK:
        words = shlex.split(command.replace("localhost:8000", address).replace("ID", made))
        [url] = [word for word in words if word.startswith(address)]
        if "--json" in words or "POST" in words:
            body = words[words.index("--json") + 1] if "--json" in words else None
            headers = {"content-type": "application/json"} if body else {}
            answer = httpx.post(url, content=body, headers=headers, timeout=30)
            made = str(answer.json()["id"])
            assert answer.text == expected.replace("ID", made)
        else:
            eventually(lambda: httpx.get(url, timeout=30).text == expected)  # noqa: B023 - at once


@contextlib.contextmanager
def serving(shop, told):
    """The shop under a real server; gives its address."""
    with process(shop, told, "web", "uvicorn", "shop.web:api", "--port", "0") as web:
        eventually(lambda: "running on" in _log(shop, "web") or web.poll() is not None)
        found = re.search(r"running on (http://[\d.:]+)", _log(shop, "web"))
        assert found, _log(shop, "web")
        yield found[1]


@contextlib.contextmanager
def process(shop, told, name, *command):
    """A real process, which ends well when it is asked to."""
    with (shop / f"{name}.log").open("w") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=shop, env=told, stdout=log, stderr=log
        )
    try:
        yield started
        started.send_signal(signal.SIGTERM)
        # Uvicorn shuts down gracefully, and then lets the signal end the process after all.
        assert started.wait(60) in {0, -signal.SIGTERM}, _log(shop, name)
    finally:
        started.kill()
        started.wait()


def _log(shop, name):
    return (shop / f"{name}.log").read_text()
