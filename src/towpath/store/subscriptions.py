"""Subscriptions: made, changed, paused, deleted; and what is known of their health.

A transaction that moves sagas of a subscription, or changes what may start, holds the row of its
health. So the orchestrator sees a change before it decides, or is woken after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from towpath.errors import NotFound
from towpath.model.attempts import BodyKind
from towpath.model.channels import JOB
from towpath.model.cursor import Cursor
from towpath.model.deliveries import RetrySchedule
from towpath.model.health import TOLD
from towpath.model.instants import as_datetime, as_timedelta
from towpath.model.subscriptions import SubscriptionHealth, WebhookSubscription
from towpath.operation import Changed, Mode, Operation, Steps, Wakeup, answered
from towpath.statement import Statements, no_rows, rows
from towpath.store import consumers, events, lifecycle, sagas
from towpath.store.lifecycle import LifecycleEvent
from towpath.store.sagas import SAGAS

ROUTER: Final = "towpath.webhooks"
"""The name of the consumer as which the router reads a channel."""

SUBSCRIPTIONS: Final = Wakeup("subscriptions")
"""Rings for routers: there is a new subscription, perhaps to a channel that had none."""

Reseal: TypeAlias = Callable[[str, int], str]
"""Makes the sealed text of the old one and the time, in microseconds since 1970."""

Check: TypeAlias = Callable[[WebhookSubscription], None]
"""Raises if a subscription may not be as it is about to be stored; then nothing is changed."""

RECENT: Final = 1_000  # attempts that the health of a subscription looks at

_texts: Final = msgspec.json.Decoder(tuple[str, ...])
_numbers: Final = msgspec.json.Decoder(tuple[int, ...])


class NewSubscription(Struct, frozen=True, kw_only=True):
    """A subscription to store, checked; times in microseconds."""

    token: UUID  # made for this call: a repeated one finds what it has made
    channel: str
    url: str
    types: str  # a JSON list
    filter_rule: str | None
    timeout: int
    concurrency: int
    pace: int | None
    burst: int
    ordered: bool
    waits: str | None  # a JSON list; None: the default
    final: str | None  # a JSON list
    body: str
    owner: str | None
    description: str


class SubscriptionRow(NamedTuple):
    """A subscription as it is stored, without its secrets."""

    id: int
    created_at: int
    updated_at: int
    deleted_at: int | None
    timeout: int
    concurrency: int
    pace: int | None
    burst: int
    paused: bool | int
    ordered: bool | int
    channel: str
    url: str
    types: str
    filter_rule: str | None
    waits: str | None
    final: str | None
    body: str
    owner: str | None
    description: str

    def subscription(self) -> WebhookSubscription:
        """Return it as callers see it."""
        return WebhookSubscription(
            id=self.id,
            channel=self.channel,
            url=self.url,
            types=_texts.decode(self.types),
            filter_rule=self.filter_rule,
            timeout=as_timedelta(self.timeout),
            concurrency=self.concurrency,
            pace=None if self.pace is None else as_timedelta(self.pace),
            burst=self.burst,
            ordered=bool(self.ordered),
            waits=[as_timedelta(wait) for wait in RetrySchedule.stored(self.waits).waits],
            final_statuses=final_statuses(self.final),
            body=BodyKind(self.body),
            owner=self.owner,
            description=self.description,
            paused=bool(self.paused),
            created_at=as_datetime(self.created_at),
            updated_at=as_datetime(self.updated_at),
            deleted_at=None if self.deleted_at is None else as_datetime(self.deleted_at),
        )


class SealedRow(NamedTuple):
    """The sealed secrets and headers of a subscription, and the time at which they were read."""

    sealed: str
    now: int


class HealthRow(NamedTuple):
    """The health of a subscription, and how many sagas wait."""

    subscription_id: int
    failures: int
    failing_since: int | None
    open_until: int | None
    stopped_at: int | None
    stopped_why: str | None
    last_success_at: int | None
    last_failure_at: int | None
    waiting: int
    in_progress: int
    held: int
    dead_letters: int


class RecentAttempt(NamedTuple):
    """How an attempt has ended."""

    finished_at: int
    duration: int | None
    error_code: str | None


class sql(Statements):
    """The statements of subscriptions.sql."""

    add = rows(int)
    made_by = rows(int)
    begin_router = no_rows()
    hold_router = rows(int)
    end_router = no_rows()
    find = rows(SubscriptionRow)
    list = rows(SubscriptionRow)
    change = no_rows()
    sealed = rows(SealedRow)
    seal = no_rows()
    pause = no_rows()
    owned = rows(int)
    pause_some = no_rows()
    enable = no_rows()
    delete = no_rows()
    unfinished = rows(int)
    health = rows(HealthRow)
    recent = rows(RecentAttempt)


def final_statuses(text: str | None) -> tuple[int, ...]:
    """Return the statuses after which no attempt follows."""
    return () if text is None else _numbers.decode(text)


def create(
    new: NewSubscription, seal: Callable[[int], str], check: Check | None = None
) -> Operation[WebhookSubscription]:
    """Make a subscription to a channel, which is made if need be; the stream of a job is not.

    It gets what is published from now on. `seal` makes the text of its secrets, for its number.
    """

    def steps() -> Steps[Changed[WebhookSubscription]]:
        head = yield from _placed(new.channel)
        place = {"since_channel": head.channel, "since": head.seq}
        added = yield from sql.add(**asdict(new), **place)
        if added:
            [id] = added
            yield sql.seal(id=id, sealed=seal(id))
            yield sql.begin_router(channel=head.channel, acked=head.seq, consumer=ROUTER)
            yield from _posted("added", [id])
        else:
            [id] = yield from sql.made_by(token=new.token)
        made = (yield from _found(id)).subscription()
        if check is not None:
            check(made)
        others = {SUBSCRIPTIONS, *events.wakeups([new.channel])}
        return Changed(made, others=others)

    return Operation("create_subscription", steps, Mode.APPEND, locks=True)


def _placed(channel: str) -> Steps[Cursor]:
    """Return the head of a channel behind all that was posted to it and committed."""
    # It comes before a subscription that is made now, and so is not delivered to it.
    placing = events.Append(channel=channel, create=not channel.startswith(JOB))
    while True:
        [answer] = yield from events.append([placing]).inside()
        placed = answered(answer)
        if not placed.posted:
            return Cursor.parse(placed.head)


def update(
    id: int,
    columns: Mapping[str, Any],
    reseal: Reseal | None = None,
    check: Check | None = None,
) -> Operation[WebhookSubscription]:
    """Change some columns of a subscription: those of NewSubscription, but not its channel.

    `reseal` changes its sealed secrets and headers.
    """

    def steps() -> Steps[Changed[WebhookSubscription]]:
        found = yield from _held(id)
        stays = {"id", "created_at", "updated_at", "deleted_at", "paused", "channel"}
        before = {name: value for name, value in found._asdict().items() if name not in stays}
        yield sql.change(id=id, **{**before, **columns})
        if reseal is not None:
            yield from _resealed(id, reseal)
        if reseal is not None or any(value != before[name] for name, value in columns.items()):
            yield from _posted("changed", [id])
        changed = yield from _changed(id)
        if check is not None:
            check(changed.value)
        return changed

    return Operation("update_subscription", steps, Mode.APPEND, locks=True)


def reseal(id: int, reseal: Reseal) -> Operation[None]:
    """Change the sealed secrets and headers of a subscription."""

    def steps() -> Steps[None]:
        yield from _held(id)
        yield from _resealed(id, reseal)
        yield from _posted("changed", [id])

    return Operation("reseal_subscription", steps, Mode.APPEND, locks=True)


def _resealed(id: int, reseal: Reseal) -> Steps[None]:
    [found] = yield from sql.sealed(id=id)
    yield sql.seal(id=id, sealed=reseal(found.sealed, found.now))


def sealed(id: int) -> Operation[str]:
    """Read the sealed secrets and headers of a subscription."""

    def steps() -> Steps[str]:
        found = yield from sql.sealed(id=id)
        if not found:
            raise missing(id)
        return found[0].sealed

    return Operation("sealed", steps, Mode.READ, autocommit=True)


def pause(id: int) -> Operation[int]:
    """Hold the sagas of a subscription; return how many attempts are under way, and still end."""

    def steps() -> Steps[Changed[int]]:
        found = yield from _held(id)
        yield sql.pause(id=id, paused=True)
        if not found.paused:
            yield from _posted("paused", [id])
        yield from _changed(id)
        [unfinished] = yield from sql.unfinished(id=id)
        return Changed(unfinished, others=[SAGAS])

    return Operation("pause_subscription", steps, Mode.APPEND, locks=True)


def pause_of(owner: str) -> Steps[int]:
    """Hold the sagas of all subscriptions of an owner; say how many these are. Rings SAGAS."""
    ids = yield from sql.owned(owner=owner)
    if ids:
        yield from sagas.hold(ids)
        yield sql.pause_some(sagas.owners(ids))
        yield from _posted("paused", ids)
        yield from sagas.wake(ids)
    return len(ids)


def resume(id: int) -> Operation[WebhookSubscription]:
    """Deliver again what was held, in its order, and what is new."""

    def steps() -> Steps[Changed[WebhookSubscription]]:
        found = yield from _held(id)
        yield sql.pause(id=id, paused=False)
        if found.paused:
            yield from _posted("resumed", [id])
        return (yield from _changed(id))

    return Operation("resume_subscription", steps, Mode.APPEND, locks=True)


def enable(id: int) -> Operation[WebhookSubscription]:
    """Forget the failures of a subscription, and start it again if they have stopped it."""

    def steps() -> Steps[Changed[WebhookSubscription]]:
        yield from _held(id)
        yield sql.enable(id=id, told=TOLD)
        yield from _posted("enabled", [id])
        return (yield from _changed(id))

    return Operation("enable_subscription", steps, Mode.APPEND, locks=True)


def delete(id: int) -> Operation[None]:
    """Delete a subscription with its secrets; what waits for it is cancelled, later if it is much.

    Attempts that are under way end. Its sagas and dead letters can be read for a while.
    """

    def steps(*, again: bool = False) -> Steps[Changed[None]]:
        found = yield from sql.find([{"subscription": id}])
        if again and not (found and found[0].deleted_at is None):
            return Changed(None)
        channel = (yield from _found(id)).channel
        held = yield from consumers.held_if_there(channel)
        for place in held:
            yield from sql.hold_router(channel=place.channel, consumer=ROUTER)
        yield from _held(id)
        yield sql.delete(id=id)
        yield from _posted("deleted", [id])
        yield from sagas.cancel_of(id)
        for place in held:
            yield sql.end_router(channel=channel, number=place.channel, consumer=ROUTER)
        return Changed(None, others=[SAGAS])

    return Operation(
        "delete_subscription", steps, Mode.APPEND, locks=True, retry=lambda: steps(again=True)
    )


def get(id: int) -> Operation[WebhookSubscription]:
    """Read one subscription."""

    def steps() -> Steps[WebhookSubscription]:
        return (yield from _found(id)).subscription()

    return Operation("get_subscription", steps, Mode.READ, autocommit=True)


def find(subscriptions: Sequence[int]) -> Operation[list[WebhookSubscription]]:
    """Read subscriptions, also deleted ones; one that is unknown is left out."""

    def steps() -> Steps[list[WebhookSubscription]]:
        found = yield from sql.find(sagas.owners(subscriptions))
        return [row.subscription() for row in found]

    return Operation("find_subscriptions", steps, Mode.READ, autocommit=True)


def list_subscriptions(
    after: int, limit: int, channel: str | None = None, owner: str | None = None
) -> Operation[list[WebhookSubscription]]:
    """List subscriptions by number, from behind one on."""

    def steps() -> Steps[list[WebhookSubscription]]:
        found = yield from sql.list(after=after, limit=limit, channel=channel, owner=owner)
        return [row.subscription() for row in found]

    return Operation("list_subscriptions", steps, Mode.SCAN, autocommit=True)


def health(subscriptions: Sequence[int]) -> Operation[list[SubscriptionHealth]]:
    """Read how the deliveries of subscriptions go, by number; one that is unknown is left out.

    Of their attempts only the last are looked at.
    """

    def steps() -> Steps[list[SubscriptionHealth]]:
        found = yield from sql.health(sagas.owners(subscriptions))
        healths: list[SubscriptionHealth] = []
        for row in found:
            last = yield from sql.recent(subscription=row.subscription_id, limit=RECENT)
            healths.append(_health(row, last))
        return healths

    return Operation("health_of_subscriptions", steps, Mode.SCAN, autocommit=True)


def _health(row: HealthRow, last: Sequence[RecentAttempt]) -> SubscriptionHealth:
    durations = sorted(each.duration for each in last if each.duration is not None)
    return SubscriptionHealth(
        subscription=row.subscription_id,
        failures=row.failures,
        failing_since=_at(row.failing_since),
        open_until=_at(row.open_until),
        stopped_at=_at(row.stopped_at),
        stopped_why=row.stopped_why,
        last_success_at=_at(row.last_success_at),
        last_failure_at=_at(row.last_failure_at),
        last_error=next((each.error_code for each in last if each.error_code), None),
        recent=len(last),
        recent_failed=sum(each.error_code is not None for each in last),
        p50=_percentile(durations, 50),
        p95=_percentile(durations, 95),
        waiting=row.waiting,
        in_progress=row.in_progress,
        held=row.held,
        dead_letters=row.dead_letters,
    )


def _percentile(durations: Sequence[int], percent: int) -> timedelta | None:
    """Return the least duration that so many percent of them do not exceed."""
    if not durations:
        return None
    return as_timedelta(durations[-(-len(durations) * percent // 100) - 1])


def _at(us: int | None) -> Any:
    return None if us is None else as_datetime(us)


def _found(id: int) -> Steps[SubscriptionRow]:
    found = yield from sql.find([{"subscription": id}])
    if not found or found[0].deleted_at is not None:
        raise missing(id)
    return found[0]


def _held(id: int) -> Steps[SubscriptionRow]:
    """Hold the health of a subscription, and then read what others have committed before."""
    yield from sagas.hold([id])
    return (yield from _found(id))


def _changed(id: int) -> Steps[Changed[WebhookSubscription]]:
    yield from sagas.wake([id])
    return Changed((yield from _found(id)).subscription(), others=[SAGAS])


def _posted(what: str, ids: Sequence[int]) -> Steps[None]:
    """Post what a caller has done to subscriptions."""
    found = yield from sql.find(sagas.owners(ids))
    fields = [{"subscription": each.id, "channel": each.channel} for each in found]
    yield from lifecycle.post([LifecycleEvent(f"subscription.{what}", each) for each in fields])


def missing(id: int) -> NotFound:
    """Return the error of a subscription that is not there."""
    return NotFound(f"there is no subscription {id}; it may have been deleted")
