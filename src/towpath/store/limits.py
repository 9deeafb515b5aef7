"""Limits: what is over one waits in `blocked`, and comes back into line when there is room.

Places are counted in leases, so none can leak. A transaction that parks a job or frees a place
holds the row of the key before it looks, so no job is forgotten; upkeep would find it in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from towpath.model.instants import as_datetime, instant
from towpath.model.job import Job, Lease
from towpath.model.limits import LATE, Gauge, Limit, LimitInUse
from towpath.operation import Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store.stats import NO_BOUND

PARK_AT_ONCE: Final = 1_000
KEYS_AT_ONCE: Final = 1_000


class LockedLimit(NamedTuple):
    """The row of a limit, held by this transaction."""

    key: str
    concurrency: int | None
    pace: int | None
    burst: int
    tat: int
    now: int


class RunningJobs(NamedTuple):
    """How many jobs of a key run."""

    key: str
    running: int


class CountedJob(NamedTuple):
    """A leased job with a limit, and what counts for it."""

    seq: int
    key: str
    before: int  # ready or blocked jobs of its key and topic that come before it
    running: int
    concurrency: int | None
    pace: int | None
    burst: int
    tat: int
    now: int


class BlockedTopic(NamedTuple):
    """A topic in which jobs of a key wait."""

    key: str
    topic: str


class LimitRow(NamedTuple):
    """A limit, and how many jobs it binds."""

    key: str
    concurrency: int | None
    pace: int | None
    burst: int
    running: int
    blocked: int
    free_at: int | None


class sql(Statements):
    """The statements of limits.sql."""

    lock_limits = rows(LockedLimit)
    declare_limits = rows(str)
    count_running = rows(RunningJobs)
    pace_limits = no_rows()
    count_before = rows(CountedJob)
    park = no_rows()
    park_ready = no_rows()
    topics_of_blocked = rows(BlockedTopic)
    unpark = rows(str)
    due_limits = rows(str)
    move_near = no_rows()
    count_ahead = rows(int)
    blocked_keys = rows(str)
    names_of_limits = rows(str)
    list_limits = rows(LimitRow)
    unused_limits = rows(str)
    forget_limits = no_rows()


def admitted(leases: Sequence[Lease]) -> Steps[tuple[list[Lease], set[str]]]:
    """Park those of new leases that are over a limit, before any caller has seen them.

    A lease that remains overtakes no job of the same topic and key. Returns these leases, and the
    topics in which other jobs have become ready instead.
    """
    places = [
        _place(lease.job, limit)
        for lease in leases
        if (limit := lease.job.options.limit) is not None
    ]
    newest = {place["key"]: place for place in sorted(places, key=lambda place: place["seq"])}
    changed = yield from sql.declare_limits([newest[key] for key in sorted(newest)])
    gauges: dict[str, Gauge] = {}
    before: dict[int, int] = {}
    for job in (yield from sql.count_before(places, late=LATE)):
        before[job.seq] = job.before
        gauge = Gauge(job.running, job.concurrency, job.pace, job.burst, job.tat, job.now)
        gauges.setdefault(job.key, gauge).running -= 1  # it does not run yet
    since = {lease.job.seq: instant(lease.job.run_at) for lease in leases}
    over: list[dict[str, Any]] = []
    for place in places:
        seq, gauge = place["seq"], gauges[place["key"]]
        if before[seq] < gauge.room(since[seq]):
            gauge.start(since[seq])
        else:
            over.append(place)
    woken: set[str] = set()
    if over:
        yield sql.park(over)
        lines = sorted({(place["key"], place["topic"]) for place in over})
        items = [{"key": key, "topic": topic} for key, topic in lines]
        yield sql.park_ready(items, limit=PARK_AT_ONCE)
    if over or changed or any(gauge.pace for gauge in gauges.values()):
        woken = yield from _unparked(gauges)
    parked = {place["seq"] for place in over}
    return [lease for lease in leases if lease.job.seq not in parked], woken


def freed(keys: Iterable[str]) -> Steps[set[str]]:
    """Give the places of ended leases to jobs that wait; return the topics that gained a job."""
    items = [{"key": key} for key in sorted(keys)]
    limits = {limit.key: limit for limit in (yield from sql.lock_limits(items))}
    gauges = {
        job.key: _gauge(limits.get(job.key), job.running)
        for job in (yield from sql.count_running(items))
    }
    return (yield from _unparked(gauges))


def _gauge(limit: LockedLimit | None, running: int) -> Gauge:
    if limit is None:  # it was forgotten, and binds no job any more
        return Gauge(running, None, None, 1, 0, 0)
    return Gauge(running, limit.concurrency, limit.pace, limit.burst, limit.tat, limit.now)


def due_freed() -> Steps[tuple[bool, set[str]]]:
    """Let in what a pace allows by now; say if any limit is held, and which topics gained a job."""
    keys = yield from sql.due_limits(limit=KEYS_AT_ONCE)
    return bool(keys), ((yield from freed(keys)) if keys else set())


def blocked_keys(after: str) -> Operation[list[str]]:
    """Read the keys for which jobs wait, in order: the next ones after a key."""

    def steps() -> Steps[list[str]]:
        return (yield from sql.blocked_keys(after=after, limit=KEYS_AT_ONCE))

    return Operation("blocked_keys", steps, Mode.READ, autocommit=True)


def free(keys: Sequence[str]) -> Operation[set[str]]:
    """Let in the jobs that there is room for, where a process died before it could."""

    def steps() -> Steps[Changed[set[str]]]:
        topics = yield from freed(keys)
        return Changed(topics, topics)

    return Operation("free", steps, locks=True)


def move_near() -> Operation[int]:
    """Bring near what lies too far ahead because the clock was set back.

    Returns how many limits another transaction holds, which are left as they are.
    """

    def steps() -> Steps[int]:
        yield sql.move_near()
        [left] = yield from sql.count_ahead()
        return left

    return Operation("move_limits", steps)


def list_limits(
    keys: Sequence[str] | None = None, most: int | None = None
) -> Operation[list[LimitInUse]]:
    """Read every limit that is in use, or some; up to `most` blocked jobs in all are counted."""

    def steps() -> Steps[list[LimitInUse]]:
        names = (yield from sql.names_of_limits()) if keys is None else keys
        if not names:
            return []
        bound = NO_BOUND if most is None else max(1, most // len(names))
        items = [{"key": name} for name in names]
        return [
            LimitInUse(
                key=row.key,
                concurrency=row.concurrency,
                pace=row.pace,
                burst=row.burst,
                running=row.running,
                blocked=row.blocked,
                exact=row.blocked < bound,
                free_at=None if row.free_at is None else as_datetime(row.free_at),
            )
            for row in (yield from sql.list_limits(items, most=bound))
        ]

    return Operation("list_limits", steps, Mode.SCAN, autocommit=True)


def forget_unused() -> Operation[int]:
    """Forget some of the limits that bind no job any more; return how many were looked at."""

    def steps() -> Steps[int]:
        keys = yield from sql.unused_limits(limit=KEYS_AT_ONCE)
        if keys:
            yield sql.forget_limits([{"key": key} for key in keys])
        return len(keys)

    return Operation("forget_limits", steps)


def _place(job: Job, limit: Limit) -> dict[str, Any]:
    return {
        "key": limit.key,
        "concurrency": limit.concurrency,
        "pace": limit.pace,
        "burst": limit.burst,
        "topic": job.topic,
        "priority": job.priority,
        "seq": job.seq,
    }


def _unparked(gauges: Mapping[str, Gauge]) -> Steps[set[str]]:
    """Move into line what there is room for, and note when the next will have room."""
    waiting = yield from sql.topics_of_blocked([{"key": key} for key in sorted(gauges)])
    lines = [
        {"key": key, "topic": topic, "room": room}
        for key, topic in waiting
        if (room := min(gauges[key].room(), PARK_AT_ONCE))
    ]
    topics = (yield from sql.unpark(lines)) if lines else []
    left = {key for key, _ in waiting}
    paced = [
        {"key": key, "tat": gauge.tat, "free_at": gauge.free_at if key in left else None}
        for key, gauge in sorted(gauges.items())
        if gauge.pace is not None
    ]
    if paced:
        yield sql.pace_limits(paced)
    return set(topics)
