"""One run of one job: from its lease to what became of it."""

import asyncio
import contextvars
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent import futures
from typing import Any, Final, TypeVar

from towpath.app import outcomes
from towpath.app.app import App
from towpath.app.context import Bury, Cancel, Context, Notes, Retry
from towpath.app.tasks import Task
from towpath.errors import DatabaseError, InvalidArguments, LeaseLost, TimeLimitExceeded
from towpath.model.backoff import DEFAULT
from towpath.model.instants import Duration, microseconds
from towpath.model.job import Lease
from towpath.model.payload import Encoding
from towpath.store import leases
from towpath.store.job_output import Note
from towpath.store.leases import Completion, Outcome
from towpath.worker.sandbox import Sandboxes
from towpath.worker.threads import Ended as Returned
from towpath.worker.threads import Threads

log: Final = logging.getLogger("towpath")

T = TypeVar("T")
Ended = Completion | Outcome


class TaskRun:
    """A job that runs."""

    def __init__(
        self, app: App, lease: Lease, threads: Threads, on_news: Callable[[Notes], object]
    ) -> None:
        self.lease = lease
        self.context = Context(app, lease, on_news)
        self.thread: asyncio.Future[Returned] | None = None  # may go on when the job has ended
        self._app = app
        self._threads = threads
        self._doing: asyncio.Task[Any] | None = None
        self._ends: Ended | None = None  # as which it is broken off
        self._cancels = 0
        self._unexpected = False  # the last try failed, and not by its own word

    def cancel(self) -> None:
        """Stop: somebody has asked for it. Said again, it does not disturb the cleaning up."""
        self.context.cancel()
        if self._ends is None:
            self._break_off(outcomes.cancellation(self.lease))

    def give_up(self) -> None:
        """Stop: the worker ends, and another one may do it."""
        self._break_off(outcomes.return_unseen(self.lease))

    def _break_off(self, ends: Ended) -> None:
        self._ends = self._ends or ends
        if self._doing:
            self._doing.cancel()
            self._cancels += 1

    async def end(self, task: Task[..., Any], sandboxes: Sandboxes) -> Ended:
        """Run to the end, whatever that is."""
        self._doing = asyncio.current_task()
        runs = self.lease.job.options.runs
        every = runs.ping_interval if runs else None
        pinging = None if every is None else asyncio.create_task(self._ping(every))
        try:
            return await self._tried(task, sandboxes)
        except asyncio.CancelledError:
            if self._ends is None:
                return outcomes.failure(self.lease, "the task was cancelled", None)
            return self._ends
        finally:
            if pinging:
                pinging.cancel()
            for _ in range(self._cancels):  # they were ours, and the slot goes on
                if self._doing:
                    self._doing.uncancel()
            self._doing = None

    async def _tried(self, task: Task[..., Any], sandboxes: Sandboxes) -> Ended:
        """Run; what a job that chooses its workers did not expect is tried again here."""
        runs = self.lease.job.options.runs
        left = runs.max_unexpected_retries if runs else 0
        while True:
            self._unexpected = False
            if task.sandbox:
                ended = await self._away(task, sandboxes)
            else:
                ended = await self.here(task, self.lease.job.options.timeout)
            if not runs or not left or not self._unexpected:
                return ended
            left -= 1
            await asyncio.sleep(runs.unexpected_retry_delay)

    async def _ping(self, every: float | None) -> None:
        """Show that a run with a `ping_interval` lives, until it has ended."""
        job = self.lease.job
        while every:
            await asyncio.sleep(every)
            try:
                every = await self._app.arun(
                    leases.ping(job.seq, self.lease.epoch, microseconds(job.ttr))
                )
            except LeaseLost:
                self.cancel()  # it was taken from us
                return
            except DatabaseError as error:
                log.warning("the run of job %s could not show that it lives: %s", job.id, error)

    async def here(self, task: Task[..., Any], limit: float | None) -> Ended:
        """Run in this process, for at most so many seconds."""
        try:
            async with self._app.middleware.around_run(self.context):
                result = await self._timed(self._called(task), limit)
            kept = result if task.keep_result else None
            text = task.signature.encode_result(kept, self._app.settings.max_result)
        except GeneratorExit:
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_stopped():
                raise
            return await self._failed(task, _as_exception(error))
        return outcomes.completion_of(self.lease, text)

    async def _away(self, task: Task[..., Any], sandboxes: Sandboxes) -> Ended:
        """Run in a process of its own, which is killed if it does not end in time."""
        try:
            async with sandboxes.one_for(task) as sandbox:
                running = sandbox.run(self.lease, self._hear)
                ended = await self._timed(running, self.lease.job.options.timeout)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the job's
            return await self._failed(task, error)
        self._unexpected = isinstance(ended, Outcome) and ended.error is not None
        return ended

    def _hear(self, note: Note) -> None:
        """Have written what a job says in its sandbox."""
        notes = self.context.notes
        if notes is not None:
            try:
                notes.add(note.kind, note.text, note.share)
            except LeaseLost:
                self.cancel()  # it works in vain

    async def _failed(self, task: Task[..., Any], error: Exception) -> Ended:
        """Say what becomes of a job whose task has raised, and tell the task of a failure."""
        if self._ends is not None:
            return self._ends  # what it raises when it is stopped is no failure
        if isinstance(error, Cancel):
            return outcomes.cancellation(self.lease)
        cause = error
        if isinstance(error, Retry | Bury) and isinstance(error.__cause__, Exception):
            cause = error.__cause__
        self._unexpected = not isinstance(error, Bury)
        if isinstance(error, Bury):
            outcome = outcomes.final_failure(self.lease, cause)
        else:
            asked = error.after if isinstance(error, Retry) else None
            wait = self._wait(task, cause) if asked is None else asked
            outcome = outcomes.failure(self.lease, cause, wait)
        if task.on_failure:
            await self._tell(task, cause, final=outcome.goal == "buried")
        return outcome

    def _wait(self, task: Task[..., Any], error: Exception) -> Duration | None:
        """Return the wait that the task's own function asks for; None leaves it to the job."""
        if task.backoff is None or self.lease.job.options.backoff != DEFAULT:
            return None
        try:
            wait = task.backoff(self.lease.job.retries + 1, error)
            microseconds(wait, "backoff")
        except Exception:
            log.exception("the backoff of topic %s failed; the default holds", task.topic)
            return None
        return wait

    async def _tell(self, task: Task[..., Any], error: Exception, *, final: bool) -> None:
        """Call the task's `on_failure`; its own failure changes nothing."""
        try:
            async with asyncio.timeout(self.lease.job.options.timeout):
                is_async = inspect.iscoroutinefunction(task.on_failure)
                await self._call(is_async, task.on_failure, self.context, error, final)
        except (Exception, SystemExit):
            log.exception("on_failure of topic %s failed", task.topic)

    async def _timed(self, running: Awaitable[T], limit: float | None) -> T:
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                return await running
        except TimeoutError:
            if not clock.expired():
                raise  # the task's own
            self.context.cancel()  # blocking code runs on until it looks
            msg = f"it ran longer than {limit:g} s"
            raise TimeLimitExceeded(msg) from None

    async def _called(self, task: Task[..., Any]) -> Any:
        job = self.lease.job
        if job.encoding == Encoding.BASE64:
            msg = f"{task.topic} takes an object of its arguments; this payload is raw bytes"
            raise InvalidArguments(msg)
        args, kwargs = task.signature.decode(job.body)
        if task.signature.takes_context:
            args = (self.context, *args)
        return await self._call(task.is_async, task.function, *args, **kwargs)

    async def _call(self, is_async: bool, function: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001 - never named
        """Call a function on the loop if it is async, else in a thread, in this context."""
        if is_async:
            return await function(*args, **kwargs)
        here = contextvars.copy_context()
        thread = self._threads.start(functools.partial(here.run, function, *args, **kwargs))
        if self.thread is None or self.thread.done():
            self.thread = thread
        result, error = await asyncio.shield(thread)
        if error:
            raise _as_exception(error)
        # A decorator may hide that a function is async.
        return await result if inspect.isawaitable(result) else result


def _is_stopped() -> bool:
    """Say whether somebody has cancelled the running task, and not the task itself."""
    doing = asyncio.current_task()
    return doing is not None and doing.cancelling() > 0


def _as_exception(error: BaseException) -> Exception:
    """Return what would end more than its job as an error that does not."""
    match error:
        case asyncio.CancelledError() | futures.CancelledError():
            said = "was cancelled"
        case StopIteration() | StopAsyncIteration():
            said = f"raised {type(error).__name__}"  # which coroutines and futures misunderstand
        case Exception():
            return error
        case SystemExit():
            said = f"exited: {error}"
        case _:
            said = f"raised {type(error).__name__}"
    told = RuntimeError(f"the task {said}").with_traceback(error.__traceback__)
    told.__cause__ = error
    return told
