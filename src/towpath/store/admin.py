"""Tickets that move without a lease: kick, requeue, cancel, delete and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar
from uuid import UUID

from msgspec import Struct

from towpath.errors import InvalidState, KeyTaken, NotBuried, TowpathError
from towpath.model.instants import instant, microseconds
from towpath.model.job import FailureKind, Job
from towpath.model.states import Action, State, Status, allows
from towpath.operation import Operation, Rerun, Row, Steps
from towpath.statement import TICKET, Statement, load
from towpath.store.dependencies import IN_LINE, told
from towpath.store.dependencies import sql as dependencies
from towpath.store.jobs import is_too_late
from towpath.store.jobs import sql as jobs
from towpath.store.leases import is_run
from towpath.store.limits import freed
from towpath.store.lookup import get
from towpath.store.rows import job_from, known_options, listed_from, ticket_from, why_too_late
from towpath.store.runs import offer, withdraw
from towpath.store.runs import sql as runs

sql: Final = load(__name__)

T = TypeVar("T")

KICK_AT_ONCE: Final = 1_000
EXPIRE_AT_ONCE: Final = 1_000
_TAKE: Final[Mapping[State, Statement]] = {
    State.READY: sql["take_ready"],
    State.DELAYED: sql["take_delayed"],
    State.BLOCKED: sql["take_blocked"],
    State.BURIED: sql["take_buried"],
    State.CANCELLED: sql["take_cancelled"],
}


def requeue(id: UUID) -> Operation[Job]:
    """Make a failed or cancelled job ready again, with retries and crashes back to 0."""

    def steps() -> Steps[Job]:
        job, ticket = yield from _taken(id, Action.REQUEUE)
        yield from _claim_key(job)
        yield from _given_another_chance(job.seq, ticket)
        yield from _put_again(job.seq, {**ticket, "retries": None, "crashes": None})
        return (yield from get(id).start())

    return _admin("requeue", steps, _its_topic)


def kick_job(id: UUID) -> Operation[Job]:
    """Make one buried or delayed job ready, counters kept."""

    def steps() -> Steps[Job]:
        job, ticket = yield from _taken(id, Action.KICK, NotBuried)
        if job.state is State.BURIED:
            yield from _claim_key(job)
            yield from _given_another_chance(job.seq, ticket)
        yield from _put_again(job.seq, _kicked(ticket))
        return (yield from get(id).start())

    return _admin("kick_job", steps, _its_topic)


def kick(topic: str, limit: int) -> Operation[int]:
    """Make up to `limit` buried jobs ready, in bury order; if none is buried, delayed ones.

    A job whose key another one holds by now stays where it is.
    """

    def steps() -> Steps[int]:
        found, kicked = yield from _kick_buried(topic, limit)
        return kicked if found else (yield from _kick_delayed(topic, limit))

    return _admin("kick", steps, lambda kicked: [topic] if kicked else [])


def _kick_buried(topic: str, limit: int) -> Steps[tuple[bool, int]]:
    kicked, after, found = 0, -1, False
    while kicked < limit:
        rows = yield sql["next_buried"](
            topic=topic, after=after, limit=min(limit - kicked, KICK_AT_ONCE)
        )
        if not rows:
            break
        found = True
        after = rows[-1][3]
        without_key = yield from _keys_claimed(rows)
        for seq, epoch, _, _ in rows:
            if seq in without_key:
                continue
            for row in (yield sql["take_buried"](seq=seq, epoch=epoch)):
                yield from _given_another_chance(seq, _ticket(row))
                yield from _put_again(seq, _kicked(_ticket(row)))
                kicked += 1
    return found, kicked


def _keys_claimed(rows: Sequence[Row]) -> Steps[set[int]]:
    """Claim the keys of buried jobs, in the order of every enqueue; return those without theirs."""
    without_key: set[int] = set()
    for seq, _, _, _ in sorted((row for row in rows if row[2] is not None), key=itemgetter(2)):
        if not (yield sql["claim_key"](seq=seq)):
            without_key.add(seq)
    return without_key


def _kick_delayed(topic: str, limit: int) -> Steps[int]:
    kicked, after, after_seq = 0, -1, 0
    while kicked < limit:
        rows = yield sql["next_delayed"](
            topic=topic, after=after, after_seq=after_seq, limit=min(limit - kicked, KICK_AT_ONCE)
        )
        if not rows:
            break
        after_seq, _, _, after = rows[-1]
        for seq, epoch, _, _ in rows:
            for row in (yield sql["take_delayed"](seq=seq, epoch=epoch)):
                yield sql["put_ready"](**_kicked(_ticket(row)))
                kicked += 1
    return kicked


def cancel(id: UUID) -> Operation[Job]:
    """Stop a job wherever it is; a running one is asked to, and ends when its holder answers."""
    woken: set[str] = set()

    def steps() -> Steps[Job]:
        while True:
            job = yield from get(id).start()
            if job.state is State.RESERVED:
                if (yield sql["request_cancel"](seq=job.seq, epoch=job.epoch)):
                    return (yield from get(id).start())
                continue  # its lease ended meanwhile
            if not allows(job.state, Action.CANCEL):
                raise InvalidState(_refusal(job, Action.CANCEL))
            others = yield from cancelled(job)
            if others is not None:
                woken.update(others)
                return (yield from get(id).start())

    return _admin("cancel", steps, lambda _: woken)


def cancelled(job: Job) -> Steps[set[str] | None]:
    """Cancel a pending job; return the topics that gained one by it, None if it was moved."""
    ticket = yield from take(job)
    if ticket is None:
        return None
    if job.state is State.BLOCKED:
        yield from withdraw(job.seq)
    yield sql["free_key"](topic=job.topic, key=job.key, id=job.id)
    yield sql["put_cancelled"](**ticket, retention=microseconds(job.options.retention))
    if ticket["awaited"]:
        yield dependencies["note_failed"](parent=job.seq)
        yield from told([(job.seq, False)])
    return (yield from let_follow(place_in_line(job, ticket)))


def expire(topic: str, most: int) -> Steps[bool]:
    """Cancel jobs that can never begin, of the first so many in each line; say if there were any.

    What follows, in limits and in flows, is left to upkeep: here it would take contended locks.
    """
    rows = yield sql["may_expire"](topic=topic, limit=min(most, EXPIRE_AT_ONCE))
    if not rows:
        return False
    [[now]] = yield jobs["clock"]()
    found = False
    for job in map(listed_from, rows):
        at = job.expires_at
        if at is None or not is_too_late(job, now) or job.options.runs is not None:
            continue
        ticket = yield from take(job)
        if ticket is None:
            continue
        found = True
        ticket["epoch"] += 1  # as if it were reserved for this: when requeued, it counts as begun
        yield sql["free_key"](topic=job.topic, key=job.key, id=job.id)
        yield sql["put_cancelled"](**ticket, retention=microseconds(job.options.retention))
        failure = {"kind": FailureKind.EXPIRED, "error": why_too_late(at)}
        yield sql["note_expired"](seq=job.seq, epoch=ticket["epoch"], **failure)
        if ticket["awaited"]:
            yield dependencies["note_failed"](parent=job.seq)
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
    woken: set[str] = set()

    def steps() -> Steps[Job]:
        job, ticket = yield from _taken(id, Action.DELETE, read=ticket_from)
        yield from _forgotten(job, ticket)
        woken.update((yield from let_follow(place_in_line(job, ticket))))
        return job

    return _admin("delete", steps, lambda _: woken)


def purge(topic: str, limit: int) -> Operation[int]:
    """Forget up to `limit` of a topic's pending and failed jobs; return how many."""
    woken: set[str] = set()

    def steps() -> Steps[int]:
        rows = yield sql["unfinished_of"](topic=topic, limit=limit)
        gone = 0
        keys: set[str] = set()
        for job in map(ticket_from, rows):
            ticket = yield from take(job)
            if ticket is not None:
                yield from _forgotten(job, ticket)
                keys |= place_in_line(job, ticket)
                gone += 1
        woken.update((yield from let_follow(keys)))
        return gone

    return _admin("purge", steps, lambda _: woken)


class JobChange(Struct, frozen=True, kw_only=True):
    """What becomes different while a job waits; None stays."""

    priority: int | None = None
    delay: int | None = None
    run_at: int | None = None  # instead of a delay


def change(id: UUID, change: JobChange) -> Operation[Job]:
    """Give a pending job another priority, or another time."""
    woken: set[str] = set()

    def steps() -> Steps[Job]:
        # While it is pending.
        job, ticket = yield from _taken(id, Action.CANCEL, said="a change", by=hold)
        state, run_at = job.state, instant(job.run_at)
        if change.priority is not None:
            ticket["priority"] = change.priority
            yield sql["reprioritise"](seq=job.seq, priority=change.priority)
        if change.delay is not None or change.run_at is not None:
            [[run_at, is_due]] = yield sql["reschedule"](
                seq=job.seq, delay=change.delay, run_at=change.run_at
            )
            if ticket.get("waits") is None:  # else for others, whatever is said here
                state = State.READY if is_due else State.DELAYED
        if state is State.BLOCKED:
            yield runs["offer_otherwise"](seq=job.seq, priority=ticket["priority"])
        woken.update((yield from put_back(job, state, ticket, run_at)))
        if state is not job.state:
            woken.update((yield from let_follow(place_in_line(job, ticket))))
        return (yield from get(id).start())

    return _admin("change", steps, lambda job: {job.topic} | woken)


def _admin(
    name: str, steps: Callable[[], Steps[T]], wakes: Callable[[T], Iterable[str]] | None = None
) -> Operation[T]:
    # Kicking twice kicks twice as many, and a second delete finds nothing.
    return Operation(name, steps, retry=Rerun.NEVER, wakes=wakes)


def _its_topic(job: Job) -> list[str]:
    return [job.topic]


def take(job: Job) -> Steps[dict[str, Any] | None]:
    """Take a job's ticket from where it was seen; None if it is there no more."""
    rows = yield _TAKE[job.state](**_place(job))
    return _ticket(rows[0]) if rows else None


def hold(job: Job) -> Steps[dict[str, Any] | None]:
    """Take a job's ticket to put it back changed; one that is blocked stays where it lies."""
    if job.state is not State.BLOCKED:
        return (yield from take(job))
    rows = yield sql["hold_blocked"](**_place(job))
    return _ticket(rows[0]) if rows else None


def _taken(
    id: UUID,
    action: Action,
    error: type[TowpathError] = InvalidState,
    read: Callable[[Row], Job] = job_from,
    *,
    said: str | None = None,
    by: Callable[[Job], Steps[dict[str, Any] | None]] = take,
) -> Steps[tuple[Job, dict[str, Any]]]:
    """Take a job's ticket from where it lies, if the table of transitions allows it."""
    while True:
        job = yield from get(id, read).start()
        if not allows(job.state, action):
            raise error(_refusal(job, said or action))
        ticket = yield from by(job)
        if ticket is not None:
            return job, ticket
        # Somebody moved it between the two statements: look again.


def put_back(job: Job, state: State, ticket: dict[str, Any], run_at: int) -> Steps[set[str]]:
    """Put a ticket that was held where jobs of a state lie; return the topics that gained a job."""
    if job.state is State.BLOCKED and state is State.BLOCKED:
        yield sql["change_blocked"](**ticket)
        key = ticket["limit_key"] if ticket["waits"] is None else None
        # Who has freed a place meanwhile has stepped over what was held.
        return (yield from let_follow(set() if key is None else {key}))
    if job.state is State.BLOCKED:
        yield from take(job)
    yield from put(state, ticket, run_at)
    return set()


def put(state: State, ticket: dict[str, Any], run_at: int) -> Steps[None]:
    """Put a ticket where pending jobs of a state lie."""
    due = {"run_at": run_at} if state is State.DELAYED else {}
    yield sql[f"put_{state}"](**ticket, **due)


def _refusal(job: Job, action: str) -> str:
    return f"job {job.id} is {job.state}; {action} is not allowed there"


def _claim_key(job: Job) -> Steps[None]:
    if job.key is not None and not (yield sql["claim_key"](seq=job.seq)):
        msg = f"another unfinished job of topic {job.topic!r} holds the key {job.key!r}"
        raise KeyTaken(msg)


def _given_another_chance(seq: int, ticket: Mapping[str, Any]) -> Steps[None]:
    """Refuse what waits for others; let those wait again that failed only because of this one."""
    [[incomplete]] = yield dependencies["count_incomplete"](seq=seq)
    if incomplete:
        msg = f"job number {seq} waits for {incomplete} others that failed: requeue those"
        raise InvalidState(msg)
    if ticket["awaited"]:
        yield from _revive(seq)


def _put_again(seq: int, ticket: Mapping[str, Any]) -> Steps[None]:
    """Put a ticket in line, or offer the job anew if it chooses its workers."""
    [[text]] = yield runs["options_of"](seq=seq)
    options = known_options(text)
    wish = options.runs
    if is_run(options):
        msg = f"job number {seq} is one worker's run of another job: give that one another chance"
        raise InvalidState(msg)
    if wish is None:
        yield sql["put_ready"](**ticket)
        return
    yield runs["forget_runs"](offer=seq)
    yield sql["put_blocked"](**{**ticket, "waits": wish.workers})
    yield from offer(seq, ticket["topic"], ticket["priority"], wish)


def _revive(parent: int) -> Steps[None]:
    """Let those wait again that failed only because of one, but for whom another took the key."""
    left = [parent]
    while left:
        again = left.pop()
        yield dependencies["forget_ended"]([{"parent": again, "completed": False}])
        for seq, epoch, key in (yield dependencies["children_to_revive"](parent=again)):
            if key is not None and not (yield sql["claim_key"](seq=seq)):
                continue
            [[waits]] = yield dependencies["count_incomplete"](seq=seq)
            for row in (yield sql["take_buried"](seq=seq, epoch=epoch)):
                yield dependencies["forget_failure"](seq=seq, epoch=epoch)
                yield sql["put_blocked"](**{**_ticket(row), "waits": waits})
                left.append(seq)


def _forgotten(job: Job, ticket: Mapping[str, Any]) -> Steps[None]:
    if job.state not in IN_LINE:  # also a failed one, if its offer was not withdrawn when it failed
        yield from withdraw(job.seq)
    yield runs["forget_runs"](offer=job.seq)
    if job.status is Status.PENDING:
        yield sql["free_key"](topic=job.topic, key=job.key, id=job.id)
    yield sql["forget_failures"](seq=job.seq)
    yield sql["forget_dependencies"](seq=job.seq)
    yield sql["forget_notes"](seq=job.seq)
    yield sql["forget_job"](seq=job.seq)
    if ticket["awaited"]:
        yield dependencies["note_failed"](parent=job.seq)
        yield from told([(job.seq, False)])


def _place(job: Job) -> dict[str, Any]:
    return {"topic": job.topic, "priority": job.priority, "seq": job.seq, "epoch": job.epoch}


def _ticket(row: Row) -> dict[str, Any]:
    return dict(zip((*TICKET, "waits"), row, strict=False))  # only of what is blocked


def _kicked(ticket: dict[str, Any]) -> dict[str, Any]:
    return {**ticket, "kicks": (ticket["kicks"] or 0) + 1}
