"""A live server."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def server(durable_place, tmp_path):
    """A server on every database, and its superuser, as environment variables name them."""
    database, needed = durable_place
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    if "schema" in needed:
        environment["TOWPATH_SCHEMA"] = needed["schema"]
    command = [sys.executable, "-m", "towpath", "serve", "--database", database, "--port", "0"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [*command, "--json"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            yield _with_superuser(json.loads(line))
        finally:
            process.terminate()


def _with_superuser(started):
    password = secrets.token_urlsafe(16)
    [token] = parse_qs(urlsplit(started["setup"]).query)["token"]
    account = {"email": "root@example.com", "password": password}
    httpx.post(f"{started['url']}/api/setup", json={"token": token, **account}).raise_for_status()
    return {
        "TOWPATH_URL": started["url"],
        "TOWPATH_EMAIL": account["email"],
        "TOWPATH_PASSWORD": password,
    }
