"""What every request passes: the bounds, the rules as they are now, and who asks."""

from towpath import App
from towpath.server.asks import Ask
from towpath.server.callers import NOBODY, Callers
from towpath.server.metrics import Metrics
from towpath.server.requests import Bodies, Receive, Scope
from towpath.worker import Worker


class Gate:
    """One for each API."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.bodies = Bodies()
        self.metrics = Metrics()
        # Base64 takes a third more room, and the envelope some.
        self.most_body = app.settings.max_payload * 4 // 3 + 2**16
        self.set_up_token: str | None = None  # while the first superuser may be made
        self.worker: Worker | None = None  # of this process
        self._callers = Callers(app)

    async def enter(self, scope: Scope, receive: Receive, *, is_open: bool) -> Ask:
        """Let a request in, known by who sent it unless nobody asks."""
        access = await self.app.access.acurrent()
        caller = NOBODY if is_open else await self._callers.of(scope, access)
        return Ask(self.app, access, caller, scope, receive)
