"""Jobs with a lease: each lease is extended, or ends in one way, once.

`complete` and `settled` are the only ways in which a leased job ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from towpath.errors import InvalidTouchTime, LeaseLost, NotFound, TouchLimitExceeded
from towpath.model.job import FailureKind, Lease, Options
from towpath.model.states import State
from towpath.operation import Answer, Changed, Operation, Steps, answered, is_posted, plural
from towpath.statement import Statements, bucket_of, no_rows, rows
from towpath.store import lifecycle, streams
from towpath.store.dependencies import told
from towpath.store.events import wakeups
from towpath.store.lifecycle import ALL, FAILURES, JobEvent
from towpath.store.limits import freed
from towpath.store.rows import known_options
from towpath.store.runs import Ended, options_of_offer

RESCUE_AT_ONCE: Final = 1_000
ENDS: Final = frozenset({"buried", "cancelled", "gone"})
IN_LINE: Final = frozenset({"ready", "delayed"})
_DEFAULTS: Final = Options()


class EndedLease(NamedTuple):
    """A lease that a statement has ended."""

    seq: int
    epoch: int
    topic: str
    limit_key: str | None
    awaited: bool | int | None
    streamed: bool | int | None
    goal: str  # what became of its job
    stream: str | None  # the channel that the same statement has ended


class ExtendedLease(NamedTuple):
    """A lease that a statement has extended."""

    nth: int
    until: int | None
    cancelled: bool | int


class Whereabouts(NamedTuple):
    """Where a job is whose lease did not match."""

    nth: int
    topic: str
    state: str
    epoch: int
    failed: bool | int  # whether this very try was recorded as failed
    touches: int | None
    idle: int | None  # microseconds since it was touched or reserved


class ExpiredLease(NamedTuple):
    """A lease whose time is over."""

    seq: int
    epoch: int
    options: str | None


class sql(Statements):
    """The statements of leases.sql."""

    complete = rows(EndedLease)
    settle = rows(EndedLease)
    discard = rows(EndedLease)
    touch = rows(ExtendedLease)
    whereabouts = rows(Whereabouts)
    expired = rows(ExpiredLease)
    move_near = no_rows()
    count_ahead = rows(int)


class Outcome(Struct, frozen=True, kw_only=True):
    """How a lease ends, other than by completion."""

    seq: int
    epoch: int
    goal: str  # ready, delayed, buried, cancelled or gone
    options: Options | None = None  # of the job; None: they cannot be read
    delay: int = 0
    priority: int | None = None  # None keeps it
    retried: int = 0
    crashed: int = 0
    timed_out: int = 0  # its end has come; a lease that was extended meanwhile stays
    released: int = 0
    rescued: bool = False  # the lease is taken back, as its holder did not end it
    kind: FailureKind | None = None
    error: str | None = None
    traceback: str | None = None
    worker: str | None = None  # that had it, if its session is gone

    @property
    def noted(self) -> str | None:
        """What is noted of the try, unless it failed; None of one that did not begin."""
        if self.timed_out:
            return "timeout"
        if self.goal in {"buried", "cancelled"}:
            return self.goal
        return "released" if self.released else None

    def as_item(self) -> dict[str, Any]:
        """Return the parameters of its statement."""
        return {
            "seq": self.seq,
            "epoch": self.epoch,
            "goal": self.goal,
            "delay": self.delay,
            "priority": self.priority,
            "retried": self.retried,
            "crashed": self.crashed,
            "timed_out": self.timed_out,
            "released": self.released,
            "retention": _retention(self.options),
            "kind": self.kind,
            "error": self.error,
            "traceback": self.traceback,
            "noted": self.noted,
            "worker": self.worker,
        }


class Completion(Struct, frozen=True, kw_only=True):
    """How a lease ends well."""

    seq: int
    epoch: int
    options: Options | None = None  # of the job; None: they cannot be read
    result: str | None = None
    waited: int | None = None  # from when the job was due to this lease, if it is the first

    def as_item(self) -> dict[str, Any]:
        """Return the parameters of its statement."""
        return {
            "seq": self.seq,
            "epoch": self.epoch,
            "retention": _retention(self.options),
            "result": self.result,
            "waited": self.waited or 0,
            "wait_bucket": 0 if self.waited is None else bucket_of(self.waited),
        }


class Touch(Struct, frozen=True, kw_only=True):
    """A request for more time, within limits where they are given."""

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


End: TypeAlias = Completion | Outcome
E = TypeVar("E", Completion, Outcome)


def _retention(options: Options | None) -> int:
    return round((options or _DEFAULTS).retention * 1e6)


def _are_limited(ends: Sequence[End]) -> bool:
    return any(end.options is None or end.options.limit is not None for end in ends)


def _are_free(ends: Sequence[End]) -> bool:
    # One transaction frees a place and fills it: a dead process would leave it free.
    return not _are_limited(ends)


@plural(autocommit=_are_free, locks=_are_limited)
def complete(completions: Sequence[Completion]) -> Steps[Changed[list[Answer[Settled]]]]:
    """Finish jobs. Repeated with the same lease, it holds once."""
    posts = yield from is_posted(ALL)
    ended = yield from sql.complete([each.as_item() for each in _first(completions).values()])
    if posts:
        yield from lifecycle.post_jobs(
            [JobEvent("completed", each.seq, each.epoch) for each in ended]
        )
    return (yield from _followed(completions, ended))


@plural(autocommit=_are_free, locks=_are_limited)
def settle(outcomes: Sequence[Outcome]) -> Steps[Changed[list[Answer[Settled]]]]:
    """End leases as told; a job whose cancellation was requested ends cancelled instead."""
    return (yield from settled(outcomes))


def settled(outcomes: Sequence[Outcome]) -> Steps[Changed[list[Answer[Settled]]]]:
    """End leases, as part of another operation."""
    posts = yield from is_posted(FAILURES)
    first = _first(outcomes)
    kept = [each.as_item() for each in first.values() if each.goal != "gone"]
    gone = [each.as_item() for each in first.values() if each.goal == "gone"]
    ended = (yield from sql.settle(kept)) if kept else []
    if gone:
        names = yield from lifecycle.named(FAILURES, (each["seq"] for each in gone))
        ended += yield from sql.discard(gone)
    else:
        names = None
    if posts:
        changes = [_event_of(lease, first[lease.seq, lease.epoch]) for lease in ended]
        yield from lifecycle.post_jobs(changes, names)
    return (yield from _followed(outcomes, ended))


def _first(ends: Sequence[E]) -> dict[tuple[int, int], E]:
    """Return the ends that hold, by number and epoch: of two ends of one lease the first."""
    first: dict[tuple[int, int], E] = {}
    for each in ends:
        first.setdefault((each.seq, each.epoch), each)
    return first


def _event_of(lease: EndedLease, outcome: Outcome) -> JobEvent:
    """Return the lifecycle event of a lease that has ended."""
    is_late = outcome.timed_out and outcome.kind is None
    kind = "timeout" if is_late else outcome.kind
    return JobEvent(_what(lease.goal, outcome), lease.seq, lease.epoch, kind, outcome.error)


def _what(goal: str, outcome: Outcome) -> str:
    if goal == "buried":
        return "failed"
    if goal == "cancelled":
        return "expired" if outcome.kind is FailureKind.EXPIRED else "cancelled"
    if outcome.rescued:
        return "rescued"
    if goal == "gone" and not (outcome.options and is_run(outcome.options)):
        return "deleted"
    return "retried" if outcome.retried else "released"


def _followed(
    ends: Sequence[End], ended: Sequence[EndedLease]
) -> Steps[Changed[list[Answer[Settled]]]]:
    """Tell what waits for these ends; answer for each of them."""
    topics = {lease.topic for lease in ended if lease.goal in IN_LINE}
    keys = {lease.limit_key for lease in ended if lease.limit_key is not None}
    if keys:
        topics |= yield from freed(keys)
    awaited = [
        Ended(lease.seq, lease.goal == "completed")
        for lease in ended
        if lease.awaited and lease.goal not in IN_LINE
    ]
    if awaited:
        topics |= yield from told(awaited)
    found = {
        (lease.seq, lease.epoch): Settled(
            lease.seq, lease.topic, None if lease.goal == "gone" else State(lease.goal)
        )
        for lease in ended
    }
    answers: dict[int, Answer[Settled]] = {}
    for nth, end in enumerate(ends):
        settled = found.pop((end.seq, end.epoch), None)
        if settled is not None:
            answers[nth] = settled
    if len(answers) < len(ends):
        topics |= yield from _explain(ends, answers)
    names = {lease.stream for lease in ended if lease.stream is not None}
    for lease in ended:
        if lease.streamed and lease.stream is None and lease.goal not in IN_LINE:
            # This try has said nothing, and another one had. Or, on PostgreSQL, its first word was
            # written while the statement waited: the snapshot of the statement is from before.
            names |= yield from streams.ended(lease.seq, lease.epoch, lease.goal)
    return Changed(
        [answers[nth] for nth in range(len(ends))], topics, others=wakeups(names) if names else ()
    )


def _explain(ends: Sequence[End], answers: dict[int, Answer[Settled]]) -> Steps[set[str]]:
    """Answer for leases that did not match: ended before in the same way, or lost.

    Returns the topics of jobs that these ends have put in line: that answer may have been lost.
    """
    topics: set[str] = set()
    for found in (yield from _whereabouts(ends, answers)):
        end = ends[found.nth]
        if found.epoch == end.epoch and _holds(end, found):
            answers[found.nth] = Settled(end.seq, found.topic, State(found.state))
            if found.state in IN_LINE:
                topics.add(found.topic)
        else:
            answers[found.nth] = _lost(end.seq)
    for nth, end in enumerate(ends):
        if nth not in answers:
            gone = isinstance(end, Outcome) and end.goal == "gone"
            answers[nth] = (
                Settled(end.seq, "", None)
                if gone
                else NotFound(f"job number {end.seq} does not exist any more")
            )
    return topics


def _holds(end: End, found: Whereabouts) -> bool:
    """Say whether a job is where this end of its lease would have put it."""
    if isinstance(end, Completion):
        return found.state == State.COMPLETED
    if end.error is not None:  # a failure leaves its own record
        return bool(found.failed) and found.state != State.RESERVED
    return found.state == end.goal


@plural()
def touch(touches: Sequence[Touch]) -> Steps[list[Answer[tuple[int | None, bool]]]]:
    """Extend leases; answer with the new end, and whether cancellation was requested."""
    return (yield from touched(touches))


def touched(touches: Sequence[Touch]) -> Steps[list[Answer[tuple[int | None, bool]]]]:
    """Extend leases, as part of another operation."""
    items = [{"nth": nth, **msgspec.structs.asdict(each)} for nth, each in enumerate(touches)]
    answers: dict[int, Answer[tuple[int | None, bool]]] = {
        lease.nth: (lease.until, bool(lease.cancelled)) for lease in (yield from sql.touch(items))
    }
    twins = {(touches[nth].seq, touches[nth].epoch): answer for nth, answer in answers.items()}
    for found in (yield from _whereabouts(touches, answers)):
        wanted = touches[found.nth]
        if found.touches is None or found.epoch != wanted.epoch:
            continue
        twin = twins.get((wanted.seq, wanted.epoch))
        if twin and wanted.max_touches is None:
            answers[found.nth] = twin  # two callers touched one lease at once
            continue
        if found.idle is not None and found.idle < (wanted.min_interval or 0):
            answers[found.nth] = InvalidTouchTime(
                f"touched or reserved {found.idle / 1e6:g} s ago, which is too soon"
            )
        else:
            answers[found.nth] = TouchLimitExceeded(
                f"touched {found.touches} times, or for too long in all"
            )
    return [answers.get(nth) or _lost(each.seq) for nth, each in enumerate(touches)]


def _whereabouts(said: Sequence[End | Touch], answers: dict[int, Any]) -> Steps[list[Whereabouts]]:
    """Find the jobs of leases that are not answered for."""
    lost = [
        {"nth": nth, "seq": each.seq, "epoch": each.epoch}
        for nth, each in enumerate(said)
        if nth not in answers
    ]
    return (yield from sql.whereabouts(lost)) if lost else []


def _lost(seq: int) -> LeaseLost:
    return LeaseLost(f"the lease of job number {seq} ended; stop working on it")


def back(seq: int, epoch: int, options: Options, timed_out: int = 0) -> Outcome:
    """Put a job back in line, uncounted but for its time being over; a run ends with its lease."""
    if is_run(options) and timed_out:
        return Outcome(
            seq=seq,
            epoch=epoch,
            goal="buried",
            options=options,
            timed_out=timed_out,
            rescued=True,
            kind=FailureKind.CRASH,
            error="the worker fell silent while it ran this job",
        )
    goal = "gone" if is_run(options) else "ready"
    return Outcome(
        seq=seq,
        epoch=epoch,
        goal=goal,
        options=options,
        timed_out=timed_out,
        rescued=bool(timed_out),
    )


def is_run(options: Options) -> bool:
    """Say whether a job is one worker's run of another job."""
    return options.runs is not None and options.runs.of is not None


def rescued(topics: Sequence[str]) -> Steps[Changed[list[Settled]]]:
    """Take back leases past their end, each at the epoch that was read."""
    found = yield from sql.expired([{"topic": t} for t in topics], limit=RESCUE_AT_ONCE)
    return (
        yield from taken_back(
            [back(each.seq, each.epoch, known_options(each.options), 1) for each in found]
        )
    )


def taken_back(outcomes: Sequence[Outcome]) -> Steps[Changed[list[Settled]]]:
    """End leases that their holders did not end; leave out those that are ended by now."""
    if not outcomes:
        return Changed([], ())
    answers = yield from settled(outcomes)
    found = [answer for answer in answers.value if isinstance(answer, Settled)]
    return Changed(found, answers.topics, others=answers.others)


def move_near() -> Operation[int]:
    """Begin the time of leases again that were given before the clock was set back.

    Returns how many another transaction holds, which are left as they are.
    """

    def steps() -> Steps[int]:
        yield sql.move_near()
        [left] = yield from sql.count_ahead()
        return left

    return Operation("move_leases", steps)


def give_back(
    leases: Sequence[Lease], others: Sequence[Outcome]
) -> Operation[list[Answer[Settled]]]:
    """Release leases that no caller has seen, uncounted; end others as told."""
    released = [back(lease.job.seq, lease.epoch, lease.job.options) for lease in leases]
    return settle([*released, *others])


def ping(seq: int, epoch: int, ttr: int) -> Operation[float | None]:
    """Show that a run lives; return how soon to do so again, as its job says by now."""

    def steps() -> Steps[float | None]:
        [answer] = yield from touched([Touch(seq=seq, epoch=epoch, ttr=ttr)])
        answered(answer)
        options = yield from options_of_offer(seq)
        return options.runs.ping_interval if options.runs else None

    return Operation("ping", steps)
