"""Limits: what is over one waits in `blocked`, and comes back into line when there is room.

Places are counted in leases, so none can leak. Whoever parks a job and whoever frees a place hold
the row of the key before they look, so no job is forgotten; upkeep would find it in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from towpath.model.instants import instant
from towpath.model.job import Job, Lease
from towpath.model.limits import LATE, Gauge, Limit
from towpath.operation import Mode, Operation, Steps
from towpath.statement import load

sql: Final = load(__name__)

PARK_AT_ONCE: Final = 1_000
KEYS_AT_ONCE: Final = 1_000


class LimitInUse(Struct, frozen=True, kw_only=True):
    """A limit, and who is bound by it."""

    key: str
    concurrency: int | None
    pace: int | None  # microseconds from one start to the next
    burst: int
    running: int
    blocked: int


def admitted(leases: Sequence[Lease]) -> Steps[tuple[list[Lease], set[str]]]:
    """Park those of new leases that are over a limit, before anybody has seen them.

    Of those that remain nobody was overtaken by one of the same topic and key. Returns them, and
    the topics in which others have become ready instead.
    """
    places = [
        _place(lease.job, limit)
        for lease in leases
        if (limit := lease.job.options.limit) is not None
    ]
    newest = {place["key"]: place for place in sorted(places, key=lambda place: place["seq"])}
    changed = yield sql["declare_limits"]([newest[key] for key in sorted(newest)])
    gauges: dict[str, Gauge] = {}
    before: dict[int, int] = {}
    for seq, key, number, *bound in (yield sql["count_before"](places, late=LATE)):
        before[seq] = number
        gauges.setdefault(key, Gauge(*bound)).running -= 1  # it does not run yet
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
        yield sql["park"](over)
        lines = sorted({(place["key"], place["topic"]) for place in over})
        items = [{"key": key, "topic": topic} for key, topic in lines]
        yield sql["park_ready"](items, limit=PARK_AT_ONCE)
    if over or changed or any(gauge.pace for gauge in gauges.values()):
        woken = yield from _unparked(gauges)
    parked = {place["seq"] for place in over}
    return [lease for lease in leases if lease.job.seq not in parked], woken


def freed(keys: Iterable[str]) -> Steps[set[str]]:
    """Give the places of ended leases to those that wait; return the topics that gained a job."""
    items = [{"key": key} for key in sorted(keys)]
    limits = {row[0]: row[1:] for row in (yield sql["lock_limits"](items))}
    unbound = (None, None, 1, 0, 0)  # nobody can say any more what held them
    gauges = {
        key: Gauge(running, *limits.get(key, unbound))
        for key, running in (yield sql["count_running"](items))
    }
    return (yield from _unparked(gauges))


def due_freed() -> Steps[tuple[bool, set[str]]]:
    """Let in what a pace allows by now; say if any limit is held for it, and who gained a job."""
    rows = yield sql["due_limits"](limit=KEYS_AT_ONCE)
    return bool(rows), ((yield from freed(key for (key,) in rows)) if rows else set())


def blocked_keys(after: str) -> Operation[list[str]]:
    """Read the keys that somebody waits for, in order: the next ones after a key."""

    def steps() -> Steps[list[str]]:
        return [key for (key,) in (yield sql["blocked_keys"](after=after, limit=KEYS_AT_ONCE))]

    return Operation("blocked_keys", steps, Mode.READ, autocommit=True)


def free(keys: Sequence[str]) -> Operation[set[str]]:
    """Let in whatever there is room for, were it forgotten by one who died half-way."""
    return Operation("free", lambda: freed(keys), locks=True, wakes=lambda topics: topics)


def move_near() -> Operation[int]:
    """Bring near what lies too far ahead because the clock was set back.

    Returns how many limits another transaction holds, which are left as they are.
    """

    def steps() -> Steps[int]:
        yield sql["move_near"]()
        [[left]] = yield sql["count_ahead"]()
        return int(left)

    return Operation("move_limits", steps)


def list_limits() -> Operation[list[LimitInUse]]:
    """Read every limit that is in use."""

    def steps() -> Steps[list[LimitInUse]]:
        names = ("key", "concurrency", "pace", "burst", "running", "blocked")
        rows = yield sql["list_limits"]()
        return [LimitInUse(**dict(zip(names, row, strict=True))) for row in rows]

    return Operation("list_limits", steps, Mode.SCAN, autocommit=True)


def forget_unused() -> Operation[int]:
    """Forget some of the limits that bind nobody any more; return how many were looked at."""

    def steps() -> Steps[int]:
        rows = yield sql["unused_limits"](limit=KEYS_AT_ONCE)
        if rows:
            yield sql["forget_limits"]([{"key": key} for (key,) in rows])
        return len(rows)

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
    waiting = yield sql["topics_of_blocked"]([{"key": key} for key in sorted(gauges)])
    lines = [
        {"key": key, "topic": topic, "room": room}
        for key, topic in waiting
        if (room := min(gauges[key].room(), PARK_AT_ONCE))
    ]
    rows = (yield sql["unpark"](lines)) if lines else []
    left = {key for key, _ in waiting}
    paced = [
        {"key": key, "tat": gauge.tat, "free_at": gauge.free_at if key in left else None}
        for key, gauge in sorted(gauges.items())
        if gauge.pace is not None
    ]
    if paced:
        yield sql["pace_limits"](paced)
    return {topic for (topic,) in rows}
