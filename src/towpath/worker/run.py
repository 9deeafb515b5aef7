"""One run of one job: from its lease to its outcome."""

import asyncio
import contextvars
import functools
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable
from concurrent import futures
from typing import Any, Final, TypeVar

from towpath.app import outcomes
from towpath.app.app import App
from towpath.app.context import Bury, Cancel, Context, Notes, Retry
from towpath.app.speech import Speech
from towpath.app.tasks import Task
from towpath.errors import (
    DatabaseError,
    InvalidArguments,
    LeaseLost,
    TimeLimitExceeded,
    TowpathError,
)
from towpath.model.arguments import encode_result
from towpath.model.backoff import DEFAULT
from towpath.model.instants import Duration, microseconds
from towpath.model.job import Failure, FailureKind, Job, Lease
from towpath.model.payload import Encoding
from towpath.store import leases
from towpath.store.event_rows import EventBody
from towpath.store.job_output import Note
from towpath.store.leases import Completion, Outcome
from towpath.worker.sandbox import Sandboxes
from towpath.worker.threads import Ended as Returned
from towpath.worker.threads import Threads

log: Final = logging.getLogger("towpath")

FIRST_PUT_OFF: Final = 5.0  # seconds until a job that the worker cannot run is ready again, doubled
LAST_PUT_OFF: Final = 60.0
FLUSH_LIMIT: Final = 10.0  # seconds to write what a sandboxed job has said before a transaction
PUT_OFF_AT_MOST: Final = 3_600.0  # seconds from the first time to the last

T = TypeVar("T")
Ended = Completion | Outcome


class TaskRun:
    """A running job."""

    def __init__(
        self,
        app: App,
        lease: Lease,
        threads: Threads,
        on_news: Callable[[Notes | Speech], object],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.lease = lease
        self.context = Context(app, lease, on_news)
        if self.context.speech is not None:
            self.context.speech.on_cancel = self.cancel
        self.thread: asyncio.Future[Returned] | None = None  # may still run after the job has ended
        self._app = app
        self._threads = threads
        self._loop = loop  # asking for it is a system call on Python 3.11
        self._doing: asyncio.Task[Any] | None = None
        self._forced: Ended | None = None  # the outcome if the run is interrupted
        self._cancels = 0
        self._unexpected = False  # the last try failed, and the task did not ask to be buried

    def cancel(self) -> None:
        """Interrupt the run, as its job was cancelled. A second call does not disturb cleanup."""
        if self.context.completion:
            return  # the lease has ended with the task's own transaction
        self.context.cancel()
        if self._forced is None:
            self._interrupt(outcomes.cancellation(self.lease))

    def give_up(self) -> None:
        """Interrupt the run and give its job back, as the worker ends."""
        self._interrupt(outcomes.return_unseen(self.lease))

    def _interrupt(self, outcome: Ended) -> None:
        self._forced = self._forced or outcome
        if self._doing:
            self._doing.cancel()
            self._cancels += 1

    async def end(self, task: Task[Any] | None, sandboxes: Sandboxes) -> Ended:
        """Run the task; return the outcome of the job. None: this worker has no such task."""
        if task is None:
            name = self.lease.job.task_name
            topic = self.lease.job.topic
            which = f"no task {name!r} here"
            if name is None:
                which = f"several tasks and the job names none; give one of them alias={topic!r}"
            return await self._put_off(f"UnknownTask: topic {topic!r} has {which}")
        self._doing = asyncio.current_task(self._loop)
        runs = self.lease.job.options.runs
        every = runs.ping_interval if runs else None
        pinging = None if every is None else asyncio.create_task(self._ping(every))
        try:
            return await self._tried(task, sandboxes)
        except asyncio.CancelledError:
            if self.context.completion:
                return self.context.completion
            if self._forced is None:
                return outcomes.failure(self.lease, "the task was cancelled", None)
            return self._forced
        finally:
            if pinging:
                pinging.cancel()
            if self.context.speech is not None:
                self.context.speech.end()  # what still runs in a thread may say no more
            for _ in range(self._cancels):  # they were for this run; the slot runs other jobs
                if self._doing:
                    self._doing.uncancel()
            self._doing = None

    async def _tried(self, task: Task[Any], sandboxes: Sandboxes) -> Ended:
        """Run the task; retry an unexpected failure of a job that chooses its workers."""
        runs = self.lease.job.options.runs
        left = runs.max_unexpected_retries if runs else 0
        while True:
            self._unexpected = False
            if task.sandbox:
                ended = await self._sandboxed(task, sandboxes)
            else:
                ended = await self.here(task, self.lease.job.options.timeout)
            if not runs or not left or not self._unexpected:
                return ended
            left -= 1
            await asyncio.sleep(runs.unexpected_retry_delay)

    async def _ping(self, every: float | None) -> None:
        """Ping for a run with a `ping_interval`, until it has ended."""
        job = self.lease.job
        while every:
            await asyncio.sleep(every)
            try:
                every = await self._app.arun(
                    leases.ping(job.seq, self.lease.epoch, microseconds(job.ttr))
                )
            except LeaseLost:
                self.cancel()
                return
            except DatabaseError as error:
                log.warning("the ping for the run of job %s failed: %s", job.id, error)

    async def here(self, task: Task[Any], limit: float | None) -> Ended:
        """Run in this process, for at most `limit` seconds."""
        try:
            if self._app.middleware.is_around_run:
                async with self._app.middleware.around_run(self.context):
                    result = await self._timed(self._called(task), limit)
            else:
                result = await self._timed(self._called(task), limit)
            kept = result if task.keep_result else None
            if self.context.completion:
                return self._completed(self.context.completion, kept)
            text = encode_result(kept, self._app.settings.max_result)
        except GeneratorExit:
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_stopped():
                raise
            return await self._failed(task, _as_exception(error))
        return outcomes.completion_of(self.lease, text)

    def _completed(self, completion: Completion, returned: object) -> Completion:
        """Return what the task's own transaction has committed; written again, it holds once."""
        if returned is not None and completion.result is None:
            log.warning(
                "job %s is completed without a result: its task returned one after "
                "`ctx.transaction`; set `result` of the block instead",
                self.lease.job.id,
            )
        return completion

    async def _sandboxed(self, task: Task[Any], sandboxes: Sandboxes) -> Ended:
        """Run in a separate process, which is killed if it does not end in time."""
        try:
            async with sandboxes.one_for(task) as sandbox:
                running = sandbox.run(self.lease, self._hear, self._hear_word, self._flush)
                ended = await self._timed(running, self.lease.job.options.timeout)
        except Exception as error:  # noqa: BLE001 - any error is a failure of the job
            return await self._failed(task, error)
        self._unexpected = isinstance(ended, Outcome) and ended.error is not None
        return ended

    def _hear(self, note: Note) -> None:
        """Add the output of a sandboxed job to its notes."""
        notes = self.context.notes
        if notes is not None:
            try:
                notes.add(note.kind, note.text, note.share)
            except LeaseLost:
                self.cancel()  # its outcome would be refused

    async def _hear_word(self, word: EventBody) -> None:
        """Add a word of a sandboxed job to its stream; the sandbox waits if there is no room."""
        speech = self.context.speech
        if speech is not None:
            await speech.room()
            try:
                speech.hear(word)
            except LeaseLost:
                self.cancel()  # its outcome would be refused

    async def _flush(self) -> int | None:
        """Wait until the words of a sandboxed job are written; return how many, None: not all."""
        speech = self.context.speech
        return 0 if speech is None else await speech.flushed(FLUSH_LIMIT)

    async def _failed(self, task: Task[Any], error: Exception) -> Ended:
        """Return the outcome of a job whose task has raised; call `on_failure` if it failed."""
        if self.context.completion:
            log.error(
                "job %s is completed, but its task raised after `ctx.transaction`",
                self.lease.job.id,
                exc_info=error,
            )
            return self.context.completion
        if self._forced is not None:
            return self._forced  # an error after an interrupt is not a failure
        if isinstance(error, Cancel):
            return outcomes.cancellation(self.lease)
        cause = error
        if isinstance(error, Retry | Bury) and isinstance(error.__cause__, Exception):
            cause = error.__cause__
        if isinstance(error, Undecodable):
            return await self._put_off(f"InvalidArguments: {error}")
        self._unexpected = not isinstance(error, Bury)
        may_retry = isinstance(error, Retry) or task.may_retry(cause)
        if isinstance(error, Bury) or not may_retry:
            outcome = outcomes.final_failure(self.lease, cause)
        else:
            after = error.after if isinstance(error, Retry) else None
            wait = self._wait(task, cause) if after is None else after
            outcome = outcomes.failure(self.lease, cause, wait)
        if task.on_failure:
            await self._on_failure(task, cause, final=outcome.goal == "buried")
        return outcome

    async def _put_off(self, reason: str) -> Ended:
        """Give back a job that this worker cannot run; bury it if that lasts for an hour.

        During a deploy some workers are older or newer than the code that enqueues.
        """
        job = self.lease.job
        if leases.is_run(job.options):
            return outcomes.final_failure(self.lease, reason)  # another worker may take the job
        try:
            before = await self._app.jobs.afailures(job)
        except TowpathError as error:
            log.warning("the failures of job %s cannot be read: %s", job.id, error)
            before = []
        streak = list(itertools.takewhile(_is_unknown, reversed(before)))
        now = job.reserved_at
        if streak and now and (now - streak[-1].failed_at).total_seconds() >= PUT_OFF_AT_MOST:
            return outcomes.final_failure(self.lease, reason)
        log.warning("job %s of %s is given back: %s", job.id, topic_said(job), reason)
        pause = min(FIRST_PUT_OFF * 2 ** len(streak), LAST_PUT_OFF)
        return outcomes.not_yet(self.lease, reason, pause)

    def _wait(self, task: Task[Any], error: Exception) -> Duration | None:
        """Return the wait of the task's backoff function; None means the job's own backoff."""
        if task.backoff is None or self.lease.job.options.backoff != DEFAULT:
            return None
        try:
            wait = task.backoff(self.lease.job.retries + 1, error)
            microseconds(wait, "backoff")
        except Exception:
            log.exception("the backoff of topic %s failed; the default is used", task.topic)
            return None
        return wait

    async def _on_failure(self, task: Task[Any], error: Exception, *, final: bool) -> None:
        """Call the task's `on_failure`; an error in it is only logged."""
        try:
            async with asyncio.timeout(self.lease.job.options.timeout):
                is_async = inspect.iscoroutinefunction(task.on_failure)
                await self._call(is_async, task.on_failure, self.context, error, final)
        except (Exception, SystemExit):
            log.exception("on_failure of topic %s failed", task.topic)

    async def _timed(self, running: Awaitable[T], limit: float | None) -> T:
        """Await something for at most `limit` seconds, as asyncio.timeout does but quicker."""
        doing = asyncio.current_task(self._loop)
        if limit is None or doing is None:
            return await running
        timer = TimeLimit(doing)
        handle = self._loop.call_later(limit, timer.expire)
        try:
            return await running
        except asyncio.CancelledError:
            if not timer.is_cause():
                raise
            self.context.cancel()  # blocking code continues until it checks `cancelled`
            msg = f"the job ran longer than its timeout of {limit:g} s"
            raise TimeLimitExceeded(msg) from None
        finally:
            handle.cancel()
            timer.uncancel()

    async def _called(self, task: Task[Any]) -> Any:
        job = self.lease.job
        if job.encoding == Encoding.BASE64:
            msg = f"the payload of {task.topic} is bytes; a task needs a JSON object of arguments"
            raise InvalidArguments(msg)
        try:
            args, kwargs = task.signature.decode(job.body)
        except InvalidArguments as error:
            raise Undecodable(str(error)) from error
        if task.signature.takes_context:
            args = (self.context, *args)
        return await self._call(task.is_async, task.function, *args, **kwargs)

    async def _call(self, is_async: bool, function: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001 - never named
        """Call an async function in the event loop, another in a thread with this context."""
        if is_async:
            return await function(*args, **kwargs)
        here = contextvars.copy_context()
        thread = self._threads.start(functools.partial(here.run, function, *args, **kwargs))
        if self.thread is None or self.thread.done():
            self.thread = thread
        result, error = await asyncio.shield(thread)
        if error:
            raise _as_exception(error)
        # A decorated async function may not look async.
        return await result if inspect.isawaitable(result) else result


class Undecodable(Exception):
    """The stored arguments do not fit the task as this worker knows it."""


def topic_said(job: Job) -> str:
    """Return the topic of a job for a log line, with its task where several may share the topic."""
    return f"topic {job.topic!r}" + (f" ({job.task_name})" if job.task_name else "")


def _is_unknown(failure: Failure) -> bool:
    return failure.kind is FailureKind.UNKNOWN


class TimeLimit:
    """Cancels an asyncio task once; takes that back when the task has noticed it."""

    __slots__ = ("_before", "_doing", "_expired")

    def __init__(self, doing: asyncio.Task[Any]) -> None:
        self._doing = doing
        self._before = doing.cancelling()
        self._expired = False

    def expire(self) -> None:
        """Cancel the task."""
        self._expired = True
        self._doing.cancel()

    def is_cause(self) -> bool:
        """Say whether the task was cancelled by this limit alone."""
        return self.uncancel() and self._doing.cancelling() <= self._before

    def uncancel(self) -> bool:
        """Take back the cancellation; say whether there was one to take back."""
        expired, self._expired = self._expired, False
        if expired:
            self._doing.uncancel()
        return expired


def _is_stopped() -> bool:
    """Say whether the running task was cancelled from outside."""
    doing = asyncio.current_task()
    return doing is not None and doing.cancelling() > 0


def _as_exception(error: BaseException) -> Exception:
    """Return an error as an Exception, so that it ends its job and not the worker."""
    match error:
        case asyncio.CancelledError() | futures.CancelledError():
            what = "was cancelled"
        case StopIteration() | StopAsyncIteration():
            what = f"raised {type(error).__name__}"  # coroutines and futures give it a meaning
        case Exception():
            return error
        case SystemExit():
            what = f"exited: {error}"
        case _:
            what = f"raised {type(error).__name__}"
    exception = RuntimeError(f"the task {what}").with_traceback(error.__traceback__)
    exception.__cause__ = error
    return exception
