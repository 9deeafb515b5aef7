"""New jobs: checked against what stands already, and stored with their tickets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct

from towpath.errors import Conflict, JobExists, MaxJobsReached, MaxTopicsReached
from towpath.model.instants import as_datetime, as_timedelta, instant
from towpath.model.job import Job, Options
from towpath.model.payload import same
from towpath.model.states import State, Status
from towpath.operation import (
    Answer,
    Batch,
    Changed,
    Operation,
    Steps,
    answered,
    is_posted,
    plural,
)
from towpath.statement import Statement, Statements, no_rows, pairs, rows
from towpath.store import lifecycle
from towpath.store.lifecycle import ALL, JobEvent
from towpath.store.rows import Located, job_from, stored_options, uuid_from, was_begun

TRIES: Final = 5  # to store a job while others use its key
UNFINISHED: Final = frozenset({Status.PENDING, Status.PROCESSING})

_DEFAULTS: Final = Options()
_DELAYED: Final = State.DELAYED  # looked up once: an enum is slow at that
_READY: Final = State.READY


class StoredJob(NamedTuple):
    """A job that a statement has stored."""

    seq: int
    created_at: int
    run_at: int
    id: UUID | bytes | str | None  # None: all of the items are stored, in their order


class sql(Statements):
    """The statements of jobs.sql."""

    enqueue_one = rows(StoredJob)
    enqueue = rows(StoredJob)
    enqueue_keyed = rows(StoredJob)
    standing = pairs("nth", Located)  # the job that kept an item from being stored
    let_go = no_rows()
    clock = rows(int)
    free_stale_keys = no_rows()
    lock_topics = no_rows()
    count_topics = rows(int)
    topic_exists = rows(int)
    count_unfinished = rows(int)


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

    @property
    def is_plain(self) -> bool:
        """Whether it is to be ready at once, and claims no key."""
        return self.key is None and self.run_at is None and not self.delay

    def as_item(self, nth: int) -> dict[str, Any]:
        """Return the parameters of its statement."""
        return {
            "nth": nth,
            "id": self.id,
            "topic": self.topic,
            "priority": self.priority,
            "key": self.key,
            "limit_key": self.options.limit.key if self.options.limit else None,
            "payload": self.body,
            "encoding": self.encoding,
            "ttr": self.ttr,
            "options": stored_options(self.options),
            "run_at": self.run_at,
            "delay": self.delay,
        }


Enqueue: TypeAlias = Callable[[Sequence[NewJob]], Operation[list[Answer[Job]]]]
"""What stores jobs, within the limits of the settings."""


def _job_of(new: NewJob, stored: StoredJob) -> Job:
    created_at = as_datetime(stored.created_at)
    return Job(
        stored.seq,
        new.id,
        new.topic,
        _DELAYED if stored.run_at > stored.created_at else _READY,
        new.priority,
        new.key,
        new.body,
        new.encoding,
        as_timedelta(new.ttr),
        new.options,
        created_at,
        created_at if stored.run_at == stored.created_at else as_datetime(stored.run_at),
    )


def added(answers: list[Answer[Job]]) -> Changed[list[Answer[Job]]]:
    """Return the answers of an operation that only adds jobs."""
    topics = {answer.topic for answer in answers if isinstance(answer, Job)}
    return Changed(answers, topics, appends=True)


def are_keyed(new: Iterable[NewJob]) -> bool:
    """Say whether any of these jobs has a key, and so claims it."""
    return any(job.key is not None for job in new)


@plural()
def enqueue(new: Sequence[NewJob]) -> Steps[Changed[list[Answer[Job]]]]:
    """Store jobs without keys, in order.

    A job whose id is stored already with the same content is not stored again: the standing job is
    the answer.
    """
    return added((yield from _enqueued(new)))


@plural(locks=lambda _: True)
def enqueue_keyed(new: Sequence[NewJob]) -> Steps[Changed[list[Answer[Job]]]]:
    """Store jobs with keys, in order; an unfinished job that holds a key is the answer for it.

    Each statement commits alone: an operation that waits for a key holds no other.
    """
    return added((yield from _enqueued(new)))


def _enqueued(new: Sequence[NewJob]) -> Steps[list[Answer[Job]]]:
    posts = yield from is_posted(ALL)
    made: list[int] = []
    answers = yield from _stored(new, made)
    if posts:
        yield from lifecycle.post_jobs([JobEvent("enqueued", seq, 0) for seq in made])
    return answers


def _stored(new: Sequence[NewJob], made: list[int]) -> Steps[list[Answer[Job]]]:
    """Store jobs, and add the numbers of those that did not stand already to `made`."""
    if len(new) == 1 and new[0].is_plain:  # the short way, for it is the usual one
        stored = yield from sql.enqueue_one(**new[0].as_item(0))
        if stored:
            made.append(stored[0].seq)
            return [_job_of(new[0], stored[0])]
    answers: dict[int, Answer[Job]] = {}
    for _ in range(TRIES):
        left = [job.as_item(nth) for nth, job in enumerate(new) if nth not in answers]
        for statement, items in _statements(left):
            stored = yield from statement(items)
            made += [job.seq for job in stored]
            if len(stored) == len(items):  # numbers are given out in order
                for item, job in zip(items, stored, strict=True):
                    nth: int = item["nth"]
                    answers[nth] = _job_of(new[nth], job)
            else:
                yield from _add_standing(new, items, stored, answers)
        if len(answers) == len(new):
            return [answers[nth] for nth in range(len(new))]
    lost = Conflict("an id or a key changed hands again and again; try again")
    return [answers.get(nth, lost) for nth in range(len(new))]


def _statements(
    items: list[dict[str, Any]],
) -> Iterator[tuple[Statement[StoredJob], list[dict[str, Any]]]]:
    """Return what stores these items: those with a key have to claim it."""
    keyed = [item for item in items if item["key"] is not None]
    if not keyed:
        yield sql.enqueue, items
        return
    yield sql.enqueue_keyed, keyed
    if len(keyed) < len(items):
        yield sql.enqueue, [item for item in items if item["key"] is None]


def _add_standing(
    new: Sequence[NewJob],
    items: Sequence[Mapping[str, Any]],
    stored: Sequence[StoredJob],
    answers: dict[int, Answer[Job]],
) -> Steps[None]:
    """Answer for each with what was stored, or with what stands in its place."""
    # Of two with the same id in one batch, the first is stored and the other finds it standing.
    places: dict[UUID, int] = {item["id"]: item["nth"] for item in reversed(items)}
    for each in stored:
        if each.id is not None:
            place = places[uuid_from(each.id)]
            answers[place] = _job_of(new[place], each)
    refused = [item for item in items if item["nth"] not in answers]
    for nth, found in (yield from sql.standing(refused)):
        job = job_from(found)
        if job.id != new[nth].id and (yield from _is_too_late(job)):
            yield sql.let_go(
                topic=job.topic, priority=job.priority, seq=job.seq, key=job.key, id=job.id
            )
        elif job.id == new[nth].id or job.status in UNFINISHED:
            answers[nth] = _standing(new[nth], job)
    # The holder of a key may have finished between the two looks: then the key is free.
    lost = [item for item in refused if item["nth"] not in answers]
    if lost:
        yield sql.free_stale_keys(lost)


def _is_too_late(job: Job) -> Steps[bool]:
    if job.expires_at is None:
        return False
    return is_too_late(job, (yield from clock()))


def clock() -> Steps[int]:
    """Read the database's clock, in microseconds since 1970."""
    [now] = yield from sql.clock()
    return now


def is_too_late(job: Job, now: int) -> bool:
    """Say whether a job waits that can never begin."""
    waits = job.status is Status.PENDING and not was_begun(job, job.epoch)
    return waits and job.expires_at is not None and instant(job.expires_at) <= now


def stored_before(new: Sequence[NewJob]) -> Steps[set[int]]:
    """Find the places of those that are stored already; refuse one with other content."""
    places: set[int] = set()
    items = [job.as_item(nth) for nth, job in enumerate(new)]
    for nth, found in (yield from sql.standing(items)):
        if uuid_from(found.id) == new[nth].id:
            answered(_standing(new[nth], job_from(found)))
            places.add(nth)
    return places


def enqueue_all(
    new: Sequence[NewJob], *, batch_size: int, batch_bytes: int
) -> Operation[list[Answer[Job]]]:
    """Store many jobs in one transaction, some in each statement."""
    keyed = are_keyed(new)
    every = list(_parts(new, batch_size, batch_bytes)) if len(new) > 1 else [new]
    if len(every) == 1 and not keyed:
        return enqueue(new)
    if len(every) == 1 and all(job.key is not None for job in new):
        return enqueue_keyed(new)

    def steps() -> Steps[Changed[list[Answer[Job]]]]:
        answers: list[Answer[Job]] = []
        for part in every:
            answers += yield from _enqueued(part)
        return added(answers)

    return Operation("enqueue_all", steps, locks=keyed, batch=Batch(new))


def _parts(new: Sequence[NewJob], most: int, most_bytes: int) -> Iterator[Sequence[NewJob]]:
    start = size = 0
    for nth, job in enumerate(new):
        size += len(job.body)
        if nth > start and (nth - start == most or size > most_bytes):
            yield new[start:nth]
            start, size = nth, len(job.body)
    yield new[start:]


MakeRoom: TypeAlias = Callable[[str, int], Steps[bool]]
"""What ends jobs of a full topic that can never begin, looking at so many; says if it ended any."""


def enqueue_within(
    new: Sequence[NewJob], *, max_topics: int, max_jobs: int, make_room: MakeRoom
) -> Operation[list[Answer[Job]]]:
    """Store jobs unless one would break a limit; that is checked before anything is stored."""

    def steps() -> Steps[Changed[list[Answer[Job]]]]:
        yield sql.lock_topics()
        # A job that is stored already, as an answer was lost, does not count again.
        items = [job.as_item(nth) for nth, job in enumerate(new)]
        standing: set[int] = set()
        for nth, found in (yield from sql.standing(items)):
            job = job_from(found)
            if job.id == new[nth].id or not (yield from _is_too_late(job)):
                standing.add(nth)
        counts = Counter(job.topic for nth, job in enumerate(new) if nth not in standing)
        for opened, (topic, count) in enumerate(counts.items()):
            if max_topics and not (yield from sql.topic_exists(topic=topic)):
                [topics] = yield from sql.count_topics()
                if topics + opened >= max_topics:
                    msg = (
                        f"there are {topics} topics; {topic!r} would be one more than {max_topics}"
                    )
                    raise MaxTopicsReached(msg)
            if max_jobs:
                jobs = yield from _counted(topic, max_jobs)
                if jobs + count > max_jobs and (yield from make_room(topic, max_jobs)):
                    jobs = yield from _counted(topic, max_jobs)
                if jobs + count > max_jobs:
                    msg = f"topic {topic!r} holds {jobs} jobs; {max_jobs} are allowed"
                    raise MaxJobsReached(msg)
        return added((yield from _enqueued(new)))

    # It locks all topics.
    return Operation("enqueue_within", steps, locks=True)


def _counted(topic: str, most: int) -> Steps[int]:
    """Count the jobs of a topic that have not finished, up to the number that matters."""
    [jobs] = yield from sql.count_unfinished(topic=topic, most=most)
    return jobs


def _standing(new: NewJob, job: Job) -> Answer[Job]:
    if job.id != new.id:
        return job  # another job holds the key
    is_same = (job.topic, job.key) == (new.topic, new.key) and same(
        job.body, job.encoding, new.body, new.encoding
    )
    return job if is_same else JobExists(f"job {new.id} is stored already with other content")
