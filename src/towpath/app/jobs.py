"""The verbs of jobs."""

import time
import traceback
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack
from uuid import UUID

import msgspec

from towpath.app.marks import Marks
from towpath.app.sessions import new_number
from towpath.app.waiting import TaskWaiter, ThreadWaiter, WaitingRoom
from towpath.errors import Invalid
from towpath.model import payload as payloads
from towpath.model.backoff import Backoff
from towpath.model.ids import uuid7
from towpath.model.instants import Duration, as_datetime, instant, microseconds
from towpath.model.job import Failure, Job, Lease, Options
from towpath.model.states import State, Status
from towpath.model.topics import all_checked, checked
from towpath.operation import Answer, Operation, answered
from towpath.settings import Settings
from towpath.store import jobs as store
from towpath.store import lookup, tickets
from towpath.store import stats as counts
from towpath.store.jobs import Completion, NewJob, Outcome, Reserved, Touch
from towpath.store.stats import Minute, Stats, TopicStats

if TYPE_CHECKING:
    from towpath.app.app import App

PRIORITY: Final = 50
MOST_PRIORITY: Final = 2**32 - 1
MOST_ERROR: Final = 20_000  # characters of an error message or traceback that are kept
MOST_KEY: Final = 255
MOST_PAGE: Final = 1_000
PURGE_AT_ONCE: Final = 1_000
FOREVER: Final = 10.0**9

JobRef = Job | UUID | str


class EnqueueOptions(TypedDict, total=False):
    """How a job is enqueued, apart from its topic and payload."""

    id: UUID  # makes a repeated enqueue harmless
    priority: int  # 0 is the most urgent; 50 unless told
    delay: Duration
    run_at: datetime  # instead of a delay
    ttr: Duration  # how long a lease without a session lives
    key: str  # unique among the unfinished jobs of the topic
    max_retries: int
    max_crashes: int
    timeout: Duration
    retention: Duration
    backoff: Backoff


class Jobs:
    """Everything that can be done with jobs."""

    def __init__(self, app: "App", room: WaitingRoom, marks: Marks) -> None:
        self._app = app
        self._room = room
        self._marks = marks

    # ------------------------------------------------------------ in

    def enqueue(
        self,
        topic: str,
        payload: object = None,
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job:
        """Store a job. With a connection it shares the fate of that transaction."""
        new = [new_job(topic, payload, options, self._app.settings)]
        return answered(self._app.run(self._stored(new), connection)[0])

    async def aenqueue(
        self,
        topic: str,
        payload: object = None,
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job:
        """Store a job. With a connection it shares the fate of that transaction."""
        new = [new_job(topic, payload, options, self._app.settings)]
        return answered((await self._app.arun(self._stored(new), connection))[0])

    def enqueue_many(
        self,
        topic: str,
        payloads: Iterable[object],
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[Job]:
        """Store a job for each payload: all of them or none."""
        new = [new_job(topic, each, options, self._app.settings) for each in payloads]
        return [*map(answered, self._app.run(self._stored(new), connection))] if new else []

    async def aenqueue_many(
        self,
        topic: str,
        payloads: Iterable[object],
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[Job]:
        """Store a job for each payload: all of them or none."""
        new = [new_job(topic, each, options, self._app.settings) for each in payloads]
        return [*map(answered, await self._app.arun(self._stored(new), connection))] if new else []

    def _stored(self, new: list[NewJob]) -> Operation[list[Answer[Job]]]:
        settings = self._app.settings
        if settings.max_topics or settings.max_jobs_per_topic:
            return store.enqueue_within(
                new, max_topics=settings.max_topics, max_jobs=settings.max_jobs_per_topic
            )
        return store.enqueue_all(
            new, batch_size=settings.batch_size, batch_bytes=settings.batch_bytes
        )

    # ------------------------------------------------------------ out

    def reserve(
        self,
        topics: str | Iterable[str],
        *,
        limit: int = 1,
        timeout: float | None = 0,
        session: int | None = None,
        token: int | None = None,
    ) -> list[Lease]:
        """Lease up to `limit` jobs, most urgent first; wait up to `timeout` seconds for the first.

        None waits for ever. Repeated with the same token, it returns the same leases.
        """
        wanted = all_checked(topics)
        _at_least_one(limit, "limit")
        reserved = self._noted(
            wanted, limit, self._app.run(self._reservation(wanted, limit, session, token))
        )
        if reserved.leases or timeout == 0:
            return reserved.leases
        return self._wait(wanted, limit, _seconds(timeout), session)

    async def areserve(
        self,
        topics: str | Iterable[str],
        *,
        limit: int = 1,
        timeout: float | None = 0,  # noqa: ASYNC109 - the blocking twin has it too
        session: int | None = None,
        token: int | None = None,
    ) -> list[Lease]:
        """Lease up to `limit` jobs, most urgent first; wait up to `timeout` seconds for the first."""
        wanted = all_checked(topics)
        _at_least_one(limit, "limit")
        reserved = self._noted(
            wanted, limit, await self._app.arun(self._reservation(wanted, limit, session, token))
        )
        if reserved.leases or timeout == 0:
            return reserved.leases
        return await self._await(wanted, limit, _seconds(timeout), session)

    def _wait(
        self, topics: tuple[str, ...], limit: int, timeout: float, session: int | None
    ) -> list[Lease]:
        deadline = time.monotonic() + timeout
        waiter = ThreadWaiter(topics)
        self._room.enter(waiter)
        try:
            # Look after getting in line, so that nothing slips in between.
            while True:
                reserved = self._app.run(self._reservation(topics, limit, session))
                if self._noted(topics, limit, reserved).leases:
                    break
                self._wait_until(topics, reserved)
                if not waiter.wait(deadline - time.monotonic()):
                    return []
        finally:
            self._room.leave(waiter)
        self._room.ring_here(topics)
        return reserved.leases

    async def _await(
        self, topics: tuple[str, ...], limit: int, timeout: float, session: int | None  # noqa: ASYNC109 - as above
    ) -> list[Lease]:
        deadline = time.monotonic() + timeout
        waiter = TaskWaiter(topics)
        self._room.enter(waiter)
        try:
            while True:
                reserved = await self._app.arun(self._reservation(topics, limit, session))
                if self._noted(topics, limit, reserved).leases:
                    break
                self._wait_until(topics, reserved)
                if not await waiter.wait(deadline - time.monotonic()):
                    return []
        finally:
            self._room.leave(waiter)
        self._room.ring_here(topics)
        return reserved.leases

    def _reservation(
        self, topics: tuple[str, ...], limit: int, session: int | None, token: int | None = None
    ) -> Operation[Reserved]:
        return store.reserve(
            topics,
            limit=limit,
            session=session,
            token=new_number() if token is None else token,
            known_token=token is not None,
            ranges=self._marks.ranges(topics),
        )

    def _noted(self, topics: tuple[str, ...], limit: int, reserved: Reserved) -> Reserved:
        self._marks.note(topics, limit, reserved)
        return reserved

    def _wait_until(self, topics: tuple[str, ...], reserved: Reserved) -> None:
        self._room.due(topics, None if reserved.due_in is None else reserved.due_in / 1e6)

    # ------------------------------------------------------------ with a lease

    def complete(self, lease: Lease, result: object = None, *, connection: object = None) -> None:
        """Finish a job. With a connection it shares the fate of that transaction."""
        operation = store.complete([self._completion(lease, result)])
        answered(self._app.run(operation, connection)[0])

    async def acomplete(
        self, lease: Lease, result: object = None, *, connection: object = None
    ) -> None:
        """Finish a job. With a connection it shares the fate of that transaction."""
        operation = store.complete([self._completion(lease, result)])
        answered((await self._app.arun(operation, connection))[0])

    def complete_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Finish jobs; return the leases that were lost."""
        answers = self._app.run(store.complete([self._completion(each) for each in leases]))
        return _lost(leases, answers)

    async def acomplete_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Finish jobs; return the leases that were lost."""
        answers = await self._app.arun(store.complete([self._completion(each) for each in leases]))
        return _lost(leases, answers)

    def fail(self, lease: Lease, error: BaseException | str, delay: Duration | None = None) -> None:
        """Say that this try failed: the job backs off, or is buried if it was the last."""
        self._settle(_failure(lease, error, delay))

    async def afail(
        self, lease: Lease, error: BaseException | str, delay: Duration | None = None
    ) -> None:
        """Say that this try failed: the job backs off, or is buried if it was the last."""
        await self._asettle(_failure(lease, error, delay))

    def release(self, lease: Lease, delay: Duration = 0, priority: int | None = None) -> None:
        """Give a job back, uncounted."""
        self._settle(_release(lease, delay, priority))

    async def arelease(self, lease: Lease, delay: Duration = 0, priority: int | None = None) -> None:
        """Give a job back, uncounted."""
        await self._asettle(_release(lease, delay, priority))

    def bury(self, lease: Lease, priority: int | None = None) -> None:
        """Put a job aside as failed, until somebody kicks, requeues or deletes it."""
        self._settle(_burial(lease, priority))

    async def abury(self, lease: Lease, priority: int | None = None) -> None:
        """Put a job aside as failed, until somebody kicks, requeues or deletes it."""
        await self._asettle(_burial(lease, priority))

    def touch(self, lease: Lease) -> Lease:
        """Extend a lease by its ttr, from now; return it as it is then."""
        [answer] = self._app.run(store.touch([_touch(lease)]))
        return _touched(lease, answer)

    async def atouch(self, lease: Lease) -> Lease:
        """Extend a lease by its ttr, from now; return it as it is then."""
        [answer] = await self._app.arun(store.touch([_touch(lease)]))
        return _touched(lease, answer)

    def _settle(self, outcome: Outcome) -> None:
        answered(self._app.run(store.settle([outcome]))[0])

    async def _asettle(self, outcome: Outcome) -> None:
        answered((await self._app.arun(store.settle([outcome])))[0])

    def _completion(self, lease: Lease, result: object = None) -> Completion:
        most = self._app.settings.max_result
        return Completion(
            seq=lease.job.seq,
            epoch=lease.epoch,
            retention=microseconds(lease.job.options.retention),
            result=None if result is None else payloads.encode_json(result, most),
        )

    # ------------------------------------------------------------ looking

    def get(self, job: JobRef) -> Job:
        """Read a job."""
        return self._app.run(lookup.get(job_id(job)))

    async def aget(self, job: JobRef) -> Job:
        """Read a job."""
        return await self._app.arun(lookup.get(job_id(job)))

    def list(
        self,
        *,
        topic: str | None = None,
        status: Status | str | None = None,
        key: str | None = None,
        text: str | None = None,
        before: Job | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[Job]:
        """Read a page of jobs, newest first; `before` continues after the last one of a page."""
        return self._app.run(_page(topic, status, key, text, before, limit, offset))

    async def alist(
        self,
        *,
        topic: str | None = None,
        status: Status | str | None = None,
        key: str | None = None,
        text: str | None = None,
        before: Job | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> "list[Job]":
        """Read a page of jobs, newest first; `before` continues after the last one of a page."""
        return await self._app.arun(_page(topic, status, key, text, before, limit, offset))

    def failures(self, job: JobRef) -> "list[Failure]":
        """Read the failed tries of a job, oldest first."""
        return self._app.run(lookup.failures(job_id(job)))

    async def afailures(self, job: JobRef) -> "list[Failure]":
        """Read the failed tries of a job, oldest first."""
        return await self._app.arun(lookup.failures(job_id(job)))

    def peek(self, topic: str, state: State | str = State.READY) -> Job | None:
        """Read the next ready, delayed or buried job of a topic, without taking it."""
        return self._app.run(lookup.peek(checked(topic), _peekable(state)))

    async def apeek(self, topic: str, state: State | str = State.READY) -> Job | None:
        """Read the next ready, delayed or buried job of a topic, without taking it."""
        return await self._app.arun(lookup.peek(checked(topic), _peekable(state)))

    def stats(self) -> Stats:
        """Count every job."""
        return self._app.run(counts.overall())

    async def astats(self) -> Stats:
        """Count every job."""
        return await self._app.arun(counts.overall())

    def stats_topic(self, topic: str) -> TopicStats:
        """Count the jobs of one topic."""
        return self._app.run(counts.by_topic(checked(topic)))[0]

    async def astats_topic(self, topic: str) -> TopicStats:
        """Count the jobs of one topic."""
        return (await self._app.arun(counts.by_topic(checked(topic))))[0]

    def stats_waiting(self) -> dict[str, int]:
        """Count the callers of this process that wait in `reserve`, by topic."""
        return self._room.waiting()

    async def astats_waiting(self) -> dict[str, int]:
        """Count the callers of this process that wait in `reserve`, by topic."""
        return self._room.waiting()

    def throughput(self, topic: str | None = None, minutes: int = 60) -> "list[Minute]":
        """Count the outcomes of each of the last minutes."""
        return self._app.run(counts.throughput(topic, minutes))

    async def athroughput(self, topic: str | None = None, minutes: int = 60) -> "list[Minute]":
        """Count the outcomes of each of the last minutes."""
        return await self._app.arun(counts.throughput(topic, minutes))

    # ------------------------------------------------------------ without a lease

    def requeue(self, job: JobRef) -> Job:
        """Make a failed or cancelled job ready again, with retries and crashes back to 0."""
        return self._app.run(tickets.requeue(job_id(job)))

    async def arequeue(self, job: JobRef) -> Job:
        """Make a failed or cancelled job ready again, with retries and crashes back to 0."""
        return await self._app.arun(tickets.requeue(job_id(job)))

    def cancel(self, job: JobRef) -> Job:
        """Stop a job; a running one is asked to stop, and ends when its holder answers."""
        return self._app.run(tickets.cancel(job_id(job)))

    async def acancel(self, job: JobRef) -> Job:
        """Stop a job; a running one is asked to stop, and ends when its holder answers."""
        return await self._app.arun(tickets.cancel(job_id(job)))

    def delete(self, job: JobRef | Lease) -> None:
        """Forget a job: with its lease, done and gone; else only if pending, failed or cancelled."""
        if isinstance(job, Lease):
            self._settle(_discard(job))
        else:
            self._app.run(tickets.delete(job_id(job)))

    async def adelete(self, job: JobRef | Lease) -> None:
        """Forget a job: with its lease, done and gone; else only if pending, failed or cancelled."""
        if isinstance(job, Lease):
            await self._asettle(_discard(job))
        else:
            await self._app.arun(tickets.delete(job_id(job)))

    def kick(self, topic: str, limit: int = 1) -> int:
        """Make up to `limit` buried jobs ready, in bury order; if none is buried, delayed ones."""
        return self._app.run(tickets.kick(checked(topic), _at_least_one(limit, "limit")))

    async def akick(self, topic: str, limit: int = 1) -> int:
        """Make up to `limit` buried jobs ready, in bury order; if none is buried, delayed ones."""
        return await self._app.arun(tickets.kick(checked(topic), _at_least_one(limit, "limit")))

    def kick_job(self, job: JobRef) -> Job:
        """Make one buried or delayed job ready, counters kept."""
        return self._app.run(tickets.kick_job(job_id(job)))

    async def akick_job(self, job: JobRef) -> Job:
        """Make one buried or delayed job ready, counters kept."""
        return await self._app.arun(tickets.kick_job(job_id(job)))

    def reprioritise(self, job: JobRef, priority: int) -> Job:
        """Give a pending job another priority."""
        return self._app.run(tickets.reprioritise(job_id(job), _priority(priority)))

    async def areprioritise(self, job: JobRef, priority: int) -> Job:
        """Give a pending job another priority."""
        return await self._app.arun(tickets.reprioritise(job_id(job), _priority(priority)))

    def purge(self, topic: str) -> int:
        """Forget the pending and failed jobs of a topic; return how many there were."""
        total = 0
        while gone := self._app.run(tickets.purge(checked(topic), PURGE_AT_ONCE)):
            total += gone
        return total

    async def apurge(self, topic: str) -> int:
        """Forget the pending and failed jobs of a topic; return how many there were."""
        total = 0
        while gone := await self._app.arun(tickets.purge(checked(topic), PURGE_AT_ONCE)):
            total += gone
        return total


# ---------------------------------------------------------------- what callers may say


def new_job(topic: str, payload: object, given: EnqueueOptions, settings: Settings) -> NewJob:
    """Check what a caller wants to store, before anything is stored."""
    unknown = given.keys() - EnqueueOptions.__optional_keys__
    if unknown:
        msg = f"unknown options: {', '.join(sorted(unknown))}"
        raise Invalid(msg)
    if "delay" in given and "run_at" in given:
        msg = "give a delay or run_at, not both"
        raise Invalid(msg)
    body, encoding = payloads.encode(payload, settings.max_payload)
    return NewJob(
        id=_uuid(given["id"]) if "id" in given else uuid7(),
        topic=checked(topic),
        body=body,
        encoding=encoding,
        priority=_priority(given.get("priority", PRIORITY)),
        ttr=max(1, microseconds(given.get("ttr", settings.ttr), "ttr")),
        delay=microseconds(given.get("delay", 0), "delay"),
        run_at=instant(given["run_at"]) if "run_at" in given else None,
        key=_key(given["key"]) if given.get("key") is not None else None,
        options=_options(given, settings),
    )


def job_id(job: JobRef) -> UUID:
    """Return the id of a job, however it is named."""
    return job.id if isinstance(job, Job) else _uuid(job)


def _options(given: EnqueueOptions, settings: Settings) -> Options:
    return Options(
        max_retries=_count(given.get("max_retries", settings.max_retries), "max_retries"),
        max_crashes=_count(given.get("max_crashes", settings.max_crashes), "max_crashes"),
        timeout=microseconds(given.get("timeout", 600.0), "timeout") / 1e6,
        retention=microseconds(given.get("retention", settings.retention), "retention") / 1e6,
        backoff=given.get("backoff", _BACKOFF),
    )


_BACKOFF: Final = Backoff()


def _uuid(text: UUID | str) -> UUID:
    if isinstance(text, UUID):
        return text
    try:
        return UUID(text)
    except (ValueError, AttributeError, TypeError) as error:
        msg = f"{text!r} is not the id of a job"
        raise Invalid(msg) from error


def _priority(priority: Any) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool):
        msg = f"priority {priority!r} is not a whole number"
        raise Invalid(msg)
    if not 0 <= priority <= MOST_PRIORITY:
        msg = f"priority {priority} is not between 0 and {MOST_PRIORITY}"
        raise Invalid(msg)
    return priority


def _key(key: Any) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= MOST_KEY or payloads.clean_text(key, MOST_KEY) != key:
        msg = f"key {key!r} is not text of 1 to {MOST_KEY} characters without NUL"
        raise Invalid(msg)
    return key


def _count(number: Any, name: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
        msg = f"{name} {number!r} is not a whole number from 0"
        raise Invalid(msg)
    return number


def _at_least_one(number: int, name: str) -> int:
    if _count(number, name) < 1:
        msg = f"{name} is at least 1"
        raise Invalid(msg)
    return number


def _seconds(timeout: float | None) -> float:
    return FOREVER if timeout is None else microseconds(timeout, "timeout") / 1e6


def _peekable(state: State | str) -> State:
    if state not in {State.READY, State.DELAYED, State.BURIED}:
        msg = f"peek looks at ready, delayed or buried jobs, not {state!r}"
        raise Invalid(msg)
    return State(state)


def _page(
    topic: str | None,
    status: Status | str | None,
    key: str | None,
    text: str | None,
    before: Job | None,
    limit: int,
    offset: int,
) -> Operation[list[Job]]:
    if status is not None and status not in set(Status):
        msg = f"{status!r} is not a status: use {', '.join(Status)}"
        raise Invalid(msg)
    return lookup.list_jobs(
        topic=None if topic is None else checked(topic),
        status=None if status is None else Status(status),
        key=key,
        text=None if text is None else payloads.clean_text(text, MOST_KEY),
        before=None if before is None else before.seq,
        limit=min(_at_least_one(limit, "limit"), MOST_PAGE),
        offset=_count(offset, "offset"),
    )


# ---------------------------------------------------------------- how a lease ends


def _failure(lease: Lease, error: BaseException | str, delay: Duration | None) -> Outcome:
    options, failures = lease.job.options, lease.job.retries + 1
    last = failures >= options.max_retries
    wait = options.backoff.seconds(failures) if delay is None else delay
    return Outcome(
        seq=lease.job.seq,
        epoch=lease.epoch,
        goal="buried" if last else "delayed",
        delay=microseconds(wait, "delay"),
        retried=1,
        retention=microseconds(options.retention),
        kind="error",
        error=payloads.clean_text(_message(error), MOST_ERROR),
        traceback=_traceback(error),
    )


def _message(error: BaseException | str) -> str:
    return error if isinstance(error, str) else f"{type(error).__name__}: {error}"


def _traceback(error: BaseException | str) -> str | None:
    if isinstance(error, str) or error.__traceback__ is None:
        return None
    return payloads.clean_text("".join(traceback.format_exception(error)), MOST_ERROR)


def _release(lease: Lease, delay: Duration, priority: int | None) -> Outcome:
    wait = microseconds(delay, "delay")
    return Outcome(
        seq=lease.job.seq,
        epoch=lease.epoch,
        goal="delayed" if wait else "ready",
        delay=wait,
        priority=None if priority is None else _priority(priority),
        released=1,
        retention=microseconds(lease.job.options.retention),
    )


def _burial(lease: Lease, priority: int | None) -> Outcome:
    return Outcome(
        seq=lease.job.seq,
        epoch=lease.epoch,
        goal="buried",
        priority=None if priority is None else _priority(priority),
        retention=microseconds(lease.job.options.retention),
    )


def _discard(lease: Lease) -> Outcome:
    return Outcome(seq=lease.job.seq, epoch=lease.epoch, goal="gone")


def _touch(lease: Lease) -> Touch:
    return Touch(seq=lease.job.seq, epoch=lease.epoch, ttr=microseconds(lease.job.ttr))


def _touched(lease: Lease, answer: Answer[tuple[int | None, bool]]) -> Lease:
    until, cancelled = answered(answer)
    end = None if until is None else as_datetime(until)
    job = msgspec.structs.replace(lease.job, until=end, cancel_requested=cancelled)
    return msgspec.structs.replace(lease, job=job, until=end)


def _lost(leases: Sequence[Lease], answers: Sequence[Answer[Any]]) -> list[Lease]:
    return [
        lease
        for lease, answer in zip(leases, answers, strict=True)
        if isinstance(answer, Exception)
    ]
