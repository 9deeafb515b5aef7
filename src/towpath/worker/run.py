"""One run of one job: from its lease to what became of it."""

import asyncio
import functools
from collections.abc import Awaitable
from typing import Any

from towpath.app import outcomes
from towpath.app.app import App
from towpath.app.context import Bury, Cancel, Context, Retry
from towpath.app.tasks import Task
from towpath.errors import TimeLimitExceeded
from towpath.model.job import Lease
from towpath.store.leases import Completion, Outcome
from towpath.worker.sandbox import Sandboxes
from towpath.worker.threads import Ended as Returned
from towpath.worker.threads import Threads

Ended = Completion | Outcome


class Run:
    """A job that runs."""

    def __init__(self, app: App, lease: Lease, threads: Threads) -> None:
        self.lease = lease
        self.context = Context(app, lease)
        self.thread: asyncio.Future[Returned] | None = None  # may go on when the job has ended
        self._app = app
        self._threads = threads
        self._doing: asyncio.Task[Any] | None = None
        self._ends: Ended | None = None  # as which it is broken off

    def cancel(self) -> None:
        """Stop: somebody has asked for it, once or more often."""
        if not self.context.cancelled:  # a second blow would hit it while it tidies up
            self.context.cancel()
            self._break_off(outcomes.cancellation(self.lease))

    def give_up(self) -> None:
        """Stop: the worker ends, and another one may do it."""
        self._break_off(outcomes.return_unseen(self.lease))

    def _break_off(self, ends: Ended) -> None:
        self._ends = self._ends or ends
        if self._doing:
            self._doing.cancel()

    async def end(self, task: Task[..., Any], sandboxes: Sandboxes) -> Ended:
        """Run to the end, whatever that is."""
        self._doing = asyncio.current_task()
        try:
            if not task.sandbox:
                return await self._timed(self.here(task))
            async with sandboxes.one_for(task) as sandbox:
                return await self._timed(sandbox.run(self.lease))
        except asyncio.CancelledError:
            if self._ends is None:
                return outcomes.failure(self.lease, "the task was cancelled", None)
            while self._doing and self._doing.uncancel():
                pass  # they were ours, and the slot goes on
            return self._ends
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the job's
            return self._raised(error)
        finally:
            self._doing = None

    async def here(self, task: Task[..., Any]) -> Ended:
        """Run in this process, for as long as it takes."""
        try:
            result = await self._called(task)
            text = task.signature.encode_result(result, self._app.settings.max_result)
        except GeneratorExit:
            raise
        except asyncio.CancelledError:
            doing = asyncio.current_task()
            if doing and doing.cancelling():
                raise
            return outcomes.failure(self.lease, "the task was cancelled", None)  # by itself
        except BaseException as error:  # noqa: BLE001 - even SystemExit is the job's, not the worker's
            return self._raised(error)
        return outcomes.completion_of(self.lease, text)

    def _raised(self, error: BaseException) -> Outcome:
        try:
            match error:
                case Retry():
                    return outcomes.failure(self.lease, error.__cause__ or error, error.after)
                case Cancel():
                    return outcomes.cancellation(self.lease)
                case Bury():
                    return outcomes.final_failure(self.lease, error.__cause__ or error)
                case _:
                    return outcomes.failure(self.lease, error, None)
        except Exception as worse:  # noqa: BLE001 - an error that cannot even be told
            told = f"{type(error).__name__}, which could not be read: {type(worse).__name__}"
            return outcomes.failure(self.lease, told, None)

    async def _timed(self, running: Awaitable[Ended]) -> Ended:
        limit = self.lease.job.options.timeout
        try:
            async with asyncio.timeout(limit):
                return await running
        except TimeoutError:  # not the task's own, which has become an outcome
            msg = f"it ran longer than {limit:g} s"
            raise TimeLimitExceeded(msg) from None

    async def _called(self, task: Task[..., Any]) -> Any:
        args, kwargs = task.signature.decode(self.lease.job.body)
        if task.signature.takes_context:
            args = (self.context, *args)
        if task.is_async:
            running: Awaitable[Any] = task.function(*args, **kwargs)
            return await running
        self.thread = self._threads.start(functools.partial(task.function, *args, **kwargs))
        result, error = await asyncio.shield(self.thread)
        if error:
            raise error
        return result
