"""Jobs with a lease: each lease is extended, or ends in one way, once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from towpath.errors import InvalidTouchTime, LeaseLost, NotFound, TouchLimitExceeded
from towpath.model.instants import microseconds
from towpath.model.job import FailureKind, Lease, Options
from towpath.model.states import State
from towpath.operation import Answer, Operation, Row, Steps, answered, plural
from towpath.statement import load
from towpath.store.dependencies import told
from towpath.store.limits import freed
from towpath.store.rows import known_options
from towpath.store.runs import sql as runs

sql: Final = load(__name__)

RESCUE_AT_ONCE: Final = 1_000
ENDS: Final = frozenset({"buried", "cancelled", "gone"})


class Outcome(Struct, frozen=True, kw_only=True):
    """How a lease ends, other than by completion."""

    seq: int
    epoch: int
    goal: str  # ready, delayed, buried, cancelled or gone
    delay: int = 0
    priority: int | None = None  # None keeps it
    retried: int = 0
    crashed: int = 0
    timed_out: int = 0  # its end has come; one that was extended meanwhile stays
    released: int = 0
    retention: int  # microseconds that it is kept if it ends cancelled
    limited: bool = True  # it may have a limit, and so leave a place to others
    kind: FailureKind | None = None
    error: str | None = None
    traceback: str | None = None


class Completion(Struct, frozen=True, kw_only=True):
    """How a lease ends well."""

    seq: int
    epoch: int
    retention: int
    limited: bool = True  # it may have a limit, and so leave a place to others
    result: str | None = None


class Touch(Struct, frozen=True, kw_only=True):
    """A wish for more time, within limits where they are given."""

    seq: int
    epoch: int
    ttr: int
    max_touches: int | None = None
    min_interval: int | None = None
    max_duration: int | None = None


class Settled(Struct, frozen=True):
    """What became of a lease."""

    seq: int
    topic: str
    state: State | None  # None: gone
    woken: frozenset[str] = frozenset()  # topics in which its end has made others ready


def topics_back(answers: Iterable[Answer[Settled]]) -> set[str]:
    """Name the topics that got a job back, or another one instead."""
    topics: set[str] = set()
    for answer in answers:
        if isinstance(answer, Settled):
            topics |= answer.woken
            if answer.state in {State.READY, State.DELAYED}:
                topics.add(answer.topic)
    return topics


def _are_limited(said: Sequence[Completion | Outcome]) -> bool:
    return any(each.limited for each in said)


def _are_free(said: Sequence[Completion | Outcome]) -> bool:
    # A place that is left and not given on by the same transaction might be forgotten.
    return not _are_limited(said)


@plural(autocommit=_are_free, locks=_are_limited, wakes=topics_back)
def complete(completions: Sequence[Completion]) -> Steps[list[Answer[Settled]]]:
    """Finish jobs. Said twice with the same lease, it holds once."""
    rows = yield sql["complete"](_items(completions))
    woken = yield from _followed(rows, [(row[0], True) for row in rows if row[12]])
    answers = {row[14]: Settled(row[0], row[1], State.COMPLETED, woken) for row in rows}
    return (yield from _explained(completions, answers))


@plural(autocommit=_are_free, locks=_are_limited, wakes=topics_back)
def settle(outcomes: Sequence[Outcome]) -> Steps[list[Answer[Settled]]]:
    """End leases as told; a job whose cancellation was requested ends cancelled instead."""
    rows = yield sql["settle"](_items(outcomes))
    ended = [(row[0], False) for row in rows if row[12] and row[13] in ENDS]
    woken = yield from _followed(rows, ended)
    answers = {
        row[15]: Settled(row[0], row[1], None if row[13] == "gone" else State(row[13]), woken)
        for row in rows
    }
    return (yield from _explained(outcomes, answers))


def _followed(rows: Sequence[Row], ended: Sequence[Row]) -> Steps[frozenset[str]]:
    """Let follow what waited for the end of these leases; return the topics that gained a job."""
    topics: set[str] = set()
    keys = {row[11] for row in rows if row[11] is not None}
    if keys:
        topics |= yield from freed(keys)
    if ended:
        topics |= yield from told(ended)
    return frozenset(topics)


@plural()
def touch(touches: Sequence[Touch]) -> Steps[list[Answer[tuple[int | None, bool]]]]:
    """Extend leases; answer with the new end, and whether cancellation was requested."""
    rows = yield sql["touch"](_items(touches))
    answers: dict[int, Answer[tuple[int | None, bool]]] = {
        nth: (until, bool(cancelled)) for nth, until, cancelled in rows
    }
    touched = {(touches[nth].seq, touches[nth].epoch): answer for nth, answer in answers.items()}
    for found in (yield from _whereabouts(touches, answers)):
        wish = touches[found.nth]
        if found.touches is None or found.epoch != wish.epoch:
            continue
        twin = touched.get((wish.seq, wish.epoch))
        if twin and wish.max_touches is None:
            answers[found.nth] = twin  # two callers touched one lease at once
            continue
        if found.idle is not None and found.idle < (wish.min_interval or 0):
            answers[found.nth] = InvalidTouchTime(
                f"touched or reserved {found.idle / 1e6:g} s ago, which is too soon"
            )
        else:
            answers[found.nth] = TouchLimitExceeded(
                f"touched {found.touches} times, or for too long in all"
            )
    return [answers[nth] if nth in answers else _lost(wish.seq) for nth, wish in enumerate(touches)]


Said: TypeAlias = Completion | Outcome | Touch
"""A word about a lease."""


def _explained(
    said: Sequence[Completion | Outcome],
    answers: dict[int, Settled],
) -> Steps[list[Answer[Settled]]]:
    """Fill in what did not match: said before with the same lease, or refused."""
    explained: dict[int, Answer[Settled]] = dict(answers)
    for found in (yield from _whereabouts(said, answers)):
        outcome = said[found.nth]
        if found.epoch == outcome.epoch and _said_before(outcome, found):
            explained[found.nth] = Settled(outcome.seq, "", State(found.state))
        else:
            explained[found.nth] = _lost(outcome.seq)
    for nth, outcome in enumerate(said):
        if nth not in explained:
            gone = isinstance(outcome, Outcome) and outcome.goal == "gone"
            explained[nth] = (
                Settled(outcome.seq, "", None)
                if gone
                else NotFound(f"job number {outcome.seq} does not exist any more")
            )
    return [explained[nth] for nth in range(len(said))]


def _said_before(outcome: Completion | Outcome, found: Whereabouts) -> bool:
    if isinstance(outcome, Completion):
        return found.state == State.COMPLETED
    if outcome.error is not None:  # a failure leaves its own record
        return bool(found.failed) and found.state != State.RESERVED
    return found.state == outcome.goal


class Whereabouts(Struct, frozen=True):
    """Where a job is whose lease did not match."""

    nth: int
    state: str
    epoch: int
    failed: bool | int  # whether this very try was recorded as failed
    touches: int | None
    idle: int | None  # microseconds since it was touched or reserved


def _whereabouts(said: Sequence[Said], answers: dict[int, Any]) -> Steps[list[Whereabouts]]:
    lost = [
        {"nth": nth, "seq": outcome.seq, "epoch": outcome.epoch}
        for nth, outcome in enumerate(said)
        if nth not in answers
    ]
    rows = (yield sql["whereabouts"](lost)) if lost else []
    return [Whereabouts(*row) for row in rows]


def _items(said: Sequence[Said]) -> list[dict[str, Any]]:
    return [{"nth": nth, **msgspec.structs.asdict(outcome)} for nth, outcome in enumerate(said)]


def _lost(seq: int) -> LeaseLost:
    return LeaseLost(f"the lease of job number {seq} ended; stop working on it")


def back(seq: int, epoch: int, options: Options, timed_out: int = 0) -> Outcome:
    """Put a job back in line, uncounted but for its time being over; a run ends with its lease."""
    retention, limited = microseconds(options.retention), options.limit is not None
    if is_run(options) and timed_out:
        error = "the worker fell silent while it ran this job"
        return Outcome(
            seq=seq, epoch=epoch, goal="buried", timed_out=timed_out, retention=retention,
            limited=limited, kind=FailureKind.CRASH, error=error,
        )  # fmt: skip
    if is_run(options):
        return Outcome(seq=seq, epoch=epoch, goal="gone", retention=retention, limited=limited)
    return Outcome(
        seq=seq, epoch=epoch, goal="ready", timed_out=timed_out, retention=retention,
        limited=limited,
    )  # fmt: skip


def is_run(options: Options) -> bool:
    """Say whether a job is one worker's run of another job."""
    return options.runs is not None and options.runs.of is not None


def rescue(topics: Sequence[str]) -> Operation[list[Settled]]:
    """Take back leases past their end, each at the epoch that was read."""

    def steps() -> Steps[list[Settled]]:
        rows = yield sql["expired"]([{"topic": t} for t in topics], limit=RESCUE_AT_ONCE)
        if not rows:
            return []
        outcomes = [back(seq, epoch, known_options(text), timed_out=1) for seq, epoch, text in rows]
        answers = yield from settle(outcomes).start()
        return [answer for answer in answers if isinstance(answer, Settled)]

    return Operation("rescue", steps, locks=True, wakes=topics_back)


def move_near() -> Operation[int]:
    """Begin the time of leases again that were given before the clock was set back.

    Returns how many another transaction holds, which are left as they are.
    """

    def steps() -> Steps[int]:
        yield sql["move_near"]()
        [[left]] = yield sql["count_ahead"]()
        return int(left)

    return Operation("move_leases", steps)


def give_back(
    leases: Sequence[Lease], others: Sequence[Outcome]
) -> Operation[list[Answer[Settled]]]:
    """Release leases that nobody has seen, uncounted; end others as told."""
    released = [back(lease.job.seq, lease.epoch, lease.job.options) for lease in leases]
    return settle([*released, *others])


def ping(seq: int, epoch: int, ttr: int) -> Operation[float | None]:
    """Show that a run lives; return how soon to do so again, as its job says by now."""

    def steps() -> Steps[float | None]:
        [answer] = yield from touch([Touch(seq=seq, epoch=epoch, ttr=ttr)]).start()
        answered(answer)
        rows = yield runs["job_of"](seq=seq)
        options = known_options(rows[0][0]) if rows else Options()
        return options.runs.ping_interval if options.runs else None

    return Operation("ping", steps)
