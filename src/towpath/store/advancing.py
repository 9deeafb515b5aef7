"""Advancing: the orchestrator applies the outcomes of attempts, and starts what has room.

One transaction holds the health of some subscriptions, stepping over those that another one holds.
It applies each outcome once, decides what follows, and makes delivery jobs only where there is
room: so no limit costs an attempt, and the line of jobs stays short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from towpath.model.channels import SYSTEM
from towpath.model.deliveries import (
    DAY,
    SUBSCRIPTION_STOPPED,
    Decision,
    EndedAttempt,
    RetrySchedule,
    decided,
)
from towpath.model.health import GONE, Gate, NoticeKind, Vitals
from towpath.model.limits import Gauge
from towpath.model.sagas import SagaStatus
from towpath.model.subscriptions import Notice
from towpath.operation import Changed, Mode, Operation, Steps, Wakeup
from towpath.statement import Statements, no_rows, rows
from towpath.store.notices import post
from towpath.store.rows import uuid_from
from towpath.store.sagas import owners
from towpath.store.subscriptions import final_statuses

DELIVERIES: Final = Wakeup("deliveries")
"""Rings for workers: there are new delivery jobs."""

# A subscription waits for the round before its own, so a round is short.
DUE_AT_ONCE: Final = 40  # subscriptions
REPORTED_AT_ONCE: Final = 20  # subscriptions with outcomes
MOVED_AT_ONCE: Final = 1_000  # sagas of one subscription that are held, released or expire
HOLD: Final = 7 * DAY  # how long a saga is held before it is dead


class HeldHealth(NamedTuple):
    """The health of a subscription, held by this transaction."""

    subscription_id: int
    tat: int
    failures: int
    failing_since: int | None
    dead: int
    warned: int
    window_at: int
    results: int
    failed: int
    open_until: int | None
    trips: int
    holds: bool | int
    stopped_at: int | None
    stopped_why: str | None
    last_success_at: int | None
    last_failure_at: int | None
    at_once: int
    prompt: int
    due: bool | int
    jumps: int  # of this transaction, to subscriptions with outcomes; the same in every row
    upto: int | None  # the last of these subscriptions, also if another transaction holds it
    now: int

    def vitals(self) -> Vitals:
        """Return what is remembered, to be changed."""
        own = self._asdict()
        return Vitals(**{name: own[name] for name in Vitals.__struct_fields__})


class Standing(NamedTuple):
    """What a subscription asks for, and how many of its delivery jobs have not ended."""

    id: int
    channel: str
    deleted: bool | int
    paused: bool | int
    ordered: bool | int
    concurrency: int
    pace: int | None
    burst: int
    waits: str | None
    final: str | None
    running: int
    pending: int


class ReportedRow(NamedTuple):
    """A delivery job that has ended, and its saga."""

    id: int
    saga_id: int
    subscription_id: int
    status: str
    finished_at: int
    response_status: int | None
    error_code: str | None
    retry_after: int | None
    duration: int | None
    worker_id: str | None
    attempt_count: int
    cancel_requested: bool | int
    current: bool | int

    def ended(self) -> EndedAttempt:
        """Return what decides about the saga."""
        return EndedAttempt(
            status=self.status,
            saga=self.saga_id,
            attempts=self.attempt_count,
            response_status=self.response_status,
            error_code=self.error_code,
            retry_after=self.retry_after,
            cancel_requested=bool(self.cancel_requested),
        )


class NewLetter(NamedTuple):
    """A dead letter that was just written."""

    id: int
    saga_id: int
    subscription_id: int
    event: Any
    type: str | None
    final_error_code: str | None


class NextWake(NamedTuple):
    """The microseconds until there is something to apply or to start."""

    wait: int | None


class sql(Statements):
    """The statements of advancing.sql."""

    hold = rows(HeldHealth)
    standing = rows(Standing)
    reported = rows(ReportedRow)
    apply = rows(NewLetter)
    hold_sagas = rows(int)
    release = rows(int)
    expire = rows(NewLetter)
    start = rows(int)
    note = no_rows()
    next_wake = rows(NextWake)


class AppliedOutcome(Struct, frozen=True):
    """What has become of a saga by the outcome of its attempt."""

    job: int
    saga: int
    subscription: int
    status: SagaStatus
    error_code: str | None
    worker: str | None


class Advanced(Struct, frozen=True, kw_only=True):
    """What one round has done, and where the next begins."""

    upto: int = 0  # the last subscription with outcomes that was served; 0: from the first on
    more: bool = False  # there may be more to do now
    started: int = 0
    applied: Sequence[AppliedOutcome] = ()
    expired: Sequence[int] = ()  # sagas that were held for too long
    notices: Sequence[Notice] = ()


class Advancing:
    """A subscription whose health is held, and what becomes of it."""

    def __init__(self, health: HeldHealth, standing: Standing, ended: int) -> None:
        self.standing = standing
        self.now = health.now
        self.vitals = health.vitals()
        self.vitals.rest(self.now)
        self._growth = self.vitals.growth(standing.running + ended)
        self.schedule = RetrySchedule.stored(standing.waits)
        self.final = frozenset(final_statuses(standing.final))
        self.notices: list[Notice] = []
        self.is_unfinished = False  # more is to be held, released or given up
        gauge = Gauge(
            standing.running,
            standing.concurrency,
            standing.pace,
            standing.burst,
            self.vitals.tat,
            self.now,
        )
        self.gate = Gate(self.vitals, gauge, standing.pending, bool(standing.ordered))
        self.room = 0  # when it was asked for
        self.started = 0

    @property
    def is_held(self) -> bool:
        """Whether its sagas wait for a word of its user."""
        return bool(self.standing.paused) or self.vitals.stopped_at is not None

    @property
    def is_active(self) -> bool:
        """Whether anything may start."""
        return not self.is_held and not self.standing.deleted

    def learn(self, row: ReportedRow) -> Decision:
        """Decide what follows an attempt, and remember how it went."""
        ended = row.ended()
        decision = decided(ended, self.schedule, self.final, self.now)
        if not row.current:
            return decision
        notice = None
        if ended.is_success:
            notice = self.vitals.succeed(row.finished_at, row.duration or 0, self._growth)
        elif ended.is_about_receiver:
            is_dead = decision.status is SagaStatus.DEAD_LETTERED
            notice = self.vitals.fail(row.finished_at, self.now, is_dead=is_dead)
        if decision.stops:
            notice = self.vitals.stop(GONE, self.now)
        if notice is not None:
            self._tell(kind=notice, why=row.error_code, failing=self.vitals.warned)
        return decision

    def lose(self, letters: Iterable[NewLetter]) -> None:
        """Tell of dead letters."""
        for letter in letters:
            self._tell(
                kind=NoticeKind.DEAD_LETTERED,
                why=letter.final_error_code,
                saga=letter.saga_id,
                event=uuid_from(letter.event),
                type=letter.type,
            )

    def _tell(self, **about: Any) -> None:
        # A subscription to `system` that failed would cause events for itself.
        if self.standing.channel != SYSTEM:
            id, channel = self.standing.id, self.standing.channel
            self.notices.append(Notice(subscription=id, channel=channel, **about))

    def as_start(self) -> dict[str, Any]:
        """Return the parameters of the statement that starts what has room."""
        self.room = self.gate.room
        return {
            "subscription": self.standing.id,
            "ordered": bool(self.standing.ordered),
            "late": not self.vitals.prompt,
            "room": self.room,
        }

    def as_note(self) -> dict[str, Any]:
        """Return the parameters of the statement that writes its health."""
        next, wakes_at = self._next()
        about = {"subscription": self.standing.id, "next": next, "wakes_at": wakes_at}
        return {**asdict(self.vitals), **about}

    def _next(self) -> tuple[str | None, int | None]:
        """Say what it waits for: sagas of a kind, or an instant, or nothing but news."""
        if self.is_unfinished:
            return None, self.now
        if self.is_held:
            return "held", None
        if self.standing.deleted:
            return None, None
        if self.started < self.room:
            return "first" if self.standing.ordered else "due", None
        return None, self.gate.wakes_at


def advance(after: int = 0, hold: int = HOLD) -> Operation[Advanced]:
    """Apply outcomes and start deliveries of some subscriptions.

    Those with outcomes come in turn, from behind the subscription `after` on. A saga is held for
    at most `hold` microseconds.
    """

    def steps() -> Steps[Changed[Advanced]]:
        healths = yield from sql.hold(
            after=after, most_due=DUE_AT_ONCE, most_reported=REPORTED_AT_ONCE
        )
        if not healths:
            return Changed(Advanced())
        items = owners(row.subscription_id for row in healths)
        # Before the attempts under way are counted: one that ends in between is not counted, and
        # applied in the next round. In the other order its place would be lost.
        reported = yield from sql.reported(items)
        standings = {row.id: row for row in (yield from sql.standing(items))}
        ended = Counter(row.subscription_id for row in reported)
        held = {
            (id := row.subscription_id): Advancing(row, standings[id], ended[id]) for row in healths
        }
        applied = yield from _applied(reported, held)
        expired = yield from _held_back([each for each in held.values() if each.is_held], hold)
        yield from _released([e for e in held.values() if e.is_active and e.vitals.holds])
        started = yield from _started([each for each in held.values() if each.is_active])
        yield sql.note([each.as_note() for each in held.values()])
        notices = [notice for each in held.values() for notice in each.notices]
        yield from post(notices)
        goes_on = healths[0].jumps >= REPORTED_AT_ONCE
        advanced = Advanced(
            upto=(healths[0].upto or 0) if goes_on else 0,
            more=goes_on
            or sum(bool(row.due) for row in healths) >= DUE_AT_ONCE
            or any(each.is_unfinished for each in held.values()),
            started=started,
            applied=applied,
            expired=expired,
            notices=notices,
        )
        return Changed(advanced, others=[DELIVERIES] if started else [])

    return Operation("advance", steps, Mode.APPEND, locks=True)


def _applied(
    reported: Sequence[ReportedRow], held: dict[int, Advancing]
) -> Steps[list[AppliedOutcome]]:
    """Apply the outcomes of attempts that have ended."""
    if not reported:
        return []
    decisions = [(row, held[row.subscription_id].learn(row)) for row in reported]
    letters = yield from sql.apply(
        [
            {
                "job": row.id,
                "saga": row.saga_id,
                "status": decision.status.value,
                "attempts": int(row.ended().is_attempt),
                "next_attempt_at": decision.next_attempt_at,
                "error": row.error_code,
            }
            for row, decision in decisions
        ]
    )
    _tell_of(letters, held)
    return [
        AppliedOutcome(
            row.id,
            row.saga_id,
            row.subscription_id,
            decision.status,
            row.error_code,
            row.worker_id,
        )
        for row, decision in decisions
    ]


def _held_back(held: Sequence[Advancing], hold: int) -> Steps[list[int]]:
    """Hold what waits for paused and stopped subscriptions, and give up what is held too long."""
    if not held:
        return []
    items = owners(each.standing.id for each in held)
    moved = Counter((yield from sql.hold_sagas(items, limit=MOVED_AT_ONCE, hold=hold)))
    letters = yield from sql.expire(items, limit=MOVED_AT_ONCE, error=SUBSCRIPTION_STOPPED)
    given_up = Counter(letter.subscription_id for letter in letters)
    for each in held:
        id = each.standing.id
        each.vitals.holds = bool(each.vitals.holds or moved[id])
        each.is_unfinished = max(moved[id], given_up[id]) >= MOVED_AT_ONCE
    _tell_of(letters, {each.standing.id: each for each in held})
    return [letter.saga_id for letter in letters]


def _released(held: Sequence[Advancing]) -> Steps[None]:
    """Bring back what was held, some at a time and in its order."""
    if not held:
        return
    items = owners(each.standing.id for each in held)
    moved = Counter((yield from sql.release(items, limit=MOVED_AT_ONCE)))
    for each in held:
        each.is_unfinished = each.vitals.holds = moved[each.standing.id] >= MOVED_AT_ONCE


def _started(held: Sequence[Advancing]) -> Steps[int]:
    """Make delivery jobs where there is room."""
    items = [item for each in held if (item := each.as_start())["room"]]
    started = Counter((yield from sql.start(items)) if items else [])
    for each in held:
        each.started = started[each.standing.id]
        each.gate.started(each.started)
    return started.total()


def _tell_of(letters: Sequence[NewLetter], held: dict[int, Advancing]) -> None:
    for letter in letters:
        held[letter.subscription_id].lose([letter])


def next_wake() -> Operation[int | None]:
    """Return the microseconds until there is something to apply or to start; None: only news.

    At most 0 means now.
    """

    def steps() -> Steps[int | None]:
        [found] = yield from sql.next_wake()
        return found.wait

    return Operation("next_wake", steps, Mode.READ, autocommit=True)
