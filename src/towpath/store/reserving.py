"""Reserving: the best ready jobs of some topics, each under a lease of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from towpath.errors import IncompatibleData
from towpath.model.instants import FOREVER, instant
from towpath.model.job import FailureKind, Lease
from towpath.operation import Changed, Operation, Steps, is_posted
from towpath.statement import Statements, no_rows, rows
from towpath.store import lifecycle
from towpath.store.leases import Outcome, back, give_back, rescued
from towpath.store.lifecycle import ALL, JobEvent
from towpath.store.limits import admitted, due_freed
from towpath.store.rows import Located, lease_from, was_begun, why_too_late
from towpath.store.runs import start_runs

PROMOTE_AT_ONCE: Final = 1_000
LOOK_AGAIN: Final = 100_000  # microseconds, while another transaction moves what is due


class Candidate(NamedTuple):
    """A ready job that may be reserved."""

    topic: str
    priority: int
    seq: int


class NextDue(NamedTuple):
    """When something in some topics will next change by itself."""

    due_at: int | None
    now: int
    has_limits: bool | int  # whether one of the topics has jobs with limits


class sql(Statements):
    """The statements of reserving.sql."""

    reserve = rows(Located)
    candidates = rows(Candidate)
    take = rows(Located)
    mark_limited = no_rows()
    reserved_before = rows(Located)
    next_due = rows(NextDue)
    promote = rows(str)


Look: TypeAlias = Callable[[object], Steps[list[Located]]]
"""What takes the best of some ranges."""


class Range(Struct, frozen=True):
    """A stretch of a topic's line: behind (priority, seq), up to and including a priority."""

    topic: str
    priority: int = -1
    seq: int = 0
    upto: int = FOREVER
    due_from: int = 0  # nothing before this instant is due any more
    most: int = FOREVER  # at most so many of its jobs are wanted


class Reserved(Struct, frozen=True):
    """What a reservation brought; without leases, in how many microseconds to look again."""

    leases: list[Lease]
    due_in: int | None = None
    now: int = 0
    back_in_line: bool = False  # jobs came back into these lines, before others
    unusable: list[Outcome] = []  # how the leases end that no worker can use
    limited: bool = False  # look again, `limited`: a topic has limits
    unmarked: frozenset[str] = frozenset()  # topics that have limits, and are not marked so
    again: bool = False  # without leases: there may be some now


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

    What is due in these topics is brought into line before. Repeated with the same token after a
    lost answer, it returns the same leases. A topic that has jobs with limits is reserved only if
    the operation is `limited`, which takes a transaction. That looks but once: a second look would
    lock the limits in another order. A lease of a session lives while that does; if it `expires`,
    not beyond its ttr. Without a session, a lease keeps the name of the worker.
    """
    wanted = most or {}
    everywhere = _plain([Range(topic) for topic in topics], wanted)
    marked = _plain(ranges, wanted) or everywhere

    def look(where: object) -> Steps[list[Located]]:
        holder = {"token": token, "session": session, "worker": worker, "expires": expires}
        return _taken(topics, where, limit, wanted, limited=limited, **holder)

    def taken() -> Steps[Changed[Reserved]]:
        found = yield from look(marked)
        if found:
            return (yield from _admitted(found, limited=limited))
        if marked != everywhere and (found := (yield from look(everywhere))):
            reserved = yield from _admitted(found, limited=limited)
            return Changed(replace(reserved.value, back_in_line=True), reserved.topics)
        regardless = _plain([Range(topic, due_from=FOREVER) for topic in topics], wanted)
        return (yield from _due_first(topics, look, everywhere, regardless, limited=limited))

    def steps() -> Steps[Changed[Reserved]]:
        posts = yield from is_posted(ALL)
        reserved = yield from taken()
        if posts:
            yield from _post_reserved(reserved.value)
        return reserved

    def again() -> Steps[Reserved | Changed[Reserved]]:
        found = yield from reserved_before(token)
        return _reserved(found, limited=limited) if found else (yield from steps())

    return Operation(
        "reserve",
        again if known_token else steps,
        autocommit=not limited,
        locks=limited,
        retry=again,
        undo=lambda reserved: give_back(reserved.leases, reserved.unusable),
    )


def _due_first(
    topics: tuple[str, ...], look: Look, everywhere: object, regardless: object, *, limited: bool
) -> Steps[Changed[Reserved]]:
    """Bring into line what is due, and take the best of it."""
    woken: set[str] = set()  # topics in which jobs came due
    found: list[Located] = []
    while not found:
        nothing = yield from _nothing_due(topics, limited=limited)
        if nothing:
            return Changed(nothing, woken)
        due = yield from _came_due(topics, limited=limited)
        woken.update(set(due.topics).difference(topics))  # every waiter for these has a timer
        if not due.value:
            # Another transaction moves what is due: do not wait for it.
            found = yield from look(regardless)
            if not found:
                return Changed(Reserved([], LOOK_AGAIN), woken)
        elif limited:
            return Changed(Reserved([], again=True), woken)
        else:
            found = yield from look(everywhere)
    reserved = yield from _admitted(found, limited=limited)
    value = replace(reserved.value, back_in_line=True)
    return Changed(value, woken.union(reserved.topics))


def reserve_offered(
    topics: tuple[str, ...], *, worker: str, limit: int, token: int, session: int | None
) -> Operation[Reserved]:
    """Lease runs of jobs that are offered to a worker; those that name it come first."""

    def steps() -> Steps[Reserved]:
        if not (yield from start_runs(topics, worker, limit, token, session)):
            return Reserved([])
        reserved = yield from again()
        yield from _post_reserved(reserved)
        return reserved

    def again() -> Steps[Reserved]:
        found = yield from reserved_before(token)
        return _reserved(found, limited=True) if found else Reserved([])

    return Operation(
        "reserve_offered",
        steps,
        retry=again,
        undo=lambda reserved: give_back(reserved.leases, reserved.unusable),
    )


def reserved_before(token: int) -> Steps[list[Located]]:
    """Find the leases of a reservation whose answer was lost."""
    return (yield from sql.reserved_before(token=token))


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
) -> Steps[list[Located]]:
    """Take the best of these lines: of one in one statement, of several by looking first.

    What is taken is returned at once, even if it is less than could be had: a further statement
    might fail, and the leases would be lost.
    """
    if len(topics) == 1:
        limit = min(limit, most.get(topics[0], limit))
        where = {"topic": topics[0], "ranges": ranges, "limit": limit, "limited": limited}
        return (yield from sql.reserve(**where, **holder))
    tried: set[int] = set()  # what another caller was quicker to take
    while True:
        places = yield from sql.candidates(
            topics=topics,
            ranges=ranges,
            limit=limit + len(tried),
            tried=len(tried),
            limited=limited,
        )
        new = [place for place in places if place.seq not in tried]
        best = _within(most, sorted(new, key=lambda place: (place.priority, place.seq)))[:limit]
        if not best:
            return []
        tried.update(place.seq for place in best)
        taken = yield from sql.take([place._asdict() for place in best], **holder)
        if taken:
            return sorted(taken, key=lambda job: (job.priority, job.seq))


def _nothing_due(topics: tuple[str, ...], *, limited: bool) -> Steps[Reserved | None]:
    """Say when to look again, unless something is due by now."""
    [next_due] = yield from sql.next_due(topics=topics)
    if next_due.has_limits and not limited:
        return Reserved([], limited=True)
    if next_due.due_at is None:
        return Reserved([])
    due_in = next_due.due_at - next_due.now
    return Reserved([], due_in) if due_in > 0 else None


def _came_due(topics: tuple[str, ...], *, limited: bool) -> Steps[Changed[bool]]:
    """Bring into line what is due; say whether that was anything.

    Where limits may be held only once, also whether they are held now.
    """
    due = yield from promoted(topics)
    over = yield from rescued(topics)
    woken = {*due.topics, *over.topics}
    if limited and (due.value or over.value):
        return Changed(True, woken)
    held, freed = yield from due_freed()
    woken.update(freed)
    return Changed(bool(woken or due.value or over.value or (limited and held)), woken)


def _admitted(found: Sequence[Located], *, limited: bool) -> Steps[Changed[Reserved]]:
    """Read the rows of a reservation, less those that are over a limit."""
    reserved = _reserved(found, limited=limited)
    if reserved.unmarked:
        yield sql.mark_limited([{"topic": topic} for topic in sorted(reserved.unmarked)])
    if not any(lease.job.options.limit for lease in reserved.leases):
        return Changed(reserved, ())
    leases, woken = yield from admitted(reserved.leases)
    again = not leases  # all of them wait for their limits
    return Changed(replace(reserved, leases=leases, again=again), woken)


def _post_reserved(reserved: Reserved) -> Steps[None]:
    leased = [(lease.job.seq, lease.epoch) for lease in reserved.leases]
    leased += [(each.seq, each.epoch) for each in reserved.unusable]
    yield from lifecycle.post_jobs([JobEvent("reserved", *each) for each in leased])


def _within(most: Mapping[str, int], places: Sequence[Candidate]) -> Sequence[Candidate]:
    """Leave out what is more of its topic than is wanted."""
    if not most:
        return places
    taken: Counter[str] = Counter()
    kept: list[Candidate] = []
    for place in places:
        taken[place.topic] += 1
        if taken[place.topic] <= most.get(place.topic, FOREVER):
            kept.append(place)
    return kept


def _reserved(found: Sequence[Located], *, limited: bool) -> Reserved:
    """Read the rows of a reservation; a job that cannot be used spoils no other.

    A job with a limit can be used only by a look that is `limited`. As a rule the mark on its topic
    keeps other looks from leasing it; the mark may be missing for a moment.
    """
    unmarked: set[str] = set()
    leases: list[Lease] = []
    unusable: list[Outcome] = []
    now = found[0].reserved_at or 0  # a new lease begins now
    for row in found:
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
                    seq=row.seq,
                    epoch=row.epoch,
                    goal="buried",
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
        options=lease.job.options,
        kind=FailureKind.EXPIRED,
        error=why_too_late(at),
    )


def promote(topics: Sequence[str]) -> Operation[bool]:
    """Make ready what is delayed and due, a batch from each topic; say if there was any."""
    return Operation("promote", lambda: promoted(topics), autocommit=True)


def rescue(topics: Sequence[str]) -> Operation[bool]:
    """Take back what was leased and is over, a batch from each topic; say if there was any.

    It may wait for the row of a limit, so it is not one transaction with `promote`.
    """

    def steps() -> Steps[Changed[bool]]:
        expired = yield from rescued(topics)
        return Changed(bool(expired.value), expired.topics, others=expired.others)

    return Operation("rescue", steps, locks=True)


def promoted(topics: Sequence[str]) -> Steps[Changed[bool]]:
    """Make ready what is delayed and due, as part of another operation."""
    items = [{"topic": topic} for topic in topics]
    found = yield from sql.promote(items, limit=PROMOTE_AT_ONCE)
    return Changed(bool(found), set(found))
