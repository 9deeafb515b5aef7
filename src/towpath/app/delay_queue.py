"""Delay queues: beanstalkd's verbs, on one topic (`Queue`) and over all topics (`Queues`)."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack
from uuid import UUID

from towpath.app import outcomes
from towpath.app.checks import JobRef, seq_of
from towpath.app.sessions import new_number
from towpath.app.waiters import Waiters
from towpath.errors import NotFound, ReserveTimeout
from towpath.model.delay_queue import JobAt, QueueCounts
from towpath.model.instants import Duration, microseconds
from towpath.model.job import Job, Lease
from towpath.model.states import State
from towpath.model.stats import TopicStats
from towpath.model.topics import all_checked, checked
from towpath.operation import Answer, Operation, answered
from towpath.store import delay_queue
from towpath.store import leases as store
from towpath.store.delay_queue import Pick
from towpath.store.leases import Settled, Touch
from towpath.store.reserving import promote, rescue

if TYPE_CHECKING:
    from towpath.app.app import App


class PutOptions(TypedDict, total=False):
    """The options of `put`."""

    id: UUID  # makes a repeated put harmless
    priority: int  # 0 is the most urgent; default 50
    delay: Duration  # the time from now until the job may be reserved
    ttr: Duration  # how long a lease lives; default 60 s
    key: str  # if an unfinished job of the topic has this key, that job is returned instead


class Queue:
    """One topic, with beanstalkd's verbs."""

    def __init__(self, app: "App", topic: str, room: Waiters) -> None:
        self._app = app
        self._room = room
        self.topic = checked(topic)

    async def aput(
        self, payload: object, *, connection: object = None, **options: Unpack[PutOptions]
    ) -> Job:
        """Add a job; bytes stay bytes."""
        return await self._app.jobs.aenqueue(
            self.topic, payload, connection=connection, **self._with_ttr(options)
        )

    async def areserve(
        self,
        timeout: float | None = None,
        topics: Iterable[str] | None = None,
    ) -> "Reservation":
        """Take the most urgent ready job of this topic, or of `topics`.

        Waits up to `timeout` seconds (None: without a limit), then raises ReserveTimeout.
        """
        leases = await self._app.jobs.areserve(topics or [self.topic], timeout=timeout)
        return self._reservation(leases, timeout)

    async def akick(self, limit: int = 1) -> int:
        """Make buried jobs ready, in the order they were buried; if none is, delayed jobs."""
        return await self._app.jobs.akick(self.topic, limit)

    async def akick_job(self, job: JobRef) -> Job:
        """Make one buried or delayed job ready."""
        return await self._app.jobs.akick_job(job)

    async def adelete(self, job: JobRef) -> None:
        """Delete a job that is not reserved."""
        await self._app.jobs.adelete(job)

    async def apeek(self, job: JobRef) -> Job:
        """Read a job."""
        return await self._app.jobs.aget(job)

    async def apeek_ready(self) -> Job:
        """Read the next ready job."""
        return self._required(await self._app.jobs.apeek(self.topic, State.READY), State.READY)

    async def apeek_delayed(self) -> Job:
        """Read the delayed job that is due first."""
        return self._required(await self._app.jobs.apeek(self.topic, State.DELAYED), State.DELAYED)

    async def apeek_buried(self) -> Job:
        """Read the job that was buried first."""
        return self._required(await self._app.jobs.apeek(self.topic, State.BURIED), State.BURIED)

    async def astats(self) -> TopicStats:
        """Count the jobs of this topic."""
        return await self._app.jobs.astats_topic(self.topic)

    async def astats_job(self, job: JobRef) -> Job:
        """Read a job with its counters."""
        return await self._app.jobs.aget(job)

    async def astats_waiting(self) -> int:
        """Count the callers of this process that wait for this topic."""
        return self._room.waiting().get(self.topic, 0)

    def _with_ttr(self, options: PutOptions) -> PutOptions:
        return {"ttr": self._app.settings.queue_ttr, **options}

    def _reservation(self, leases: list[Lease], timeout: float | None) -> "Reservation":
        if not leases:
            msg = f"no job became ready within {timeout} s"
            raise ReserveTimeout(msg)
        return Reservation(self._app, leases[0])

    def _required(self, job: Job | None, state: State) -> Job:
        if job is None:
            msg = f"topic {self.topic!r} has no {state} job"
            raise NotFound(msg)
        return job

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def put(
        self, payload: object, *, connection: object = None, **options: Unpack[PutOptions]
    ) -> Job:
        """Add a job; bytes stay bytes."""
        return self._app.jobs.enqueue(
            self.topic, payload, connection=connection, **self._with_ttr(options)
        )

    def reserve(
        self, timeout: float | None = None, topics: Iterable[str] | None = None
    ) -> "Reservation":
        """Take the most urgent ready job of this topic, or of `topics`.

        Waits up to `timeout` seconds (None: without a limit), then raises ReserveTimeout.
        """
        leases = self._app.jobs.reserve(topics or [self.topic], timeout=timeout)
        return self._reservation(leases, timeout)

    def kick(self, limit: int = 1) -> int:
        """Make buried jobs ready, in the order they were buried; if none is, delayed jobs."""
        return self._app.jobs.kick(self.topic, limit)

    def kick_job(self, job: JobRef) -> Job:
        """Make one buried or delayed job ready."""
        return self._app.jobs.kick_job(job)

    def delete(self, job: JobRef) -> None:
        """Delete a job that is not reserved."""
        self._app.jobs.delete(job)

    def peek(self, job: JobRef) -> Job:
        """Read a job."""
        return self._app.jobs.get(job)

    def peek_ready(self) -> Job:
        """Read the next ready job."""
        return self._required(self._app.jobs.peek(self.topic, State.READY), State.READY)

    def peek_delayed(self) -> Job:
        """Read the delayed job that is due first."""
        return self._required(self._app.jobs.peek(self.topic, State.DELAYED), State.DELAYED)

    def peek_buried(self) -> Job:
        """Read the job that was buried first."""
        return self._required(self._app.jobs.peek(self.topic, State.BURIED), State.BURIED)

    def stats(self) -> TopicStats:
        """Count the jobs of this topic."""
        return self._app.jobs.stats_topic(self.topic)

    def stats_job(self, job: JobRef) -> Job:
        """Read a job with its counters."""
        return self._app.jobs.get(job)

    def stats_waiting(self) -> int:
        """Count the callers of this process that wait for this topic."""
        return self._room.waiting().get(self.topic, 0)


class Reservation:
    """A reserved job and the verbs that need its lease."""

    def __init__(self, app: "App", lease: Lease) -> None:
        self._app = app
        self.lease = lease

    @property
    def job(self) -> Job:
        """The job, as it was when it was reserved."""
        return self.lease.job

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self.lease.job.id

    @property
    def payload(self) -> object:
        """The job's data."""
        return self.lease.job.payload

    async def adelete(self) -> None:
        """Finish and delete it; no record is kept."""
        await self._app.jobs.adelete(self.lease)

    async def arelease(self, delay: Duration = 0, priority: int | None = None) -> None:
        """Give it back; this does not count as a failure."""
        await self._app.jobs.arelease(self.lease, delay, priority)

    async def abury(self, priority: int | None = None) -> None:
        """Put it aside until it is kicked."""
        await self._app.jobs.abury(self.lease, priority)

    async def atouch(self) -> None:
        """Extend the lease, within the limits of the settings."""
        answered((await self._app.arun(self._touching()))[0])

    def _touching(self) -> Operation[list[Answer[tuple[int | None, bool]]]]:
        settings = self._app.settings
        return store.touch(
            [
                Touch(
                    seq=self.lease.job.seq,
                    epoch=self.lease.epoch,
                    ttr=microseconds(self.lease.job.ttr),
                    max_touches=settings.max_touches or None,
                    min_interval=microseconds(settings.min_touch_interval),
                    max_duration=microseconds(settings.max_touch_duration) or None,
                )
            ]
        )

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def delete(self) -> None:
        """Finish and delete it; no record is kept."""
        self._app.jobs.delete(self.lease)

    def release(self, delay: Duration = 0, priority: int | None = None) -> None:
        """Give it back; this does not count as a failure."""
        self._app.jobs.release(self.lease, delay, priority)

    def bury(self, priority: int | None = None) -> None:
        """Put it aside until it is kicked."""
        self._app.jobs.bury(self.lease, priority)

    def touch(self) -> None:
        """Extend the lease, within the limits of the settings."""
        answered(self._app.run(self._touching())[0])


class Queues:
    """Verbs that a delay-queue server needs besides those of jobs."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def acounts(self, topic: str | None = None) -> list[QueueCounts]:
        """Count the unfinished jobs of each topic, or of one; a due job counts as ready."""
        return await self._app.arun(_counts(topic))

    async def alook(self, seq: int) -> JobAt | None:
        """Read the job with this number and the clock; None if there is no such job."""
        return await self._app.arun(delay_queue.look(seq_of(seq)))

    async def acome_due(self, topics: str | Iterable[str]) -> None:
        """Make due jobs of these topics ready; `reserve` does this itself."""
        names = all_checked(topics)
        for come_due in (promote(names), rescue(names)):
            while await self._app.arun(come_due):
                pass

    async def apick(self, seq: int, session: int | None = None) -> Lease:
        """Lease the ready, delayed or buried job with this number for its ttr."""
        return answered((await self._app.arun(_pick(seq, session)))[0])

    async def adelete_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Finish and delete jobs, without a record; return the leases that were lost."""
        answers = await self._app.arun(_discard(leases))
        return outcomes.lost(leases, answers)

    async def agive_back(self, leases: Sequence[Lease]) -> None:
        """Make jobs ready again as if they had not been reserved; skip the leases that are lost."""
        await self._app.arun(_give_back(leases))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def counts(self, topic: str | None = None) -> list[QueueCounts]:
        """Count the unfinished jobs of each topic, or of one; a due job counts as ready."""
        return self._app.run(_counts(topic))

    def look(self, seq: int) -> JobAt | None:
        """Read the job with this number and the clock; None if there is no such job."""
        return self._app.run(delay_queue.look(seq_of(seq)))

    def come_due(self, topics: str | Iterable[str]) -> None:
        """Make due jobs of these topics ready; `reserve` does this itself."""
        names = all_checked(topics)
        for come_due in (promote(names), rescue(names)):
            while self._app.run(come_due):
                pass

    def pick(self, seq: int, session: int | None = None) -> Lease:
        """Lease the ready, delayed or buried job with this number for its ttr."""
        return answered(self._app.run(_pick(seq, session))[0])

    def delete_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Finish and delete jobs, without a record; return the leases that were lost."""
        answers = self._app.run(_discard(leases))
        return outcomes.lost(leases, answers)

    def give_back(self, leases: Sequence[Lease]) -> None:
        """Make jobs ready again as if they had not been reserved; skip the leases that are lost."""
        self._app.run(_give_back(leases))


def _counts(topic: str | None) -> Operation[list[QueueCounts]]:
    return delay_queue.counts(None if topic is None else checked(topic))


def _pick(seq: int, session: int | None) -> Operation[list[Answer[Lease]]]:
    return delay_queue.pick([Pick(seq_of(seq), new_number(), session)])


def _discard(leases: Sequence[Lease]) -> Operation[list[Answer[Settled]]]:
    return store.settle([outcomes.discard(lease) for lease in leases])


def _give_back(leases: Sequence[Lease]) -> Operation[list[Answer[Settled]]]:
    return store.settle([outcomes.return_unseen(lease) for lease in leases])
