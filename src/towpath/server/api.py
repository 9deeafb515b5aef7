"""The HTTP API as an ASGI application, to be served or mounted.

Starlette(routes=[Mount("/queue", Api(app))])
"""

from typing import Final

from starlette.routing import Route as Path
from starlette.routing import Router

from towpath import App
from towpath.server import accounts, jobs, system, topics, work
from towpath.server.endpoint import Endpoint, answer, refused
from towpath.server.errors import Refusal
from towpath.server.gate import Gate
from towpath.server.openapi import document_of
from towpath.server.requests import Receive, Scope, Send
from towpath.server.routes import Route, Routes

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


class Api:
    """The HTTP API of an app. The app stays open when it ends."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.gate = Gate(app)
        self.routes = [route for group in GROUPS for route in group.all]
        self.gate.document = document_of(self.routes)
        self._router = Router(self._paths(), redirect_slashes=False, default=_nothing_here)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._router(scope, receive, send)

    def _paths(self) -> list[Path]:
        """Return the paths; those without names come first, so that none takes another's place."""
        methods: dict[str, dict[str, Route]] = {}
        for route in sorted(self.routes, key=lambda route: "{" in route.path):
            methods.setdefault(route.path, {})[route.method] = route
        return [Path(path, Endpoint(self.gate, each)) for path, each in methods.items()]


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - as ASGI has it
    """Answer where there is no path."""
    if scope["type"] == "http":
        found = Refusal(404, "not_found", "there is nothing at this path; see /api/docs")
        await answer(send, *refused(found))
    else:  # a WebSocket, so far
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
