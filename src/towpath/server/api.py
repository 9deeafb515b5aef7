"""The HTTP API as an ASGI application; serve it, or mount it in another one.

Starlette(routes=[Mount("/queue", Api(app))])
"""

import asyncio
import functools
import time
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

from towpath import App
from towpath.server import (
    accounts,
    bulk,
    channels,
    consumers,
    counts,
    job_details,
    jobs,
    overview,
    schedules,
    system,
    topics,
    trying,
    watching,
    webhooks,
    work,
    workers,
)
from towpath.server.bodies import Receive, Scope, Send
from towpath.server.dashboard import (
    FILES,
    MISSING,
    PAGES,
    Dashboard,
    FileEndpoint,
    PageEndpoint,
    built_dashboard,
    is_page,
)
from towpath.server.endpoint import Endpoint, Written, opens_page, refused, write
from towpath.server.errors import Refusal
from towpath.server.live.session import LiveSession
from towpath.server.openapi import document_of
from towpath.server.routes import Route, Routes, Streamed
from towpath.server.shared import Shared
from towpath.server.streams import METHODS, PATH, StreamEndpoint

GROUPS: Final[tuple[Routes, ...]] = (
    jobs.routes,
    job_details.routes,
    bulk.routes,
    counts.routes,
    work.routes,
    topics.routes,
    counts.topics,
    schedules.routes,
    workers.routes,
    channels.routes,
    consumers.routes,
    webhooks.routes,
    accounts.routes,
    accounts.keys,
    accounts.access,
    trying.routes,
    overview.routes,
    watching.routes,
    system.routes,
)
ROUTES: Final[tuple[Route, ...]] = tuple(route for group in GROUPS for route in group.all)
LIVE: Final = "/api/ws"  # the only path with WebSockets
AnyEndpoint = Endpoint | StreamEndpoint | PageEndpoint | FileEndpoint
PARAMETER: Final = "/"  # key of a path parameter; no part of a path contains it


@functools.cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return document_of(ROUTES)


class Api:
    """The HTTP API of an app, as an ASGI application: serve it, or mount it in another one.

    It also answers the pages of the dashboard, unless `dashboard` is false. It runs no tasks and
    does no upkeep, which needs a worker or `lifespan`. It never closes the app.
    """

    def __init__(self, app: App, *, dashboard: bool = True) -> None:
        self.app = app
        self.shared = Shared(app)
        self.routes = ROUTES
        self.shared.document = document()
        self.dashboard = built_dashboard() if dashboard else None
        self.shared.bundle = self.dashboard.version if self.dashboard else None
        self.paths = Paths(self.shared, self.routes, self.dashboard)
        if dashboard and self.dashboard is None:
            self.paths.home = MISSING

    def close(self) -> None:
        """End server-sent events, WebSockets and requests that wait; call it in the event loop.

        A server waits for them before it ends the lifespan of its application, so that is too late.
        """
        self.shared.closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI request."""
        if scope["type"] == "http":
            await write(send, await self.answer(scope, receive))
        elif scope["type"] == "websocket" and path_of(scope) == LIVE:
            await LiveSession(self.shared, scope, receive, send).run()
        else:
            await _answer_other(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive) -> Written | Streamed:
        """Return the answer to one request; an error is answered too, never raised."""
        started = time.perf_counter()
        path = "other"
        written: Written | Streamed
        try:
            endpoint, parameters = self.paths.find(scope)
            path = endpoint.path
            written = await endpoint.answer(scope, receive, parameters)
        except asyncio.CancelledError:
            if not self.shared.closing.is_set():
                raise
            message = "this server is stopping; send the request again"
            written = refused(Refusal(503, "unavailable", message), scope)
        except Exception as error:  # noqa: BLE001 - the client gets an answer to every error
            written = self._refused(error, scope)
        status = written.status if isinstance(written, Streamed) else written[0]
        self.shared.metrics.count(path, scope["method"], status, time.perf_counter() - started)
        return written

    def _refused(self, error: Exception, scope: Scope) -> Written:
        is_unknown = isinstance(error, UnknownPath) and is_page(path_of(scope))
        if self.dashboard and is_unknown and opens_page(scope):
            return self.dashboard.answer(scope, 404)
        return refused(error, scope)


class UnknownPath(Refusal):
    """No route has this path."""

    def __init__(self, message: str) -> None:
        super().__init__(404, "not_found", message)


class Paths:
    """Finds the endpoint of a path in a tree of path parts."""

    def __init__(
        self, shared: Shared, routes: Iterable[Route], dashboard: Dashboard | None
    ) -> None:
        self.home = "this is a Towpath server; programs use its HTTP API"
        self._root: dict[str, Any] = {}
        for route in routes:
            self._add(route.path, route.method, Endpoint(shared, route))
        for method in METHODS:
            self._add(PATH, method, StreamEndpoint(shared, method))
        self._add(FILES, "GET", FileEndpoint(dashboard))
        if dashboard:
            for path in PAGES:
                self._add(path, "GET", PageEndpoint(dashboard, path))

    def _add(self, path: str, method: str, endpoint: AnyEndpoint) -> None:
        node = self._root
        names: list[str] = []
        for part in _parts(path):
            is_parameter = part.startswith("{")
            if is_parameter:
                names.append(part[1:-1])
            node = node.setdefault(PARAMETER if is_parameter else part, {})
        methods = node.setdefault("", ({}, names))[0]
        methods[method] = endpoint

    def find(self, scope: Scope) -> tuple[AnyEndpoint, dict[str, str]]:
        """Return the endpoint and the path parameters of a request."""
        path, root = path_of(scope), scope.get("root_path", "")
        node: Any = self._root
        values: list[str] = []
        for part in _parts_of(scope, path):
            child = node.get(part) if part or node is self._root else None
            if child is None:
                child = node.get(PARAMETER) if part else None
                values.append(part)
            if child is None:
                raise self._unknown(path, root)
            node = child
        methods, names = node.get("", (None, ()))
        if methods is None:
            raise self._unknown(path, root)
        method: str = scope["method"]
        endpoint = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if endpoint is None:
            allow = ", ".join(sorted({*methods} | ({"HEAD"} if "GET" in methods else set())))
            message = f"this path does not allow {method[:20]}; it allows {allow}"
            raise Refusal(405, "method_not_allowed", message, headers={"allow": allow})
        return endpoint, dict(zip(names, values, strict=True))

    def _unknown(self, path: str, root: str) -> UnknownPath:
        if path in {"", "/", "/setup"}:
            return UnknownPath(self.home)
        return UnknownPath(f"unknown path; {root}/api/docs lists all paths")


def path_of(scope: Scope) -> str:
    """Return the path below the one at which the API is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path


def _parts_of(scope: Scope, path: str) -> list[str]:
    """Return the parts of a request's path; an escaped slash belongs to a name."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" not in raw.lower():
        return _parts(path)
    below = scope["path"].removesuffix(path).count("/")  # parts of the prefix
    parts = raw.partition(b"?")[0].decode("latin-1").split("/")
    return ["", *map(unquote, parts[below + 1 :])]


def _parts(path: str) -> list[str]:
    """Return the parts of a path; the root is the empty one, with and without its slash."""
    return [""] if path == "/" else path.split("/")


async def _answer_other(scope: Scope, receive: Receive, send: Send) -> None:
    """Acknowledge lifespan events; close WebSockets of other paths."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
