"""What every request passes: the bounds, the rules as they are now, and who asks."""

import asyncio
from typing import Any, Final

from towpath import App
from towpath.model.access import Access
from towpath.server.authentication import NOBODY, Authentication
from towpath.server.bodies import Bodies, Receive, Scope
from towpath.server.metrics import Metrics
from towpath.server.readiness import Readiness
from towpath.server.request import Request
from towpath.worker import Worker


class Shared:
    """What all requests to one API share."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.bodies = Bodies()
        self.metrics = Metrics()
        self.heard: dict[str, float] = {}  # when a worker without a session was noted
        self.readiness = Readiness(app)
        self.closing = asyncio.Event()  # nobody is to wait any longer for what may come
        self.document: dict[str, Any] = {}  # the OpenAPI document
        self.set_up_token: str | None = None  # while the first superuser may be made
        self.worker: Worker | None = None  # of this process
        # Base64 takes a third more room, and the envelope some.
        self.most_body = app.settings.max_payload * 4 // 3 + 2**16
        self._authentication = Authentication(app)

    async def enter(self, scope: Scope, receive: Receive, *, is_open: bool) -> Request:
        """Let a request in, known by who sent it unless nobody asks."""
        headers = dict(scope["headers"])
        if is_open:
            return Request(self, CLOSED, NOBODY, scope, receive, headers)
        access = await self.app.access.current()
        caller = await self._authentication.of(scope, headers, access)
        return Request(self, access, caller, scope, receive, headers)

    def known(self, scope: Scope, receive: Receive) -> Request | None:
        """Let a request in at once, if rules and caller are known."""
        access = self.app.access.known
        if access is None:
            return None
        headers = dict(scope["headers"])
        caller = self._authentication.known(headers, access)
        return Request(self, access, caller, scope, receive, headers) if caller else None


CLOSED: Final = Access()  # nothing that is open to all asks for a rule
