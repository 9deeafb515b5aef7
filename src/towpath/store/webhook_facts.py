"""What a doctor and the metrics ask about webhooks. Nothing here writes."""

from __future__ import annotations

from typing import NamedTuple

from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statements, rows
from towpath.store.roles import ROLES, role_name
from towpath.store.subscriptions import ROUTER


class LateDeliveries(NamedTuple):
    """The oldest delivery jobs that wait for a worker, and whether any worker is at work."""

    waiting: int  # up to a thousand are counted
    oldest: int | None  # microseconds
    leased: bool | int


class TroubledSubscription(NamedTuple):
    """A subscription that gets nothing, or not all."""

    id: int
    channel: str
    why: str  # gone, failing


class BehindChannel(NamedTuple):
    """A channel whose events wait for the router."""

    channel: str
    lag: int
    behind: int  # microseconds


class WebhookCounts(NamedTuple):
    """How many there are, all subscriptions together."""

    subscriptions: int
    paused: int
    failing: int
    stopped: int
    pending: int
    leased: int
    dead_letters: int


class sql(Statements):
    """The statements of webhook_facts.sql."""

    late = rows(LateDeliveries)
    stopped = rows(TroubledSubscription)
    behind = rows(BehindChannel)
    counts = rows(WebhookCounts)
    role = rows(str)


def late(patience: int) -> Operation[LateDeliveries]:
    """Count the delivery jobs that have waited longer for a worker."""

    def steps() -> Steps[LateDeliveries]:
        [found] = yield from sql.late(patience=patience)
        return found

    return Operation("late_deliveries", steps, Mode.SCAN, autocommit=True)


def stopped(limit: int) -> Operation[list[TroubledSubscription]]:
    """Name subscriptions that were stopped."""

    def steps() -> Steps[list[TroubledSubscription]]:
        return (yield from sql.stopped(limit=limit))

    return Operation("stopped_subscriptions", steps, Mode.SCAN, autocommit=True)


def behind(patience: int, limit: int) -> Operation[list[BehindChannel]]:
    """Name channels whose events have waited longer for the router."""

    def steps() -> Steps[list[BehindChannel]]:
        return (yield from sql.behind(consumer=ROUTER, patience=patience, limit=limit))

    return Operation("unrouted_channels", steps, Mode.SCAN, autocommit=True)


def counts() -> Operation[WebhookCounts]:
    """Count subscriptions, delivery jobs that have not ended, and all dead letters so far."""

    def steps() -> Steps[WebhookCounts]:
        [found] = yield from sql.counts()
        return found

    return Operation("count_webhooks", steps, Mode.SCAN, autocommit=True)


def restricted_role(schema: str) -> Operation[str | None]:
    """Name the role of webhooks that this login has, if it is not the owner of the tables."""

    def steps() -> Steps[str | None]:
        names = ",".join(role_name(schema, role) for role in ROLES)
        found = yield from sql.role(names=names)
        return found[0] if found else None

    return Operation("restricted_role", steps, Mode.READ, autocommit=True)
