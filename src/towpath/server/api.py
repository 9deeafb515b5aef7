"""The HTTP API as an ASGI application, to be served or mounted.

Starlette(routes=[Mount("/queue", Api(app))])
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final

from towpath import App
from towpath.server import accounts, jobs, system, topics, work
from towpath.server.bodies import Receive, Scope, Send
from towpath.server.endpoint import Endpoint, Written, refused, write
from towpath.server.errors import Refusal
from towpath.server.openapi import document_of
from towpath.server.routes import Route, Routes
from towpath.server.shared import Shared

GROUPS: Final[tuple[Routes, ...]] = (
    jobs.routes,
    work.routes,
    topics.routes,
    topics.schedules,
    topics.workers,
    accounts.routes,
    accounts.keys,
    accounts.access,
    system.routes,
)
ROUTES: Final[tuple[Route, ...]] = tuple(route for group in GROUPS for route in group.all)
NAMED: Final = "/"  # stands for any part of a path that has a name, and is itself none


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return document_of(ROUTES)


class Api:
    """The HTTP API of an app. The app stays open when it ends."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.shared = Shared(app)
        self.routes = ROUTES
        self.shared.document = document()
        self.paths = Paths(self.shared, self.routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, in the words of ASGI."""
        if scope["type"] == "http":
            await write(send, await self.answer(scope, receive))
        else:
            await _decline(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive) -> Written:
        """Return the answer to one request, whatever comes of it."""
        begun = time.perf_counter()
        path = "other"
        try:
            endpoint, named = self.paths.find(scope)
            path = endpoint.path
            written = await endpoint.answer(scope, receive, named)
        except asyncio.CancelledError:
            if not self.shared.closing.is_set():
                raise
            written = refused(Refusal(503, "unavailable", "this server has stopped; ask again"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            written = refused(error)
        self.shared.metrics.count(path, scope["method"], written[0], time.perf_counter() - begun)
        return written


class Paths:
    """Finds what answers a request, part by part of its path."""

    def __init__(self, shared: Shared, routes: Iterable[Route]) -> None:
        self._root: dict[str, Any] = {}
        for route in routes:
            here = self._root
            names: list[str] = []
            for part in route.path.split("/"):
                if part.startswith("{"):
                    names.append(part[1:-1])
                    part = NAMED  # noqa: PLW2901 - any name will do
                here = here.setdefault(part, {})
            methods = here.setdefault("", ({}, names))[0]
            methods[route.method] = Endpoint(shared, route)

    def find(self, scope: Scope) -> tuple[Endpoint, dict[str, str]]:
        """Return what answers, and the parts of the path that have names."""
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root) :]
        here: Any = self._root
        values: list[str] = []
        for part in path.split("/"):
            below = here.get(part) if part or here is self._root else None
            if below is None:
                below = here.get(NAMED) if part else None
                values.append(part)
            if below is None:
                raise _nothing_at(root)
            here = below
        methods, names = here.get("", (None, ()))
        if methods is None:
            raise _nothing_at(root)
        method: str = scope["method"]
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            allow = ", ".join(sorted({*methods} | ({"HEAD"} if "GET" in methods else set())))
            raise Refusal(
                405, "method_not_allowed", f"this path answers {allow}", headers={"allow": allow}
            )
        return endpoint, dict(zip(names, values, strict=True))


def _nothing_at(root: str) -> Refusal:
    return Refusal(404, "not_found", f"there is nothing at this path; see {root}/api/docs")


async def _decline(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what is not HTTP: a life of our own we do not need, and WebSockets we do not speak."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
