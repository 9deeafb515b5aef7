"""The verbs of jobs."""

import contextlib
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import TYPE_CHECKING, Final, Unpack

from towpath.app import outcomes
from towpath.app.checks import (
    EnqueueOptions,
    Filters,
    JobRef,
    at_least_one,
    change_of,
    finished_of,
    history_of,
    job_id,
    page,
    past_minutes,
    peekable,
    plain,
    seconds,
    seq_of,
    worker_of,
)
from towpath.app.context import Words, say_of
from towpath.app.listing import MOST_LOOKED, Listing
from towpath.app.low_water import LowWater
from towpath.app.reservations import Reservations, ReserveRequest
from towpath.app.waiters import Waiters
from towpath.model.channels import stream_of
from towpath.model.event import Event, StreamEnd
from towpath.model.flows import FlowGraph, FlowSummary
from towpath.model.instants import Duration
from towpath.model.job import Failure, Job, Lease, LogLine, Said
from towpath.model.pages import JobBrief, Listed, Total
from towpath.model.reasons import Reason, Surroundings, reasons
from towpath.model.recent import RecentFailures, Took
from towpath.model.runs import Run
from towpath.model.states import State
from towpath.model.stats import History, Minute, Stats, TopicStats
from towpath.model.topics import all_checked, checked
from towpath.model.tries import Try
from towpath.operation import Operation, answered
from towpath.store import (
    admin,
    facts,
    graphs,
    job_output,
    listing,
    lookup,
    recent,
    retention,
    runs,
    streams,
    tries,
)
from towpath.store import leases as store
from towpath.store import stats as counts
from towpath.store.leases import Completion, Outcome
from towpath.store.rows import listed_from

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

PURGE_AT_ONCE: Final = 1_000
MOST_SHOWN: Final = 20  # failed jobs beside their groups
MOST_FLOWS: Final = 100  # of one page


class Jobs:
    """Everything that can be done with jobs."""

    def __init__(self, app: "App", room: Waiters, marks: LowWater) -> None:
        self._app = app
        self._room = room
        self._storing = app.storing
        self._reservations = Reservations(app, room, marks)
        self._listing = Listing(app)

    async def aenqueue(
        self,
        topic: str,
        payload: object = None,
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job:
        """Store a job; with a connection, in that connection's transaction."""
        with self._app.middleware.around_enqueue(topic, options) as carried:
            operation = self._storing.stored(topic, (payload,), carried)
            return answered((await self._app.arun(operation, connection))[0])

    async def aenqueue_many(
        self,
        topic: str,
        payloads: Iterable[object],
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[Job]:
        """Store a job for each payload: all of them or none."""
        with self._app.middleware.around_enqueue(topic, options) as carried:
            every = [*payloads]
            operation = self._storing.stored(topic, every, carried)
            answers = await self._app.arun(operation, connection) if every else []
            return [answered(answer) for answer in answers]

    async def aenqueue_all(self, calls: Iterable[tuple[str, object, EnqueueOptions]]) -> list[Job]:
        """Store a job for each topic, payload and options: all of them or none."""
        with contextlib.ExitStack() as around:
            operation = self._storing.all_of(calls, self._app.middleware, around)
            return [answered(answer) for answer in await self._app.arun(operation)]

    async def areserve(
        self,
        topics: str | Iterable[str],
        *,
        limit: int = 1,
        timeout: float | None = 0,
        session: int | None = None,
        token: int | None = None,
        most: Mapping[str, int] | None = None,
        worker: str | None = None,
        expires: bool = False,
    ) -> list[Lease]:
        """Lease up to `limit` jobs, most urgent first; wait up to `timeout` seconds for one.

        A timeout of None waits without a limit. Jobs that are ready at once are returned, even if
        fewer than `limit`. A repeated call with the same token returns the same leases. `most`
        bounds the leases of single topics. Jobs that choose their workers need a `worker` name. A
        lease with a session lives as long as the session; with `expires`, at most its ttr.
        """
        at_least_one(limit, "limit")
        named = None if worker is None else worker_of(worker)
        request = ReserveRequest(all_checked(topics), limit, session, token, most, named, expires)
        return await self._reservations.atake(request, seconds(timeout))

    async def acomplete(
        self, lease: Lease, result: object = None, *, connection: object = None
    ) -> None:
        """Finish a job; with a connection, in that connection's transaction."""
        operation = store.complete([self._completion(lease, result)])
        answered((await self._app.arun(operation, connection))[0])

    async def acomplete_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Finish jobs; return the leases that were lost."""
        answers = await self._app.arun(store.complete([self._completion(each) for each in leases]))
        return outcomes.lost(leases, answers)

    async def afail(
        self,
        lease: Lease,
        error: BaseException | str,
        delay: Duration | None = None,
        *,
        traceback: str | None = None,
    ) -> None:
        """Record that this try failed: the job backs off, or is buried if it was the last try.

        The traceback of an exception is stored with it.
        """
        await self._asettle(outcomes.failure(lease, error, delay, traceback))

    async def arelease(
        self, lease: Lease, delay: Duration = 0, priority: int | None = None
    ) -> None:
        """Give a job back; this does not count as a failure."""
        await self._asettle(outcomes.release(lease, delay, priority))

    async def abury(
        self,
        lease: Lease,
        priority: int | None = None,
        *,
        error: BaseException | str | None = None,
    ) -> None:
        """Put a job aside as failed, until it is kicked, requeued or deleted.

        With an error, this try counts as failed.
        """
        await self._asettle(outcomes.burial(lease, priority, error))

    async def atouch(self, lease: Lease) -> Lease:
        """Extend a lease to its ttr from now; return the new lease."""
        [answer] = await self._app.arun(store.touch([outcomes.touch(lease)]))
        return outcomes.touched(lease, answer)

    async def asay(self, lease: Lease, *, said: int, **words: Unpack[Words]) -> Said:
        """Add the output of a run to its job: progress, log lines, and words of its stream.

        `said` is the number of words that the run has sent before; what is stored already is not
        stored again. WordsMissing if words before these are not stored, LeaseLost if the lease has
        ended; then nothing is stored.
        """
        say = say_of(lease, said, words, self._app.settings.max_payload)
        return answered((await self._app.arun(streams.say([say])))[0])

    async def _asettle(self, outcome: Outcome) -> None:
        answered((await self._app.arun(store.settle([outcome])))[0])

    def _completion(self, lease: Lease, result: object = None) -> Completion:
        return outcomes.completion(lease, result, self._app.settings.max_result)

    async def aget(self, job: JobRef, *, connection: object = None) -> Job:
        """Read a job; with a connection, as that connection's transaction sees it."""
        return answered((await self._app.arun(lookup.get_all([job_id(job)]), connection))[0])

    async def anumbered(self, seq: int) -> Job:
        """Read the job with this number."""
        return await self._app.arun(lookup.numbered(seq_of(seq)))

    async def afind(self, job: JobRef) -> Job:
        """Read a job; one that only a newer version can read is returned as an UnreadableJob."""
        return await self._app.arun(lookup.get(job_id(job), listed_from))

    async def asurroundings(self, job: JobRef) -> Surroundings:
        """Read the lease of a job, and how many jobs it waited for or is awaited by."""
        return await self._app.arun(facts.surroundings((await self.afind(job)).seq))

    async def atries(self, job: JobRef) -> list[Try]:
        """Read the tries of a job, oldest first: at least the last hundred, and the running one."""
        return await self._app.arun(tries.list_tries((await self.afind(job)).seq))

    async def awhy(self, job: JobRef) -> list[Reason]:
        """Read why a job waits, runs, failed or is kept, and what can be done about it."""
        found = await self.afind(job)
        return reasons(
            found, await self._app.arun(facts.around(found, self._app.settings.dead_after))
        )

    async def aflow(self, job: JobRef) -> FlowGraph:
        """Read the jobs that wait for each other around a job, at most 500 of them."""
        seq = (await self.afind(job)).seq
        return await self._app.arun(graphs.flow(seq, self._app.settings.redact))

    async def aflows(
        self, *, before: int | None = None, limit: int = 20
    ) -> tuple[list[FlowSummary], int | None]:
        """Read a page of flows, newest first, and the `before` of the next page.

        A flow is named by its last job; of each flow up to 100 jobs are counted.
        """
        return await self._app.arun(_flows(self._app, before, limit))

    async def afailures(self, job: JobRef, *, connection: object = None) -> list[Failure]:
        """Read the failures among the last hundred tries of a job, oldest first."""
        return await self._app.arun(lookup.failures(job_id(job)), connection)

    async def aruns(self, job: JobRef) -> list[Run]:
        """Read the runs of a job that chooses its workers, in the order in which they began."""
        return await self._app.arun(runs.list_runs(job_id(job)))

    async def alogs(self, job: JobRef) -> list[LogLine]:
        """Read the log lines of a job, oldest first."""
        return await self._app.arun(job_output.lines(job_id(job)))

    async def apeek(self, topic: str, state: State | str = State.READY) -> Job | None:
        """Read the next ready, delayed or buried job of a topic, without taking it."""
        return await self._app.arun(lookup.peek(checked(topic), peekable(state)))

    async def astats(self, most: int | None = None) -> Stats:
        """Count every job; with `most`, up to so many of each state."""
        return await self._app.arun(counts.overall(counts.NO_BOUND if most is None else most))

    async def acount(self, **filters: Unpack[Filters]) -> Total:
        """Count the jobs of a topic and a status, up to 100,000 of each state."""
        return await self._app.arun(listing.count(plain(page(filters))))

    async def astats_topic(self, topic: str, most: int | None = None) -> TopicStats:
        """Count the jobs of one topic; with `most`, up to so many of each state."""
        bound = counts.NO_BOUND if most is None else most
        return (await self._app.arun(counts.by_topic(checked(topic), bound)))[0]

    async def astats_waiting(self) -> dict[str, int]:
        """Count the callers of this process that wait in `reserve`, by topic."""
        return self._room.waiting()

    async def athroughput(self, topic: str | None = None, minutes: int = 60) -> list[Minute]:
        """Count the outcomes of each of the last minutes, up to 32 days back.

        Those of more than two days ago are told by the hour.
        """
        return await self._app.arun(_throughput(topic, minutes))

    async def ahistory(
        self,
        topic: str | None = None,
        *,
        minutes: int = 60,
        step: int = 60,
        by_topic: bool = False,
    ) -> History:
        """Count the outcomes of each step of so many seconds, and what was ready at its end.

        Steps without any are there, too. Outcomes are known by the minute for 2 days, by the hour
        for 32 days, by the day for 400 days.
        """
        return await self._app.arun(history_of(topic, minutes, step, by_topic=by_topic))

    async def arecent_failures(
        self, topic: str | None = None, *, minutes: int = 60, without: Collection[str] = ()
    ) -> RecentFailures:
        """Group the failed jobs of the last minutes by their errors: the newest 2,000 of them.

        Of these, jobs of the topics `without` are left out.
        """
        asked = None if topic is None else checked(topic)
        minutes = at_least_one(minutes, "minutes")
        found = await self._app.arun(recent.failures(asked, minutes, without))
        newest = listing.briefs(found.numbers[:MOST_SHOWN], self._app.settings.redact)
        briefs = await self._app.arun(newest)
        return RecentFailures(groups=found.groups, items=briefs, looked_at=found.looked_at)

    async def atook(self, topic: str | None = None, limit: int = recent.MOST_TOOK) -> list[Took]:
        """Read how long the newest completed jobs took, up to 2,000, the newest first."""
        most = min(at_least_one(limit, "limit"), recent.MOST_TOOK)
        return await self._app.arun(recent.took(None if topic is None else checked(topic), most))

    async def arequeue(self, job: JobRef) -> Job:
        """Make a failed or cancelled job ready again; its retries and crashes restart at 0."""
        return await self._app.arun(admin.requeue(job_id(job)))

    async def acancel(self, job: JobRef) -> Job:
        """Cancel a job; a running one is asked to stop, and ends when its worker answers."""
        return await self._app.arun(admin.cancel(job_id(job)))

    async def adelete(self, job: JobRef | Lease) -> None:
        """Delete a job: with its lease, or without one if it is neither running nor completed."""
        if isinstance(job, Lease):
            await self._asettle(outcomes.discard(job))
        else:
            await self._app.arun(admin.delete(job_id(job)))

    async def akick(self, topic: str, limit: int = 1) -> int:
        """Make up to `limit` buried jobs ready, first buried first; if none is, delayed jobs."""
        return await self._app.arun(admin.kick(checked(topic), at_least_one(limit, "limit")))

    async def akick_job(self, job: JobRef) -> Job:
        """Make one buried or delayed job ready; its counters are kept."""
        return await self._app.arun(admin.kick_job(job_id(job)))

    async def areprioritise(self, job: JobRef, priority: int) -> Job:
        """Give a pending job another priority."""
        return await self._app.arun(admin.change(job_id(job), change_of(priority=priority)))

    async def areschedule(
        self,
        job: JobRef,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int | None = None,
    ) -> Job:
        """Change when a pending job runs; a delay of 0 means now."""
        change = change_of(delay=delay, run_at=run_at, priority=priority)
        return await self._app.arun(admin.change(job_id(job), change))

    async def apurge(self, topic: str) -> int:
        """Delete the pending and failed jobs of a topic; return their number."""
        total = 0
        while deleted := await self._app.arun(admin.purge(checked(topic), PURGE_AT_ONCE)):
            total += deleted
        return total

    async def aforget(self, job: JobRef) -> None:
        """Delete all that is known of a finished job, before its retention is over."""
        await self._app.arun(retention.forget(job_id(job)))

    async def aforget_all(
        self,
        *,
        topic: str | None = None,
        status: str | None = None,
        key: str | None = None,
        text: str | None = None,
        older_than: Duration = 0,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Forget the finished jobs of a topic, or of all; return their number.

        `status` is completed or cancelled; by default both. `text` is anywhere in the payload.
        `older_than` is the time since their end. `progress` is called with the number so far.
        """
        finished = finished_of(topic, status, older_than, key, text)
        total, after = 0, 0
        while True:
            page = await self._app.arun(retention.forget_page(finished, after))
            if page.upto is None:
                return total
            total, after = total + page.number, page.upto
            if progress:
                progress(total)

    async def alist(self, **filters: Unpack[Filters]) -> list[Job]:
        """Read a page of jobs, newest first; `before` continues after the last one of a page.

        It looks until the page is full. A job that only a newer version can read is returned as an
        UnreadableJob.
        """
        return await self._app.arun(listing.list_jobs(page(filters)))

    async def apage(
        self, *, most: int = MOST_LOOKED, counts: bool = False, **filters: Unpack[Filters]
    ) -> Listed[Job]:
        """Read a page of jobs, and where the list goes on.

        It looks at `most` jobs at most, so the page may be short while `next` is not None. With
        `counts`, it tells how many jobs there are in all.
        """
        return await self._listing.apage(page(filters), at_least_one(most, "most"), counts=counts)

    async def abriefs(
        self, *, most: int = MOST_LOOKED, counts: bool = False, **filters: Unpack[Filters]
    ) -> Listed[JobBrief]:
        """Read a page as `page` does, without payloads; a preview shows their beginnings."""
        return await self._listing.abriefs(page(filters), at_least_one(most, "most"), counts=counts)

    def stream(
        self, job: JobRef, after: str | None = None, *, timeout: Duration | None = None
    ) -> Iterator[Event | StreamEnd]:
        """Iterate over what the runs of a job say, as it comes; the last item says how it ended.

        It begins behind the cursor `after`. Text has the type "text". Where another try begins to
        speak, an event of the type "towpath.try" says so: drop what came after its `since`. It
        stops early if nothing came for `timeout`. CursorReset if the job was requeued.
        """
        return self._app.events.pieces(stream_of(job_id(job)), after, timeout)

    def astream(
        self, job: JobRef, after: str | None = None, *, timeout: Duration | None = None
    ) -> AsyncIterator[Event | StreamEnd]:
        """Iterate over what the runs of a job say, in an event loop; see `stream`."""
        return self._app.events.apieces(stream_of(job_id(job)), after, timeout)

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def enqueue(
        self,
        topic: str,
        payload: object = None,
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job:
        """Store a job; with a connection, in that connection's transaction."""
        with self._app.middleware.around_enqueue(topic, options) as carried:
            operation = self._storing.stored(topic, (payload,), carried)
            return answered(self._app.run(operation, connection)[0])

    def enqueue_many(
        self,
        topic: str,
        payloads: Iterable[object],
        *,
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[Job]:
        """Store a job for each payload: all of them or none."""
        with self._app.middleware.around_enqueue(topic, options) as carried:
            every = [*payloads]
            operation = self._storing.stored(topic, every, carried)
            answers = self._app.run(operation, connection) if every else []
            return [answered(answer) for answer in answers]

    def enqueue_all(self, calls: Iterable[tuple[str, object, EnqueueOptions]]) -> list[Job]:
        """Store a job for each topic, payload and options: all of them or none."""
        with contextlib.ExitStack() as around:
            operation = self._storing.all_of(calls, self._app.middleware, around)
            return [answered(answer) for answer in self._app.run(operation)]

    def reserve(
        self,
        topics: str | Iterable[str],
        *,
        limit: int = 1,
        timeout: float | None = 0,
        session: int | None = None,
        token: int | None = None,
        most: Mapping[str, int] | None = None,
        worker: str | None = None,
        expires: bool = False,
    ) -> list[Lease]:
        """Lease up to `limit` jobs, most urgent first; wait up to `timeout` seconds for one.

        A timeout of None waits without a limit. Jobs that are ready at once are returned, even if
        fewer than `limit`. A repeated call with the same token returns the same leases. `most`
        bounds the leases of single topics. Jobs that choose their workers need a `worker` name. A
        lease with a session lives as long as the session; with `expires`, at most its ttr.
        """
        at_least_one(limit, "limit")
        named = None if worker is None else worker_of(worker)
        request = ReserveRequest(all_checked(topics), limit, session, token, most, named, expires)
        return self._reservations.take(request, seconds(timeout))

    def complete(self, lease: Lease, result: object = None, *, connection: object = None) -> None:
        """Finish a job; with a connection, in that connection's transaction."""
        operation = store.complete([self._completion(lease, result)])
        answered(self._app.run(operation, connection)[0])

    def complete_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Finish jobs; return the leases that were lost."""
        answers = self._app.run(store.complete([self._completion(each) for each in leases]))
        return outcomes.lost(leases, answers)

    def fail(
        self,
        lease: Lease,
        error: BaseException | str,
        delay: Duration | None = None,
        *,
        traceback: str | None = None,
    ) -> None:
        """Record that this try failed: the job backs off, or is buried if it was the last try.

        The traceback of an exception is stored with it.
        """
        self._settle(outcomes.failure(lease, error, delay, traceback))

    def release(self, lease: Lease, delay: Duration = 0, priority: int | None = None) -> None:
        """Give a job back; this does not count as a failure."""
        self._settle(outcomes.release(lease, delay, priority))

    def bury(
        self, lease: Lease, priority: int | None = None, *, error: BaseException | str | None = None
    ) -> None:
        """Put a job aside as failed, until it is kicked, requeued or deleted.

        With an error, this try counts as failed.
        """
        self._settle(outcomes.burial(lease, priority, error))

    def touch(self, lease: Lease) -> Lease:
        """Extend a lease to its ttr from now; return the new lease."""
        [answer] = self._app.run(store.touch([outcomes.touch(lease)]))
        return outcomes.touched(lease, answer)

    def say(self, lease: Lease, *, said: int, **words: Unpack[Words]) -> Said:
        """Add the output of a run to its job: progress, log lines, and words of its stream.

        `said` is the number of words that the run has sent before; what is stored already is not
        stored again. WordsMissing if words before these are not stored, LeaseLost if the lease has
        ended; then nothing is stored.
        """
        say = say_of(lease, said, words, self._app.settings.max_payload)
        return answered(self._app.run(streams.say([say]))[0])

    def _settle(self, outcome: Outcome) -> None:
        answered(self._app.run(store.settle([outcome]))[0])

    def get(self, job: JobRef, *, connection: object = None) -> Job:
        """Read a job; with a connection, as that connection's transaction sees it."""
        return answered(self._app.run(lookup.get_all([job_id(job)]), connection)[0])

    def numbered(self, seq: int) -> Job:
        """Read the job with this number."""
        return self._app.run(lookup.numbered(seq_of(seq)))

    def find(self, job: JobRef) -> Job:
        """Read a job; one that only a newer version can read is returned as an UnreadableJob."""
        return self._app.run(lookup.get(job_id(job), listed_from))

    def surroundings(self, job: JobRef) -> Surroundings:
        """Read the lease of a job, and how many jobs it waited for or is awaited by."""
        return self._app.run(facts.surroundings(self.find(job).seq))

    def tries(self, job: JobRef) -> list[Try]:
        """Read the tries of a job, oldest first: at least the last hundred, and the running one."""
        return self._app.run(tries.list_tries(self.find(job).seq))

    def why(self, job: JobRef) -> list[Reason]:
        """Read why a job waits, runs, failed or is kept, and what can be done about it."""
        found = self.find(job)
        return reasons(found, self._app.run(facts.around(found, self._app.settings.dead_after)))

    def flow(self, job: JobRef) -> FlowGraph:
        """Read the jobs that wait for each other around a job, at most 500 of them."""
        seq = self.find(job).seq
        return self._app.run(graphs.flow(seq, self._app.settings.redact))

    def flows(
        self, *, before: int | None = None, limit: int = 20
    ) -> tuple[list[FlowSummary], int | None]:
        """Read a page of flows, newest first, and the `before` of the next page.

        A flow is named by its last job; of each flow up to 100 jobs are counted.
        """
        return self._app.run(_flows(self._app, before, limit))

    def failures(self, job: JobRef, *, connection: object = None) -> list[Failure]:
        """Read the failures among the last hundred tries of a job, oldest first."""
        return self._app.run(lookup.failures(job_id(job)), connection)

    def runs(self, job: JobRef) -> list[Run]:
        """Read the runs of a job that chooses its workers, in the order in which they began."""
        return self._app.run(runs.list_runs(job_id(job)))

    def logs(self, job: JobRef) -> list[LogLine]:
        """Read the log lines of a job, oldest first."""
        return self._app.run(job_output.lines(job_id(job)))

    def peek(self, topic: str, state: State | str = State.READY) -> Job | None:
        """Read the next ready, delayed or buried job of a topic, without taking it."""
        return self._app.run(lookup.peek(checked(topic), peekable(state)))

    def stats(self, most: int | None = None) -> Stats:
        """Count every job; with `most`, up to so many of each state."""
        return self._app.run(counts.overall(counts.NO_BOUND if most is None else most))

    def count(self, **filters: Unpack[Filters]) -> Total:
        """Count the jobs of a topic and a status, up to 100,000 of each state."""
        return self._app.run(listing.count(plain(page(filters))))

    def stats_topic(self, topic: str, most: int | None = None) -> TopicStats:
        """Count the jobs of one topic; with `most`, up to so many of each state."""
        bound = counts.NO_BOUND if most is None else most
        return self._app.run(counts.by_topic(checked(topic), bound))[0]

    def stats_waiting(self) -> dict[str, int]:
        """Count the callers of this process that wait in `reserve`, by topic."""
        return self._room.waiting()

    def throughput(self, topic: str | None = None, minutes: int = 60) -> list[Minute]:
        """Count the outcomes of each of the last minutes, up to 32 days back.

        Those of more than two days ago are told by the hour.
        """
        return self._app.run(_throughput(topic, minutes))

    def history(
        self, topic: str | None = None, *, minutes: int = 60, step: int = 60, by_topic: bool = False
    ) -> History:
        """Count the outcomes of each step of so many seconds, and what was ready at its end.

        Steps without any are there, too. Outcomes are known by the minute for 2 days, by the hour
        for 32 days, by the day for 400 days.
        """
        return self._app.run(history_of(topic, minutes, step, by_topic=by_topic))

    def recent_failures(
        self, topic: str | None = None, *, minutes: int = 60, without: Collection[str] = ()
    ) -> RecentFailures:
        """Group the failed jobs of the last minutes by their errors: the newest 2,000 of them.

        Of these, jobs of the topics `without` are left out.
        """
        asked = None if topic is None else checked(topic)
        minutes = at_least_one(minutes, "minutes")
        found = self._app.run(recent.failures(asked, minutes, without))
        newest = listing.briefs(found.numbers[:MOST_SHOWN], self._app.settings.redact)
        briefs = self._app.run(newest)
        return RecentFailures(groups=found.groups, items=briefs, looked_at=found.looked_at)

    def took(self, topic: str | None = None, limit: int = recent.MOST_TOOK) -> list[Took]:
        """Read how long the newest completed jobs took, up to 2,000, the newest first."""
        most = min(at_least_one(limit, "limit"), recent.MOST_TOOK)
        return self._app.run(recent.took(None if topic is None else checked(topic), most))

    def requeue(self, job: JobRef) -> Job:
        """Make a failed or cancelled job ready again; its retries and crashes restart at 0."""
        return self._app.run(admin.requeue(job_id(job)))

    def cancel(self, job: JobRef) -> Job:
        """Cancel a job; a running one is asked to stop, and ends when its worker answers."""
        return self._app.run(admin.cancel(job_id(job)))

    def delete(self, job: JobRef | Lease) -> None:
        """Delete a job: with its lease, or without one if it is neither running nor completed."""
        if isinstance(job, Lease):
            self._settle(outcomes.discard(job))
        else:
            self._app.run(admin.delete(job_id(job)))

    def kick(self, topic: str, limit: int = 1) -> int:
        """Make up to `limit` buried jobs ready, first buried first; if none is, delayed jobs."""
        return self._app.run(admin.kick(checked(topic), at_least_one(limit, "limit")))

    def kick_job(self, job: JobRef) -> Job:
        """Make one buried or delayed job ready; its counters are kept."""
        return self._app.run(admin.kick_job(job_id(job)))

    def reprioritise(self, job: JobRef, priority: int) -> Job:
        """Give a pending job another priority."""
        return self._app.run(admin.change(job_id(job), change_of(priority=priority)))

    def reschedule(
        self,
        job: JobRef,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int | None = None,
    ) -> Job:
        """Change when a pending job runs; a delay of 0 means now."""
        change = change_of(delay=delay, run_at=run_at, priority=priority)
        return self._app.run(admin.change(job_id(job), change))

    def purge(self, topic: str) -> int:
        """Delete the pending and failed jobs of a topic; return their number."""
        total = 0
        while deleted := self._app.run(admin.purge(checked(topic), PURGE_AT_ONCE)):
            total += deleted
        return total

    def forget(self, job: JobRef) -> None:
        """Delete all that is known of a finished job, before its retention is over."""
        self._app.run(retention.forget(job_id(job)))

    def forget_all(
        self,
        *,
        topic: str | None = None,
        status: str | None = None,
        key: str | None = None,
        text: str | None = None,
        older_than: Duration = 0,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Forget the finished jobs of a topic, or of all; return their number.

        `status` is completed or cancelled; by default both. `text` is anywhere in the payload.
        `older_than` is the time since their end. `progress` is called with the number so far.
        """
        finished = finished_of(topic, status, older_than, key, text)
        total, after = (0, 0)
        while True:
            page = self._app.run(retention.forget_page(finished, after))
            if page.upto is None:
                return total
            total, after = (total + page.number, page.upto)
            if progress:
                progress(total)

    def list(self, **filters: Unpack[Filters]) -> list[Job]:
        """Read a page of jobs, newest first; `before` continues after the last one of a page.

        It looks until the page is full. A job that only a newer version can read is returned as an
        UnreadableJob.
        """
        return self._app.run(listing.list_jobs(page(filters)))

    def page(
        self, *, most: int = MOST_LOOKED, counts: bool = False, **filters: Unpack[Filters]
    ) -> Listed[Job]:
        """Read a page of jobs, and where the list goes on.

        It looks at `most` jobs at most, so the page may be short while `next` is not None. With
        `counts`, it tells how many jobs there are in all.
        """
        return self._listing.page(page(filters), at_least_one(most, "most"), counts=counts)

    def briefs(
        self, *, most: int = MOST_LOOKED, counts: bool = False, **filters: Unpack[Filters]
    ) -> Listed[JobBrief]:
        """Read a page as `page` does, without payloads; a preview shows their beginnings."""
        return self._listing.briefs(page(filters), at_least_one(most, "most"), counts=counts)


def _flows(
    app: "App", before: int | None, limit: int
) -> Operation[tuple[list[FlowSummary], int | None]]:
    at_least_one(limit, "limit")
    return graphs.flows(before, min(limit, MOST_FLOWS), app.settings.redact)


def _throughput(topic: str | None, minutes: int) -> Operation[list[Minute]]:
    return counts.throughput(None if topic is None else checked(topic), past_minutes(minutes))
