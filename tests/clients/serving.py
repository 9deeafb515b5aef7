"""A live server, and its first superuser."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from towpath.model.sealing import new_key

SOURCE = Path(__file__).parents[2] / "src"
WEBHOOKS = {  # to receivers of the tests
    "TOWPATH_WEBHOOK_KEY": new_key(),
    "TOWPATH_WEBHOOK_ALLOW": "127.0.0.0/8",
    "TOWPATH_WEBHOOK_HTTP": "true",
}


@contextlib.contextmanager
def serving(
    place: Any, directory: Path, *flags: str, port: int = 0, ending: int = SIGTERM
) -> Iterator[dict[str, str]]:
    """Serve a database; yield what the server has said of itself. A signal ends it."""
    database, needed = place
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **WEBHOOKS}
    if "schema" in needed:
        environment["TOWPATH_SCHEMA"] = needed["schema"]
    command = [sys.executable, "-m", "towpath", "serve", "--database", database]
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(
            [*command, "--port", str(port), "--json", *flags],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line, (directory / "log").read_text()
            yield json.loads(line)
        finally:
            process.send_signal(ending)


def with_superuser(started: dict[str, str]) -> dict[str, str]:
    """Make a superuser; return where and who, as environment variables."""
    password = secrets.token_urlsafe(16)
    [token] = parse_qs(urlsplit(started["setup"]).query)["token"]
    account = {"email": "root@example.com", "password": password}
    account_made = httpx.post(
        f"{started['url']}/api/setup", json={"token": token, **account}, timeout=60
    )
    account_made.raise_for_status()
    return {
        "TOWPATH_URL": started["url"],
        "TOWPATH_EMAIL": account["email"],
        "TOWPATH_PASSWORD": password,
    }


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
