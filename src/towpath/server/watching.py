"""The live stream of the dashboard: counts, what has changed, bulk acts."""

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from towpath.server.errors import refusal
from towpath.server.live.feed import goodbye
from towpath.server.request import Request
from towpath.server.routes import Routes, Streamed
from towpath.server.streaming import BEAT, COMMENT, server_sent

routes: Final = Routes("other")

DOOR: Final = "live"


@routes.get("/api/live", media="text/event-stream")
async def live(request: Request) -> Streamed:
    """Follow the counts of all topics, as server-sent events. Only for superusers.

    Each event is an object with one of these: `counts` (of all topics at first, then of those that
    have changed, and the names of topics that are gone), `changed` (the names of topics whose jobs
    have changed), `bulk` (a bulk act that has moved), `beat` (after 15 s without another), `reset`
    (why it ends) and `bye` (the server stops: come back). A server counts at most once a second for
    all that follow.
    """
    request.require_superuser()
    return server_sent(request, _pieces(request), door=DOOR, goodbye=goodbye())


async def _pieces(request: Request) -> AsyncGenerator[bytes]:
    yield COMMENT  # shows that no proxy holds the answer back
    counts, version = request.shared.counts, 0
    with counts.viewer():
        while True:
            version, news = await counts.after(version, BEAT)
            try:
                await request.check_superuser_again()
            except Exception as error:  # noqa: BLE001 - the client is told
                reset = {"reset": {"reason": refusal(error).code}}
                yield b"data: " + msgspec.json.encode(reset) + b"\n\n"
                return
            yield b"".join(news) if news else counts.beat()
