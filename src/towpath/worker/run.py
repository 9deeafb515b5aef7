"""One run of one job: from its lease to what became of it."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from towpath.app import outcomes
from towpath.app.app import App
from towpath.app.context import Bury, Cancel, Context, Retry
from towpath.app.tasks import Task
from towpath.errors import TimeLimitExceeded
from towpath.model.job import Lease
from towpath.store.leases import Completion, Outcome

Ended = Completion | Outcome


class Run:
    """A job that runs."""

    def __init__(self, app: App, lease: Lease, threads: Callable[[], Executor]) -> None:
        self.lease = lease
        self.context = Context(app, lease)
        self._app = app
        self._threads = threads
        self._doing: asyncio.Task[Any] | None = None
        self._ends: Ended | None = None  # as which it is broken off

    def cancel(self) -> None:
        """Stop: somebody has asked for it."""
        self.context.cancel()
        self._break_off(outcomes.cancellation(self.lease))

    def give_up(self) -> None:
        """Stop: the worker ends, and another one may do it."""
        self._break_off(outcomes.return_unseen(self.lease))

    def _break_off(self, ends: Ended) -> None:
        self._ends = self._ends or ends
        if self._doing:
            self._doing.cancel()

    async def end(self, task: Task[..., Any]) -> Ended:
        """Run to the end, whatever that is."""
        self._doing = asyncio.current_task()
        try:
            result = await self._timed(task)
            text = task.signature.encode_result(result, self._app.settings.max_result)
        except asyncio.CancelledError:
            if self._ends is None:
                return outcomes.failure(self.lease, "the task was cancelled", None)
            if self._doing:
                self._doing.uncancel()  # it was ours, and the slot goes on
            return self._ends
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the job's
            return self._raised(error)
        finally:
            self._doing = None
        return outcomes.completion_of(self.lease, text)

    def _raised(self, error: Exception) -> Outcome:
        match error:
            case Retry():
                return outcomes.failure(self.lease, error.__cause__ or error, error.after)
            case Cancel():
                return outcomes.cancellation(self.lease)
            case Bury():
                return outcomes.final_failure(self.lease, error.__cause__ or error)
            case _:
                return outcomes.failure(self.lease, error, None)

    async def _timed(self, task: Task[..., Any]) -> Any:
        limit = self.lease.job.options.timeout
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                return await self._called(task)
        except TimeoutError:
            if not clock.expired():
                raise  # the task's own
            msg = f"it ran longer than {limit:g} s"
            raise TimeLimitExceeded(msg) from None

    async def _called(self, task: Task[..., Any]) -> Any:
        args, kwargs = task.signature.decode(self.lease.job.body)
        if task.signature.takes_context:
            args = (self.context, *args)
        if task.is_async:
            running: Awaitable[Any] = task.function(*args, **kwargs)
            return await running
        call = functools.partial(task.function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads(), call)
