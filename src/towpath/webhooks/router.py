"""The router: makes a saga for each event and each subscription that wants it.

It hears of the channels that have subscriptions. A ring names the channel to route; where it does
not, as at each look of the safety net, the router looks which channels have moved.
"""

import logging
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from towpath.app.acting import Acting
from towpath.app.ringing import ANYTHING, Ringing
from towpath.errors import AppClosed, DatabaseError
from towpath.model.sagas import Role
from towpath.model.subscriptions import Selection
from towpath.operation import Wakeup
from towpath.store import events, routing
from towpath.store.subscriptions import SUBSCRIPTIONS
from towpath.webhooks.part import Part

log: Final = logging.getLogger("towpath")

CHANNEL: Final = "channel"  # the kind of wakeup of a publish
SHARE: Final = 100  # a look at all channels is followed by so many times its duration without one
LONGEST: Final = 5.0  # seconds without a look

_selection: Final = lru_cache(10_000)(Selection)


class Router(Part):
    """Routes what was published."""

    part = "router"
    role = Role.ROUTER
    wakeups = (SUBSCRIPTIONS,)

    def __init__(self, acting: Acting) -> None:
        self._acting = acting
        self._left: set[str] = set()  # channels with more to route
        self._known: set[str] = set()  # channels with subscriptions
        self._failed: set[str] = set()  # channels whose error was logged
        self._looks_at = 0.0  # not sooner, unless there are new subscriptions
        self._took = 0.0  # seconds, the last look at all channels
        self._is_unsure = False  # any channel may have moved

    async def round(self, rung: set[Wakeup], ringing: Ringing) -> float | None:
        """Route some events of each channel that has moved; 0: there are more."""
        moved = set(self._left)
        if ANYTHING not in rung:
            moved |= {each.name for each in rung if each.kind == CHANNEL}
        self._is_unsure |= ANYTHING in rung
        began = time.monotonic()
        is_new = SUBSCRIPTIONS in rung and ANYTHING not in rung
        if is_new or (self._is_unsure and began >= self._looks_at):
            moved |= await self._look(ringing)
            self._is_unsure = False
            ended = time.monotonic()
            # Of two looks the quicker one counts: the other may have waited for a lock.
            took, self._took = self._took, ended - began
            self._looks_at = ended + min(SHARE * min(took, self._took), LONGEST)
        self._left = {channel for channel in sorted(moved) if await self._route(channel)}
        if self._left:
            return 0
        return max(0.001, self._looks_at - time.monotonic()) if self._is_unsure else None

    async def _look(self, ringing: Ringing) -> set[str]:
        """Find the channels that have moved, and hear those that are new."""
        known: set[str] = set()
        moved: set[str] = set()
        after, begun = "", False
        while after or not begun:
            found = await self._acting.arun(routing.unrouted(after))
            known.update(found.channels)
            moved.update(found.behind, found.posted)
            if found.posted:  # also for a channel that has no row yet, which `route` would not find
                await self._acting.arun(events.place(found.posted))
            after, begun = found.upto, True
        if new := known - self._known:
            ringing.hear(Wakeup(CHANNEL, name) for name in new)
            ringing.ring(SUBSCRIPTIONS)  # look again: what was published before was not heard
        ringing.forget(Wakeup(CHANNEL, name) for name in self._known - known)
        self._known = known
        return moved

    async def _route(self, channel: str) -> bool:
        """Route some events of a channel; say whether there may be more."""
        try:
            routed = await self._acting.arun(routing.route(channel, _selecting))
            if routed.posted:
                await self._acting.arun(events.place([channel]))
        except (DatabaseError, AppClosed):
            raise
        except Exception as error:  # of one channel: the others go on
            if channel not in self._failed:
                log.exception("channel %r cannot be routed", channel, exc_info=error)
                self._failed.add(channel)
            return False
        self._failed.discard(channel)
        if routed.missed:
            log.error(
                "channel %r has let go of %d events before they were routed; their webhooks are "
                "not sent",
                channel,
                routed.missed,
            )
        return routed.more or routed.posted


def _selecting(types: Sequence[str], filter_rule: str | None) -> Selection:
    return _selection(tuple(types), filter_rule)
