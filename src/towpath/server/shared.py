"""What all requests share: the bounds, the current access rules and the authentication."""

import asyncio
import re
from typing import Any, Final

from towpath import App
from towpath.model.access import Access
from towpath.server.authentication import ANONYMOUS, Authentication
from towpath.server.bodies import Bodies, Receive, Scope
from towpath.server.checkups import Checkups
from towpath.server.live_counts import LiveCounts
from towpath.server.metrics import Metrics
from towpath.server.readiness import Readiness
from towpath.server.request import Request
from towpath.server.statistics import Statistics
from towpath.webhooks.running import Deliveries
from towpath.worker import Worker


class Shared:
    """The state that all requests to one API share."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.bodies = Bodies()
        self.metrics = Metrics()
        self.noted_workers: dict[str, float] = {}  # when a worker without a session was last stored
        self.readiness = Readiness(app)
        self.checkups = Checkups(app)
        self.statistics = Statistics(app)
        self.closing = asyncio.Event()  # set: requests stop waiting for jobs
        self.counts = LiveCounts(app)
        self.live: set[object] = set()  # the sessions of WebSockets
        self.origins: frozenset[str] = frozenset()  # other sites whose pages may connect
        self.document: dict[str, Any] = {}  # the OpenAPI document
        self.bundle: str | None = None  # the hash of the dashboard's files, if they are there
        self.set_up_token: str | None = None  # set while the first superuser may be created
        self.worker: Worker | None = None  # of this process
        self.deliveries: Deliveries | None = None  # likewise
        # Base64 adds a third; the rest is for the other fields.
        self.most_body = app.settings.max_payload * 4 // 3 + 2**16
        self._authentication = Authentication(app)

    async def request(self, scope: Scope, receive: Receive, *, is_open: bool) -> Request:
        """Return a request with its caller; an open route needs neither caller nor rules."""
        headers = dict(scope["headers"])
        if is_open:
            return Request(self, NO_RULES, ANONYMOUS, scope, receive, headers)
        access = await self.app.access.current()
        caller = await self._authentication.of(scope, headers, access)
        return Request(self, access, caller, scope, receive, headers)

    async def redeemed(self, scope: Scope) -> tuple[Scope, tuple[str, ...] | None]:
        """Return a scope with the credential of its pass, and the channels of the pass.

        Without a pass in its query, the scope stays as it is.
        """
        found = re.search(rb"(?:^|&)pass=([^&]*)", scope["query_string"])
        if found is None:
            return scope, None
        redeemed = await self.app.accounts.aredeem_pass(str(found[1], "latin-1"))
        kept = [pair for pair in scope["headers"] if pair[0] not in {b"authorization", b"cookie"}]
        headers = [*kept, (b"authorization", b"Bearer " + redeemed.token.encode())]
        return {**scope, "headers": headers}, redeemed.channels

    def cached_request(self, scope: Scope, receive: Receive) -> Request | None:
        """Return a request without waiting, if rules and caller are in the cache."""
        access = self.app.access.known
        if access is None:
            return None
        headers = dict(scope["headers"])
        caller = self._authentication.cached(headers, access)
        return Request(self, access, caller, scope, receive, headers) if caller else None


NO_RULES: Final = Access()
