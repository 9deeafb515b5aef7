"""Reserving: the best ready jobs of some topics, each under a lease of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from towpath.errors import IncompatibleData
from towpath.model.instants import FOREVER, instant, microseconds
from towpath.model.job import FailureKind, Lease
from towpath.operation import Operation, Row, Steps
from towpath.statement import load
from towpath.store.leases import Outcome, back, give_back, rescue
from towpath.store.limits import admitted, due_freed
from towpath.store.rows import known_options, lease_from, was_begun, why_too_late
from towpath.store.runs import start_runs

sql: Final = load(__name__)

PROMOTE_AT_ONCE: Final = 1_000
LOOK_AGAIN: Final = 100_000  # microseconds, when what is due is in somebody else's hands


class Range(Struct, frozen=True):
    """A stretch of a topic's line: behind (priority, seq), up to and including a priority."""

    topic: str
    priority: int = -1
    seq: int = 0
    upto: int = FOREVER
    due_from: int = 0  # nothing before this instant is due any more
    most: int = FOREVER  # so many of it are wanted


class Reserved(Struct, frozen=True):
    """What a reservation brought; without leases, in how many microseconds to look again."""

    leases: list[Lease]
    due_in: int | None = None
    now: int = 0
    back_in_line: bool = False  # jobs came back into these lines, before others
    unusable: list[Outcome] = []  # what is to be done with the leases that nobody can use
    limited: bool = False  # look again, `limited`: a topic has limits
    unmarked: frozenset[str] = frozenset()  # topics that have limits, and are not marked so
    again: bool = False  # without leases: there may be some now
    woken: frozenset[str] = frozenset()  # topics in which others have become ready


def reserve(
    topics: tuple[str, ...],
    *,
    limit: int,
    token: int,
    session: int | None = None,
    worker: str | None = None,
    expires: bool = False,
    ranges: Sequence[Range] = (),
    known_token: bool = False,
    limited: bool = False,
    most: Mapping[str, int] | None = None,
) -> Operation[Reserved]:
    """Lease up to `limit` ready jobs, most urgent first; of a topic at most so many.

    What is due in these topics is promoted and rescued before. No one else is given the jobs until
    their leases end. Repeated with the same token after a lost answer, it returns the same leases.
    A topic that has jobs with limits is reserved only if the operation is `limited`, which takes a
    transaction. That looks but once: a second look would lock the limits in another order. A lease
    of a session lives while that does; if it `expires`, not beyond its ttr. Without a session, a
    lease keeps the name of the worker.
    """
    wanted = most or {}
    everywhere = _plain([Range(topic) for topic in topics], wanted)
    marked = _plain(ranges, wanted) or everywhere

    def look(where: object) -> Steps[list[Row]]:
        holder = {"token": token, "session": session, "worker": worker, "expires": expires}
        return _taken(topics, where, limit, wanted, limited=limited, **holder)

    def steps() -> Steps[Reserved]:
        where = marked
        while True:
            rows = yield from look(where)
            if rows:
                found = yield from _admitted(rows, limited=limited)
                return replace(found, back_in_line=where != marked)
            if where != everywhere:
                where = everywhere
                continue
            nothing = yield from _nothing_due(topics, limited=limited)
            if nothing:
                return nothing
            if not (yield from _came_due(topics, limited=limited)):
                # Another transaction has it in hand: do not wait for that one.
                regardless = [Range(topic, due_from=FOREVER) for topic in topics]
                rows = yield from look(_plain(regardless, wanted))
                nothing = Reserved([], LOOK_AGAIN)
                return (yield from _admitted(rows, limited=limited)) if rows else nothing
            if limited:
                return Reserved([], again=True)

    def again() -> Steps[Reserved]:
        rows = yield sql["reserved_before"](token=token)
        return _reserved(rows, limited=limited) if rows else (yield from steps())

    return Operation(
        "reserve",
        again if known_token else steps,
        autocommit=not limited,
        locks=limited,
        retry=again,
        undo=lambda reserved: give_back(reserved.leases, reserved.unusable),
        wakes=lambda reserved: reserved.woken,
    )


def reserve_offered(
    topics: tuple[str, ...], *, worker: str, limit: int, token: int, session: int | None
) -> Operation[Reserved]:
    """Lease runs of jobs that are offered to a worker; those that name it come first."""

    def steps() -> Steps[Reserved]:
        started = yield from start_runs(topics, worker, limit, token, session)
        return (yield from again()) if started else Reserved([])

    def again() -> Steps[Reserved]:
        rows = yield sql["reserved_before"](token=token)
        return _reserved(rows, limited=True) if rows else Reserved([])

    return Operation(
        "reserve_offered",
        steps,
        retry=again,
        undo=lambda reserved: give_back(reserved.leases, reserved.unusable),
    )


def _plain(ranges: Sequence[Range], most: Mapping[str, int]) -> list[object]:
    if most:
        replace = msgspec.structs.replace
        ranges = [replace(each, most=most.get(each.topic, FOREVER)) for each in ranges]
    plain: list[object] = msgspec.to_builtins(ranges)
    return plain


def _taken(
    topics: tuple[str, ...],
    ranges: object,
    limit: int,
    most: Mapping[str, int],
    *,
    limited: bool,
    **holder: object,
) -> Steps[list[Row]]:
    """Take the best of these lines: of one in one statement, of several by looking first.

    What is taken is returned at once, even if it is less than could be had: a further statement
    might fail, and then nobody would know of the leases.
    """
    if len(topics) == 1:
        limit = min(limit, most.get(topics[0], limit))
        where = {"topic": topics[0], "ranges": ranges, "limit": limit, "limited": limited}
        return (yield sql["reserve"](**where, **holder))
    tried: set[int] = set()  # what somebody else was quicker to take
    while True:
        places = yield sql["candidates"](
            topics=topics,
            ranges=ranges,
            limit=limit + len(tried),
            tried=len(tried),
            limited=limited,
        )
        new = [place for place in places if place[2] not in tried]
        best = _within(most, sorted(new, key=lambda place: (place[1], place[2])))[:limit]
        if not best:
            return []
        tried.update(place[2] for place in best)
        names = ("topic", "priority", "seq")
        rows = yield sql["take"]([dict(zip(names, p, strict=True)) for p in best], **holder)
        if rows:
            return sorted(rows, key=lambda row: (row[4], row[0]))


def _nothing_due(topics: tuple[str, ...], *, limited: bool) -> Steps[Reserved | None]:
    """Say when to look again, unless something is due by now."""
    [[due_at, now, has_limits]] = yield sql["next_due"](topics=topics)
    if has_limits and not limited:
        return Reserved([], limited=True)
    if due_at is None:
        return Reserved([])
    return Reserved([], due_at - now) if due_at > now else None


def _came_due(topics: tuple[str, ...], *, limited: bool) -> Steps[bool]:
    """Put in line what its time has come for; say whether that was anything.

    Where limits may be held only once, also whether they are held now.
    """
    promoted = yield from promote(topics).start()
    rescued = yield from rescue(topics).start()
    if limited and rescued:
        return True
    held, freed = yield from due_freed()
    return bool(promoted or rescued or freed or (limited and held))


def _admitted(rows: Sequence[Row], *, limited: bool) -> Steps[Reserved]:
    """Read the rows of a reservation, less those that are over a limit."""
    reserved = _reserved(rows, limited=limited)
    if reserved.unmarked:
        yield sql["mark_limited"]([{"topic": topic} for topic in sorted(reserved.unmarked)])
    if not any(lease.job.options.limit for lease in reserved.leases):
        return reserved
    leases, woken = yield from admitted(reserved.leases)
    again = not leases  # all of them wait for their limits
    return replace(reserved, leases=leases, woken=frozenset(woken), again=again)


def _within(most: Mapping[str, int], places: Sequence[Row]) -> Sequence[Row]:
    """Leave out what is more of its topic than is wanted."""
    if not most:
        return places
    taken: Counter[str] = Counter()
    kept: list[Row] = []
    for place in places:
        taken[place[0]] += 1
        if taken[place[0]] <= most.get(place[0], FOREVER):
            kept.append(place)
    return kept


def _reserved(rows: Sequence[Row], *, limited: bool) -> Reserved:
    """Read the rows of a reservation; a job that cannot be used spoils no other.

    One with a limit can be used only by a look that is `limited`. As a rule the mark on its topic
    keeps other looks from leasing it; the mark may be missing for a moment.
    """
    unmarked: set[str] = set()
    leases: list[Lease] = []
    unusable: list[Outcome] = []
    now: int = rows[0][19]
    for row in rows:
        try:
            lease = lease_from(row)
            expires_at = lease.job.expires_at
            if (
                expires_at is not None
                and instant(expires_at) <= now
                and not was_begun(lease.job, lease.epoch - 1)
            ):
                unusable.append(_expired(lease, expires_at))
            elif lease.job.options.limit and not limited:
                unmarked.add(lease.job.topic)
                unusable.append(back(lease.job.seq, lease.epoch, lease.job.options))
            else:
                leases.append(lease)
        except IncompatibleData as error:
            unusable.append(
                Outcome(
                    seq=row[0],
                    epoch=row[12],
                    goal="buried",
                    retention=microseconds(known_options(None).retention),
                    kind=FailureKind.ERROR,
                    error=str(error),
                )
            )
    return Reserved(
        leases,
        now=now,
        unusable=unusable,
        limited=bool(unmarked),
        unmarked=frozenset(unmarked),
    )


def _expired(lease: Lease, at: datetime) -> Outcome:
    return Outcome(
        seq=lease.job.seq,
        epoch=lease.epoch,
        goal="cancelled",
        retention=microseconds(lease.job.options.retention),
        limited=lease.job.options.limit is not None,
        kind=FailureKind.EXPIRED,
        error=why_too_late(at),
    )


def promote(topics: Sequence[str]) -> Operation[list[str]]:
    """Make ready what is due, a batch from each topic; return the topics that gained a job."""

    def steps() -> Steps[list[str]]:
        rows = yield sql["promote"]([{"topic": t} for t in topics], limit=PROMOTE_AT_ONCE)
        return list(dict.fromkeys(row[1] for row in rows))

    return Operation("promote", steps, autocommit=True, wakes=lambda promoted: promoted)
