"""Tickets that move without a lease: kick, requeue, cancel, delete and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from msgspec import Struct

from towpath.errors import InvalidState, KeyTaken, NotBuried, TowpathError
from towpath.model.channels import stream_of
from towpath.model.instants import instant, microseconds
from towpath.model.job import FailureKind, Job
from towpath.model.states import Action, State, Status, allows
from towpath.operation import Changed, Operation, Rerun, Steps
from towpath.statement import Statement, Statements, no_rows, rows
from towpath.store import dependencies, lifecycle, streams
from towpath.store.dependencies import IN_LINE
from towpath.store.events import wakeups
from towpath.store.jobs import clock, is_too_late
from towpath.store.lifecycle import ALL, JobEvent
from towpath.store.limits import freed
from towpath.store.lookup import get
from towpath.store.reading import ENDED, EXPIRED
from towpath.store.rows import Located, job_from, listed_from, ticket_from, why_too_late
from towpath.store.runs import forget_runs, offer, offer_otherwise, options_of, withdraw

T = TypeVar("T")


class Ticket(NamedTuple):
    """A ticket that was taken from where it lay."""

    seq: int
    topic: str
    priority: int
    epoch: int
    key: str | None
    retries: int | None
    crashes: int | None
    timeouts: int | None
    releases: int | None
    buries: int | None
    kicks: int | None
    limit_key: str | None
    awaited: bool | int | None
    streamed: bool | int | None
    waits: int | None  # in `blocked`: for so many jobs or workers; None: a limit


class BuriedPlace(NamedTuple):
    """A buried job, in the order of burial."""

    seq: int
    epoch: int
    key: str | None
    no: int


class DelayedPlace(NamedTuple):
    """A delayed job, in the order of its time."""

    seq: int
    epoch: int
    run_at: int


class NewTime(NamedTuple):
    """The time that a job was given, and whether it has come."""

    run_at: int
    is_due: bool | int


class sql(Statements):
    """The statements of admin.sql."""

    take_ready = rows(Ticket)
    take_delayed = rows(Ticket)
    take_blocked = rows(Ticket)
    hold_blocked = rows(Ticket)
    change_blocked = no_rows()
    take_buried = rows(Ticket)
    take_cancelled = rows(Ticket)
    put_ready = no_rows()
    put_delayed = no_rows()
    put_blocked = no_rows()
    put_cancelled = no_rows()
    request_cancel = rows(int)
    claim_key = rows(str)
    free_key = no_rows()
    reprioritise = no_rows()
    reschedule = rows(NewTime)
    forget = no_rows()
    next_buried = rows(BuriedPlace)
    next_delayed = rows(DelayedPlace)
    unfinished_of = rows(Located)
    may_expire = rows(Located)
    note_expired = no_rows()


KICK_AT_ONCE: Final = 1_000
EXPIRE_AT_ONCE: Final = 1_000
_TAKE: Final[Mapping[State, Statement[Ticket]]] = {
    State.READY: sql.take_ready,
    State.DELAYED: sql.take_delayed,
    State.BLOCKED: sql.take_blocked,
    State.BURIED: sql.take_buried,
    State.CANCELLED: sql.take_cancelled,
}
_PUT: Final[Mapping[State, Statement[None]]] = {
    State.READY: sql.put_ready,
    State.DELAYED: sql.put_delayed,
    State.BLOCKED: sql.put_blocked,
}


def requeue(id: UUID) -> Operation[Job]:
    """Make a failed or cancelled job ready again, with retries and crashes back to 0."""

    def steps() -> Steps[Changed[Job]]:
        job, ticket = yield from _taken(id, Action.REQUEUE)
        yield from _claim_key(job)
        yield from _given_another_chance(job.seq, ticket)
        again = yield from with_new_stream(ticket)
        yield from _put_again(job.seq, {**again, "retries": None, "crashes": None})
        yield from _post_requeued([again])
        return Changed((yield from get(id).inside()), [job.topic])

    return _admin("requeue", steps)


def kick_job(id: UUID) -> Operation[Job]:
    """Make one buried or delayed job ready, counters kept."""

    def steps() -> Steps[Changed[Job]]:
        job, ticket = yield from _taken(id, Action.KICK, NotBuried)
        if job.state is State.BURIED:
            yield from _claim_key(job)
            yield from _given_another_chance(job.seq, ticket)
            ticket = yield from with_new_stream(ticket)
            yield from _post_requeued([ticket])
        yield from _put_again(job.seq, _kicked(ticket))
        return Changed((yield from get(id).inside()), [job.topic])

    return _admin("kick_job", steps)


def kick(topic: str, limit: int) -> Operation[int]:
    """Make up to `limit` buried jobs ready, in bury order; if none is buried, delayed ones.

    A job whose key another one holds by now stays where it is.
    """

    def steps() -> Steps[Changed[int]]:
        found, kicked = yield from _kick_buried(topic, limit)
        if not found:
            kicked = yield from _kick_delayed(topic, limit)
        return Changed(kicked, [topic] if kicked else [])

    return _admin("kick", steps)


def _kick_buried(topic: str, limit: int) -> Steps[tuple[bool, int]]:
    kicked, after, found = 0, -1, False
    while kicked < limit:
        places = yield from sql.next_buried(
            topic=topic, after=after, limit=min(limit - kicked, KICK_AT_ONCE)
        )
        if not places:
            break
        found = True
        after = places[-1].no
        without_key = yield from _keys_claimed(places)
        requeued: list[dict[str, Any]] = []
        for place in places:
            if place.seq in without_key:
                continue
            for taken in (yield from sql.take_buried(seq=place.seq, epoch=place.epoch)):
                ticket = yield from with_new_stream(taken._asdict())
                yield from _given_another_chance(place.seq, ticket)
                yield from _put_again(place.seq, _kicked(ticket))
                requeued.append(ticket)
        kicked += len(requeued)
        yield from _post_requeued(requeued)
    return found, kicked


def _keys_claimed(places: Sequence[BuriedPlace]) -> Steps[set[int]]:
    """Claim the keys of buried jobs, in the order of every enqueue; return those without theirs."""
    without_key: set[int] = set()
    for _, seq in sorted((place.key, place.seq) for place in places if place.key is not None):
        if not (yield from sql.claim_key(seq=seq)):
            without_key.add(seq)
    return without_key


def _kick_delayed(topic: str, limit: int) -> Steps[int]:
    kicked, after, after_seq = 0, -1, 0
    while kicked < limit:
        places = yield from sql.next_delayed(
            topic=topic, after=after, after_seq=after_seq, limit=min(limit - kicked, KICK_AT_ONCE)
        )
        if not places:
            break
        after, after_seq = places[-1].run_at, places[-1].seq
        for place in places:
            for taken in (yield from sql.take_delayed(seq=place.seq, epoch=place.epoch)):
                yield sql.put_ready(**_kicked(taken._asdict()))
                kicked += 1
    return kicked


def cancel(id: UUID) -> Operation[Job]:
    """Stop a job wherever it is; a running one is asked to, and ends when its holder answers."""

    def steps() -> Steps[Changed[Job]]:
        while True:
            job = yield from get(id).inside()
            if job.state is State.RESERVED:
                if (yield from request_cancel(job)):
                    return Changed((yield from get(id).inside()), ())
                continue  # its lease ended meanwhile
            if not allows(job.state, Action.CANCEL):
                raise InvalidState(_refusal(job, Action.CANCEL))
            woken = yield from cancelled(job)
            if woken is not None:
                ended = wakeups([stream_of(id)])
                return Changed((yield from get(id).inside()), woken, others=ended)

    return _admin("cancel", steps)


def request_cancel(job: Job) -> Steps[bool]:
    """Ask the holder of a job's lease to stop; say whether the lease is there."""
    return bool((yield from sql.request_cancel(seq=job.seq, epoch=job.epoch)))


def free_key(job: Job) -> Steps[None]:
    """Let other jobs have the key of a job."""
    yield sql.free_key(topic=job.topic, key=job.key, id=job.id)


def cancelled(job: Job) -> Steps[set[str] | None]:
    """Cancel a pending job; return the topics that gained one by it, None if it was moved."""
    ticket = yield from take(job)
    if ticket is None:
        return None
    if job.state is State.BLOCKED:
        yield from withdraw(job.seq)
    yield from _put_cancelled(job, ticket)
    woken: set[str] = set()
    if ticket["awaited"]:
        woken |= yield from dependencies.failed(job.seq)
    return woken | (yield from let_follow(place_in_line(job, ticket)))


def _put_cancelled(
    job: Job, ticket: Mapping[str, Any], ended: str = ENDED[State.CANCELLED]
) -> Steps[None]:
    yield from free_key(job)
    yield sql.put_cancelled(**ticket, retention=microseconds(job.options.retention))
    if ticket["streamed"]:
        yield from streams.end(job.seq, ticket["epoch"], ended)
    error = why_too_late(job.expires_at) if ended == EXPIRED and job.expires_at else None
    kind = FailureKind.EXPIRED if ended == EXPIRED else None
    yield from lifecycle.post_jobs([JobEvent(ended, job.seq, ticket["epoch"], kind, error)])


def expire(topic: str, most: int) -> Steps[bool]:
    """Cancel jobs that can never begin, of the first so many in each line; say if there were any.

    What follows, in limits and in flows, is left to upkeep: here it would take contended locks.
    """
    jobs = yield from sql.may_expire(topic=topic, limit=min(most, EXPIRE_AT_ONCE))
    if not jobs:
        return False
    now = yield from clock()
    found = False
    for job in map(listed_from, jobs):
        at = job.expires_at
        if at is None or not is_too_late(job, now) or job.options.runs is not None:
            continue
        ticket = yield from take(job)
        if ticket is None:
            continue
        found = True
        ticket["epoch"] += 1  # as if it were reserved for this: when requeued, it counts as begun
        yield from _put_cancelled(job, ticket, EXPIRED)
        failure = {"kind": FailureKind.EXPIRED, "error": why_too_late(at)}
        yield sql.note_expired(seq=job.seq, epoch=ticket["epoch"], **failure)
        if ticket["awaited"]:
            yield from dependencies.note_failed(job.seq)
    return found


def place_in_line(job: Job, ticket: Mapping[str, Any]) -> set[str]:
    """Return the key of the limit for which a ticket kept others from coming into line."""
    key = ticket["limit_key"]
    return {key} if job.state is State.READY and key is not None else set()


def let_follow(keys: set[str]) -> Steps[set[str]]:
    """Let in what waited behind jobs that have left their lines."""
    return (yield from freed(keys)) if keys else set()


def delete(id: UUID) -> Operation[Job]:
    """Forget a job that is pending, failed or cancelled; return what it was."""

    def steps() -> Steps[Changed[Job]]:
        job, ticket = yield from _taken(id, Action.DELETE, read=ticket_from)
        woken = yield from _forgotten(job, ticket)
        woken |= yield from let_follow(place_in_line(job, ticket))
        return Changed(job, woken, others=wakeups([stream_of(id)]))

    return _admin("delete", steps)


def purge(topic: str, limit: int) -> Operation[int]:
    """Forget up to `limit` of a topic's pending and failed jobs; return how many."""

    def steps() -> Steps[Changed[int]]:
        found = yield from sql.unfinished_of(topic=topic, limit=limit)
        gone = 0
        keys: set[str] = set()
        woken: set[str] = set()
        streamed: list[str] = []
        for job in map(ticket_from, found):
            ticket = yield from take(job)
            if ticket is not None:
                woken |= yield from _forgotten(job, ticket)
                keys |= place_in_line(job, ticket)
                gone += 1
                if ticket["streamed"]:
                    streamed.append(stream_of(job.id))
        woken |= yield from let_follow(keys)
        return Changed(gone, woken, others=wakeups(streamed))

    return _admin("purge", steps)


class JobChange(Struct, frozen=True, kw_only=True):
    """What becomes different while a job waits; None stays."""

    priority: int | None = None
    delay: int | None = None
    run_at: int | None = None  # instead of a delay


def change(id: UUID, change: JobChange) -> Operation[Job]:
    """Give a pending job another priority, or another time."""

    def steps() -> Steps[Changed[Job]]:
        # While it is pending.
        job, ticket = yield from _taken(id, Action.CANCEL, said="a change", by=hold)
        state, run_at = job.state, instant(job.run_at)
        if change.priority is not None:
            ticket["priority"] = change.priority
            yield sql.reprioritise(seq=job.seq, priority=change.priority)
        if change.delay is not None or change.run_at is not None:
            run_at, is_due = yield from reschedule(job, change.delay, change.run_at)
            if ticket["waits"] is None:  # else it waits for other jobs, whatever its time
                state = State.READY if is_due else State.DELAYED
        if state is State.BLOCKED:
            yield from offer_otherwise(job.seq, ticket["priority"])
        woken = {job.topic} | (yield from put_back(job, state, ticket, run_at))
        if state is not job.state:
            woken |= yield from let_follow(place_in_line(job, ticket))
        return Changed((yield from get(id).inside()), woken)

    return _admin("change", steps)


def reschedule(job: Job, delay: int | None, run_at: int | None) -> Steps[tuple[int, bool]]:
    """Give a job another time; return it, and whether it has come."""
    [new] = yield from sql.reschedule(seq=job.seq, delay=delay, run_at=run_at)
    return new.run_at, bool(new.is_due)


def _admin(name: str, steps: Callable[[], Steps[Changed[T]]]) -> Operation[T]:
    # Kicking twice kicks twice as many, and a second delete finds nothing.
    return Operation(name, steps, retry=Rerun.NEVER)


def take(job: Job) -> Steps[dict[str, Any] | None]:
    """Take a job's ticket from where it was seen; None if it has moved."""
    taken = yield from _TAKE[job.state](**_place(job))
    return taken[0]._asdict() if taken else None


def hold(job: Job) -> Steps[dict[str, Any] | None]:
    """Take a job's ticket to put it back changed; one that is blocked stays where it lies."""
    if job.state is not State.BLOCKED:
        return (yield from take(job))
    held = yield from sql.hold_blocked(seq=job.seq, epoch=job.epoch)
    return held[0]._asdict() if held else None


def _taken(
    id: UUID,
    action: Action,
    error: type[TowpathError] = InvalidState,
    read: Callable[[Located], Job] = job_from,
    *,
    said: str | None = None,
    by: Callable[[Job], Steps[dict[str, Any] | None]] = take,
) -> Steps[tuple[Job, dict[str, Any]]]:
    """Take a job's ticket from where it lies, if the table of transitions allows it."""
    while True:
        job = yield from get(id, read).inside()
        if not allows(job.state, action):
            raise error(_refusal(job, said or action))
        ticket = yield from by(job)
        if ticket is not None:
            return job, ticket
        # Another transaction moved it between the two statements: look again.


def put_back(job: Job, state: State, ticket: dict[str, Any], run_at: int) -> Steps[set[str]]:
    """Put a ticket that was held where jobs of a state lie; return the topics that gained a job."""
    if job.state is State.BLOCKED and state is State.BLOCKED:
        yield sql.change_blocked(**ticket)
        key = ticket["limit_key"] if ticket["waits"] is None else None
        # A transaction that freed a place meanwhile has skipped the locked row.
        return (yield from let_follow(set() if key is None else {key}))
    if job.state is State.BLOCKED:
        yield from take(job)
    yield from put(state, ticket, run_at)
    return set()


def put(state: State, ticket: dict[str, Any], run_at: int) -> Steps[None]:
    """Put a ticket where pending jobs of a state lie."""
    due = {"run_at": run_at} if state is State.DELAYED else {}
    yield _PUT[state](**ticket, **due)


def _refusal(job: Job, action: str) -> str:
    return f"job {job.id} is {job.state}; {action} is not allowed there"


def _claim_key(job: Job) -> Steps[None]:
    if job.key is not None and not (yield from sql.claim_key(seq=job.seq)):
        msg = f"another unfinished job of topic {job.topic!r} holds the key {job.key!r}"
        raise KeyTaken(msg)


def _given_another_chance(seq: int, ticket: Mapping[str, Any]) -> Steps[None]:
    """Refuse what waits for others; let those wait again that failed only because of this one."""
    incomplete = yield from dependencies.count_incomplete(seq)
    if incomplete:
        msg = f"job number {seq} waits for {incomplete} others that failed: requeue those"
        raise InvalidState(msg)
    yield from dependencies.fill_in_late(seq)
    if ticket["awaited"]:
        yield from _revive(seq)


def with_new_stream(ticket: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Let a job that had ended begin another stream, if it had one."""
    if ticket["streamed"]:
        yield from streams.leave(ticket["seq"])
    return {**ticket, "streamed": None}


def _put_again(seq: int, ticket: Mapping[str, Any]) -> Steps[None]:
    """Put a ticket in line, or offer the job again if it chooses its workers."""
    options = yield from options_of(seq)
    runs = options.runs
    if runs is None:
        yield sql.put_ready(**ticket)
        return
    if runs.of is not None:
        msg = f"job number {seq} is a run of job number {runs.of}: requeue or kick that one"
        raise InvalidState(msg)
    yield from forget_runs(seq)
    yield sql.put_blocked(**{**ticket, "waits": runs.workers})
    yield from offer(seq, ticket["topic"], ticket["priority"], runs)


def _revive(parent: int) -> Steps[None]:
    """Let the jobs wait again that failed only because of one, unless another has their key.

    A job that would go on without it, and has not yet, waits for it too.
    """
    left = [parent]
    while left:
        parent = left.pop()
        for seq, epoch, key in (yield from dependencies.children_to_revive(parent)):
            if key is not None and not (yield from sql.claim_key(seq=seq)):
                continue
            waits = yield from dependencies.count_incomplete(seq)
            for taken in (yield from sql.take_buried(seq=seq, epoch=epoch)):
                yield from dependencies.forget_failure(seq, epoch)
                yield sql.put_blocked(**{**taken._asdict(), "waits": waits})
                yield from _post_requeued([taken._asdict()])
                left.append(seq)
        for seq, epoch in (yield from dependencies.children_without_it(parent)):
            # Taken and put back: a transaction that waits here to let it in finds nothing.
            for taken in (yield from sql.take_blocked(seq=seq, epoch=epoch)):
                yield from dependencies.wait_again(seq, parent)
                yield sql.put_blocked(**taken._asdict())


def _post_requeued(tickets: Sequence[Mapping[str, Any]]) -> Steps[None]:
    yield from lifecycle.post_jobs(
        [JobEvent("requeued", ticket["seq"], ticket["epoch"]) for ticket in tickets]
    )


def _forgotten(job: Job, ticket: Mapping[str, Any]) -> Steps[set[str]]:
    """Forget a job whose ticket was taken; return the topics that gained one by it."""
    if job.state not in IN_LINE:  # also a failed one, if its offer was not withdrawn when it failed
        yield from withdraw(job.seq)
    yield from forget_runs(job.seq)  # before {forget}, which stops none of them
    if job.status is Status.PENDING:
        yield from free_key(job)
    names = yield from lifecycle.named(ALL, [job.seq])
    yield sql.forget(seq=job.seq)
    yield from lifecycle.post_jobs([JobEvent("deleted", job.seq, ticket["epoch"])], names)
    return (yield from dependencies.failed(job.seq)) if ticket["awaited"] else set()


def _place(job: Job) -> dict[str, Any]:
    return {"topic": job.topic, "priority": job.priority, "seq": job.seq, "epoch": job.epoch}


def _kicked(ticket: dict[str, Any]) -> dict[str, Any]:
    return {**ticket, "kicks": (ticket["kicks"] or 0) + 1}
