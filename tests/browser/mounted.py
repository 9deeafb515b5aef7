"""Towpath under a prefix: `python -m tests.browser.mounted DATABASE mount|serve`.

It is mounted in another application, or serves a prefix by itself. It prints its address and serves
until it is ended.
"""

import socket
import sys
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from towpath import App
from towpath.server import Api
from towpath.server.serving import Serving

EMAIL: Final = "root@example.com"
PASSWORD: Final = "correct horse"


def main(database: str, way: str) -> None:
    """Serve until a signal."""
    app = App(database)

    @app.task(topic="letters")
    def send_letter(to: str, copies: int = 1) -> None:
        """Send a letter; the form of the dashboard knows its arguments."""

    app.accounts.create("_superusers", EMAIL, PASSWORD)
    if way == "serve":
        serving = Serving(app=app, port=0, prefix="/queue")
        serving.run(lambda found: print(found.url, flush=True))  # noqa: T201 - its caller reads it
        return
    web = Starlette(routes=[Mount("/queue", Api(app))])
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/queue", flush=True)  # noqa: T201 - its caller reads it
    uvicorn.Server(uvicorn.Config(web, log_level="warning")).run([listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
