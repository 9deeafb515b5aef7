"""The Durable Streams door passes the protocol's own tests."""

import contextlib
import fcntl
import json
import threading
from functools import partial
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.clients.node import install, run
from tests.conftest import eventually
from tests.server.conftest import token_of
from towpath import App
from towpath.server import Api
from towpath.server.connections import HttpConnection, Patience
from towpath.server.serving import with_origins

HERE = Path(__file__).parent
TESTS = 332
WAIT = 1.0  # seconds that a long poll waits
PATIENCE = 60_000  # milliseconds for one of its tests, on a busy machine


@pytest.fixture(autouse=True)
def packages():
    """Install the suite; run it once at a time, as some of its tests measure half seconds."""
    install(HERE)
    with (HERE / ".running.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


class LoggedIn:
    """Adds a token to each request: the suite sends none."""

    def __init__(self, api, token):
        self._api = api
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope, receive, send):
        scope["headers"] = [*scope["headers"], self._header]
        await self._api(scope, receive, send)


@contextlib.contextmanager
def serving(web):
    """Serve an ASGI application as `towpath serve` does, in a thread; yield its URL."""
    connection = partial(HttpConnection, patience=Patience())
    config = uvicorn.Config(
        web, port=0, http=connection, ws="none", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    [listening] = server.servers
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def passed(url, tmp_path):
    """Run the suite; return how many tests have passed, and the names of those that have not."""
    report = tmp_path / "report.json"
    vitest = HERE / "node_modules" / "vitest" / "vitest.mjs"
    words = ["run", "--reporter=json", f"--outputFile={report}", "--no-cache"]
    words.append(f"--testTimeout={PATIENCE}")  # some count 100,000 bytes one by one
    given = {"TOWPATH_URL": url, "TOWPATH_LONG_POLL_MS": str(int(WAIT * 1_000))}
    with contextlib.suppress(AssertionError):  # the report says more
        run(vitest, *words, cwd=HERE, **given)
    results = [
        each
        for file in json.loads(report.read_text())["testResults"]
        for each in file["assertionResults"]
    ]
    failed = [
        (each["fullName"], each["failureMessages"])
        for each in results
        if each["status"] == "failed"
    ]
    return sum(each["status"] == "passed" for each in results), failed


@pytest.mark.parametrize(
    ("durable_place", "prefix"),
    [("sqlite", "/towpath"), ("postgres", "")],
    indirect=["durable_place"],
)
def test_the_suite_of_durable_streams_passes(durable_place, prefix, tmp_path, quick_passwords):
    """EV-4: mounted on one database, at the root on the other; the two have nothing in common."""
    database, needed = durable_place
    with App(database, stream_wait=WAIT, **needed) as app:
        token = token_of(app, "_superusers", "root@example.org")
        web = LoggedIn(with_origins(Api(app), ["*"]), token)
        app.upkeep.start()
        with serving(Starlette(routes=[Mount(prefix, web)]) if prefix else web) as url:
            assert passed(url + prefix, tmp_path) == (TESTS, [])
