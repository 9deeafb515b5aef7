"""Lifecycle events of webhooks: a subscription to `system` tells its operators.

There is none about deliveries of `system` itself: one that failed would cause the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from towpath.model.health import NoticeKind
from towpath.model.subscriptions import Notice
from towpath.operation import Steps
from towpath.store import lifecycle
from towpath.store.lifecycle import LifecycleEvent

TYPES: Final = {
    NoticeKind.FAILING: "subscription.failing",
    NoticeKind.STOPPED: "subscription.stopped",
    NoticeKind.RECOVERED: "subscription.recovered",
    NoticeKind.DEAD_LETTERED: "saga.dead_lettered",
}
STOPPED: Final = 100  # percent of the time after which a subscription is stopped


def post(notices: Sequence[Notice]) -> Steps[None]:
    """Post what is to be told of subscriptions."""
    yield from lifecycle.post([_event(each) for each in notices])


def post_gap(channel: str, missed: int) -> Steps[None]:
    """Post that a channel has let go of events before they were routed."""
    fields = {"channel": channel, "missed": missed}
    yield from lifecycle.post([LifecycleEvent("webhooks.gap", fields)])


def _event(notice: Notice) -> LifecycleEvent:
    percent = STOPPED if notice.kind is NoticeKind.STOPPED else notice.failing
    fields = {
        "subscription": notice.subscription,
        "channel": notice.channel,
        "percent": percent or None,
        "error": notice.why,
        "saga": notice.saga,
        "event": notice.event,
        "type": notice.type,
    }
    return LifecycleEvent(TYPES[notice.kind], fields)
