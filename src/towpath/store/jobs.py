"""Jobs with a lease and on their way to one: enqueue, reserve, complete and the other outcomes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import (
    Conflict,
    IncompatibleData,
    InvalidTouchTime,
    JobExists,
    LeaseLost,
    MaxJobsReached,
    MaxTopicsReached,
    NotFound,
    TouchLimitExceeded,
)
from towpath.model.instants import FOREVER, as_datetime, as_timedelta, microseconds
from towpath.model.job import Job, Lease, Options
from towpath.model.states import State, Status
from towpath.operation import Answer, Operation, Row, Steps, plural
from towpath.statement import Statement, load
from towpath.store.rows import job_from, known_options, lease_from, uuid_from

sql: Final = load(__name__)

PROMOTE_AT_ONCE: Final = 1_000
TRIES: Final = 5  # to store a job while others use its key
LOOK_AGAIN: Final = 100_000  # microseconds, when what is due is in somebody else's hands
UNFINISHED: Final = frozenset({Status.PENDING, Status.PROCESSING})
RESCUE_AT_ONCE: Final = 1_000

_DEFAULTS: Final = Options()


# ---------------------------------------------------------------- enqueue


class NewJob(Struct, frozen=True, kw_only=True):
    """A job to store."""

    id: UUID
    topic: str
    body: str
    encoding: str
    priority: int
    ttr: int
    delay: int = 0
    run_at: int | None = None  # instead of a delay
    key: str | None = None
    options: Options = _DEFAULTS

    def as_item(self, nth: int) -> dict[str, Any]:
        """Return the parameters of its statement."""
        return {
            "nth": nth,
            "id": self.id,
            "topic": self.topic,
            "priority": self.priority,
            "key": self.key,
            "payload": self.body,
            "encoding": self.encoding,
            "ttr": self.ttr,
            "options": stored_options(self.options),
            "run_at": self.run_at,
            "delay": self.delay,
        }


def stored_options(options: Options) -> str | None:
    """Return the options as they are stored: nothing where they are the defaults."""
    if options is _DEFAULTS or options == _DEFAULTS:
        return None
    return msgspec.json.encode(options).decode()


def _stored(new: NewJob, row: Row) -> Job:
    seq, created_at, run_at, _ = row
    return Job(
        seq=seq,
        id=new.id,
        topic=new.topic,
        state=State.DELAYED if run_at > created_at else State.READY,
        priority=new.priority,
        key=new.key,
        body=new.body,
        encoding=new.encoding,
        ttr=as_timedelta(new.ttr),
        options=new.options,
        created_at=as_datetime(created_at),
        run_at=as_datetime(run_at),
    )


def _topics_of(answers: Iterable[Answer[Job]]) -> set[str]:
    return {answer.topic for answer in answers if isinstance(answer, Job)}


@plural(lambda new: len({job.key is None for job in new}) == 1, _topics_of, fresh=True)
def enqueue(new: Sequence[NewJob]) -> Steps[list[Answer[Job]]]:
    """Store jobs, in order.

    A job whose id is stored already with the same content, or whose key an unfinished job of its
    topic holds, is not stored again: the standing job is the answer.
    """
    answers: dict[int, Answer[Job]] = {}
    for _ in range(TRIES):
        yield from _stored_as(sql["enqueue"], new, answers, keyed=False)
        yield from _stored_as(sql["enqueue_keyed"], new, answers, keyed=True)
        if len(answers) == len(new):
            return [answers[nth] for nth in range(len(new))]
    lost = Conflict("an id or a key changed hands again and again; try again")
    return [answers.get(nth, lost) for nth in range(len(new))]


def _stored_as(
    statement: Statement, new: Sequence[NewJob], answers: dict[int, Answer[Job]], *, keyed: bool
) -> Steps[None]:
    items = [
        job.as_item(nth)
        for nth, job in enumerate(new)
        if (job.key is not None) is keyed and nth not in answers
    ]
    if not items:
        return
    rows = yield statement(items)
    if len(rows) == len(items):  # numbers are given out in order
        for item, row in zip(items, rows, strict=True):
            place: int = item["nth"]
            answers[place] = _stored(new[place], row)
        return
    yield from _add_standing(new, items, rows, answers)


def _add_standing(
    new: Sequence[NewJob],
    items: Sequence[Mapping[str, Any]],
    rows: Sequence[Row],
    answers: dict[int, Answer[Job]],
) -> Steps[None]:
    """Answer for each with what was stored, or with what stands in its place."""
    # Of two with the same id in one batch, the first is stored and the other finds it standing.
    places: dict[UUID, int] = {item["id"]: item["nth"] for item in reversed(items)}
    for row in rows:
        place = places[uuid_from(row[3])]
        answers[place] = _stored(new[place], row)
    refused = [item for item in items if item["nth"] not in answers]
    for row in (yield sql["standing"](refused)):
        nth: int = row[0]
        job = job_from(row[1:])
        if job.id == new[nth].id or job.status in UNFINISHED:
            answers[nth] = _standing(new[nth], job)
    # The holder of a key may have finished between the two looks: then the key is free.
    lost = [item for item in refused if item["nth"] not in answers]
    if lost:
        yield sql["free_stale_keys"](lost)


def enqueue_all(
    new: Sequence[NewJob], *, batch_size: int, batch_bytes: int
) -> Operation[list[Answer[Job]]]:
    """Store many jobs in one transaction, some in each statement."""
    if len(new) == 1:
        return enqueue(new)
    parts = list(_parts(new, batch_size, batch_bytes))
    if len(parts) == 1:
        return enqueue(new)

    def steps() -> Steps[list[Answer[Job]]]:
        answers: list[Answer[Job]] = []
        for part in parts:
            answers += yield from enqueue(part).start()
        return answers

    return Operation("enqueue_all", steps, wakes=_topics_of, fresh=True)


def _parts(new: Sequence[NewJob], most: int, most_bytes: int) -> Iterator[Sequence[NewJob]]:
    start = size = 0
    for nth, job in enumerate(new):
        size += len(job.body)
        if nth > start and (nth - start == most or size > most_bytes):
            yield new[start:nth]
            start, size = nth, len(job.body)
    yield new[start:]


def enqueue_within(
    new: Sequence[NewJob], *, max_topics: int, max_jobs: int
) -> Operation[list[Answer[Job]]]:
    """Store jobs unless one would break a limit; that is checked before anything is stored."""

    def steps() -> Steps[list[Answer[Job]]]:
        yield sql["lock_topics"]()
        # What is stored already, by an enqueue whose answer was lost, is no further job.
        rows = yield sql["standing"]([job.as_item(nth) for nth, job in enumerate(new)])
        standing = {row[0] for row in rows}
        counts = Counter(job.topic for nth, job in enumerate(new) if nth not in standing)
        for opened, (topic, count) in enumerate(counts.items()):
            if max_topics and not (yield sql["topic_exists"](topic=topic)):
                [[topics]] = yield sql["count_topics"]()
                if topics + opened >= max_topics:
                    msg = (
                        f"there are {topics} topics; {topic!r} would be one more than {max_topics}"
                    )
                    raise MaxTopicsReached(msg)
            if max_jobs:
                [[jobs]] = yield sql["count_unfinished"](topic=topic)
                if jobs + count > max_jobs:
                    msg = f"topic {topic!r} holds {jobs} jobs; {max_jobs} are allowed"
                    raise MaxJobsReached(msg)
        return (yield from enqueue(new).start())

    return Operation("enqueue_within", steps, wakes=_topics_of, fresh=True)


def _standing(new: NewJob, job: Job) -> Answer[Job]:
    if job.id != new.id:
        return job  # another job holds the key
    same = (job.topic, job.body, job.encoding, job.key) == (
        new.topic, new.body, new.encoding, new.key,
    )  # fmt: skip
    return job if same else JobExists(f"job {new.id} is stored already with other content")


# ---------------------------------------------------------------- reserve


class Range(Struct, frozen=True):
    """A stretch of a topic's line: behind (priority, seq), up to and including a priority."""

    topic: str
    priority: int = -1
    seq: int = 0
    upto: int = FOREVER
    due_from: int = 0  # nothing before this instant is due any more


class Reserved(Struct, frozen=True):
    """What a reservation brought; without leases, in how many microseconds to look again."""

    leases: list[Lease]
    due_in: int | None = None
    now: int = 0
    back_in_line: bool = False  # jobs came back into these lines, before others


def reserve(
    topics: tuple[str, ...],
    *,
    limit: int,
    token: int,
    session: int | None = None,
    ranges: Sequence[Range] = (),
    known_token: bool = False,
    given_back: Callable[[list[Answer["Settled"]]], None] | None = None,
) -> Operation[Reserved]:
    """Lease up to `limit` ready jobs, most urgent first.

    What is due in these topics is promoted and rescued before. No one else is given the jobs until
    their leases end. Repeated with the same token after a lost answer, it returns the same leases.
    """
    everywhere = msgspec.to_builtins([Range(topic) for topic in topics])
    regardless = msgspec.to_builtins([Range(topic, due_from=FOREVER) for topic in topics])
    marked = msgspec.to_builtins(list(ranges)) or everywhere

    def look(where: object, limit: int) -> Steps[list[Row]]:
        return _taken(topics, where, limit, token=token, session=session)

    def steps() -> Steps[Reserved]:
        where = marked
        while True:
            rows = yield from look(where, limit)
            if len(rows) < limit and where != everywhere:
                rows += yield from look(everywhere, limit - len(rows))
            if rows:
                reserved = yield from _leases(rows, back_in_line=where != marked)
                if reserved.leases:
                    return reserved
                continue  # none of them could be read
            [[due_at, now]] = yield sql["next_due"](topics=topics)
            if due_at is None or due_at > now:
                return Reserved([], None if due_at is None else due_at - now, now)
            where = everywhere  # what comes back into line may sort before the marks
            promoted = yield from promote(topics).start()
            rescued = yield from rescue(topics).start()
            if not promoted and not rescued:  # somebody else has it in hand: do not wait for them
                rows = yield from look(regardless, limit)
                return (yield from _leases(rows)) if rows else Reserved([], LOOK_AGAIN, now)

    def again() -> Steps[Reserved]:
        rows = yield sql["reserved_before"](token=token)
        return (yield from _leases(rows)) if rows else (yield from steps())

    return Operation(
        "reserve",
        again if known_token else steps,
        whole=True,
        restart=again,
        abandon=lambda reserved: give_back(reserved.leases, given_back),
    )


def _taken(
    topics: tuple[str, ...], ranges: object, limit: int, **holder: int | None
) -> Steps[list[Row]]:
    """Take the best of these lines: of one in one statement, of several by looking first."""
    if len(topics) == 1:
        return (yield sql["reserve"](topic=topics[0], ranges=ranges, limit=limit, **holder))
    rows: list[Row] = []
    tried: set[int] = set()  # what somebody else was quicker to take
    while len(rows) < limit:
        short = limit - len(rows)
        places = yield sql["candidates"](topics=topics, ranges=ranges, limit=short + len(tried))
        new = [place for place in places if place[2] not in tried]
        best = sorted(new, key=lambda place: (place[1], place[2]))[:short]
        if not best:
            break
        tried.update(place[2] for place in best)
        names = ("topic", "priority", "seq")
        rows += yield sql["take"]([dict(zip(names, p, strict=True)) for p in best], **holder)
    return sorted(rows, key=lambda row: (row[4], row[0]))


def _leases(rows: Sequence[Row], *, back_in_line: bool = False) -> Steps[Reserved]:
    """Read the rows of a reservation; a job that cannot be read is buried and spoils no other."""
    leases: list[Lease] = []
    unreadable: list[Outcome] = []
    for row in rows:
        try:
            leases.append(lease_from(row))
        except IncompatibleData as error:
            unreadable.append(
                Outcome(
                    seq=row[0],
                    epoch=row[12],
                    goal="buried",
                    retention=microseconds(known_options(None).retention),
                    kind="error",
                    error=str(error),
                )
            )
    if unreadable:
        yield from settle(unreadable).start()
    return Reserved(leases, now=rows[0][19], back_in_line=back_in_line)


def give_back(
    leases: Sequence[Lease], told: Callable[[list[Answer["Settled"]]], None] | None
) -> Operation[list[Answer["Settled"]]]:
    """Release leases that nobody has seen, uncounted."""
    outcomes = [_back(lease.job.seq, lease.epoch, lease.job.options) for lease in leases]
    return msgspec.structs.replace(settle(outcomes), told=told)


def promote(topics: Sequence[str]) -> Operation[list[str]]:
    """Make ready what is due, a batch from each topic; return the topics that gained a job."""

    def steps() -> Steps[list[str]]:
        rows = yield sql["promote"]([{"topic": t} for t in topics], limit=PROMOTE_AT_ONCE)
        return list(dict.fromkeys(row[1] for row in rows))

    return Operation("promote", steps, whole=True, wakes=lambda promoted: promoted)


# ---------------------------------------------------------------- with a lease


class Outcome(Struct, frozen=True, kw_only=True):
    """How a lease ends, other than by completion."""

    seq: int
    epoch: int
    goal: str  # ready, delayed, buried or gone
    delay: int = 0
    priority: int | None = None  # None keeps it
    retried: int = 0
    crashed: int = 0
    timed_out: int = 0
    released: int = 0
    retention: int  # microseconds that it is kept if it ends cancelled
    kind: str | None = None
    error: str | None = None
    traceback: str | None = None


class Completion(Struct, frozen=True, kw_only=True):
    """How a lease ends well."""

    seq: int
    epoch: int
    retention: int
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


@plural()
def complete(completions: Sequence[Completion]) -> Steps[list[Answer[Settled]]]:
    """Finish jobs. Said twice with the same lease, it holds once."""
    rows = yield sql["complete"](_items(completions))
    answers = {row[12]: Settled(row[0], row[1], State.COMPLETED) for row in rows}
    return (yield from _explained(completions, answers))


def topics_back(answers: Iterable[Answer[Settled]]) -> set[str]:
    """Name the topics that got a job back."""
    return {
        answer.topic
        for answer in answers
        if isinstance(answer, Settled) and answer.state in {State.READY, State.DELAYED}
    }


@plural(wakes=topics_back)
def settle(outcomes: Sequence[Outcome]) -> Steps[list[Answer[Settled]]]:
    """End leases as told; a job whose cancellation was requested ends cancelled instead."""
    rows = yield sql["settle"](_items(outcomes))
    answers = {
        row[13]: Settled(row[0], row[1], None if row[11] == "gone" else State(row[11]))
        for row in rows
    }
    return (yield from _explained(outcomes, answers))


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


def _said_before(outcome: Completion | Outcome, found: "Whereabouts") -> bool:
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


def _back(seq: int, epoch: int, options: Options, timed_out: int = 0) -> Outcome:
    retention = microseconds(options.retention)
    return Outcome(seq=seq, epoch=epoch, goal="ready", timed_out=timed_out, retention=retention)


def rescue(topics: Sequence[str]) -> Operation[list[Settled]]:
    """Take back leases past their end, each at the epoch that was read."""

    def steps() -> Steps[list[Settled]]:
        rows = yield sql["expired"]([{"topic": t} for t in topics], limit=RESCUE_AT_ONCE)
        if not rows:
            return []
        outcomes = [
            _back(seq, epoch, known_options(text), timed_out=1) for seq, epoch, text in rows
        ]
        answers = yield from settle(outcomes).start()
        return [answer for answer in answers if isinstance(answer, Settled)]

    return Operation("rescue", steps, whole=True, wakes=topics_back)
