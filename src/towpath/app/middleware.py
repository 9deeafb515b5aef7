"""Middleware: functions of the application that run around every enqueue and every run."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import TypeAlias

from towpath.app.checks import EnqueueOptions, headers_of
from towpath.app.context import Context
from towpath.errors import Invalid

AroundEnqueue: TypeAlias = Callable[[str, dict[str, str]], Iterator[None]]
"""Takes the topic and the headers, which it may change, and yields while jobs are stored."""

AroundRun: TypeAlias = Callable[[Context], AsyncIterator[None]]
"""Takes the context of a job, and yields while the job runs."""


class Middleware:
    """The functions around every enqueue and every run, in the order in which they were added.

    They see the errors of the enqueue or run and may raise others, but they cannot suppress one.
    """

    def __init__(self) -> None:
        self._enqueue: list[Callable[[str, dict[str, str]], AbstractContextManager[None]]] = []
        self._run: list[Callable[[Context], AbstractAsyncContextManager[None]]] = []

    def add_around_enqueue(self, function: AroundEnqueue) -> None:
        """Add a generator function that is called around every enqueue."""
        if not isgeneratorfunction(function):
            msg = f"{function!r} must be a generator function that yields once"
            raise Invalid(msg)
        self._enqueue.append(contextmanager(function))

    def add_around_run(self, function: AroundRun) -> None:
        """Add an async generator function that is called around every run."""
        if not isasyncgenfunction(function):
            msg = f"{function!r} must be an async generator function that yields once"
            raise Invalid(msg)
        self._run.append(asynccontextmanager(function))

    def around_enqueue(
        self, topic: str, options: EnqueueOptions
    ) -> AbstractContextManager[EnqueueOptions]:
        """Enter the middleware of an enqueue; return its options with the headers."""
        return self._enqueueing(topic, options) if self.is_around else nullcontext(options)

    @property
    def is_around(self) -> bool:
        """Whether an enqueue has any middleware."""
        return bool(self._enqueue) or _traces()

    @contextmanager
    def _enqueueing(self, topic: str, options: EnqueueOptions) -> Generator[EnqueueOptions]:
        headers = headers_of(options.get("headers", {}))
        error: BaseException | None = None
        with ExitStack() as stack:
            for around in self._enqueue:
                stack.enter_context(around(topic, headers))
            if _traces():
                from towpath.app import tracing  # noqa: PLC0415 - only if it is used

                stack.enter_context(tracing.producing(topic, headers))
            try:
                yield {**options, "headers": headers}
            except BaseException as raised:
                error = raised
                raise
        if error is not None:
            raise error

    @property
    def is_around_run(self) -> bool:
        """Whether a run has any middleware."""
        return bool(self._run) or _traces()

    @asynccontextmanager
    async def around_run(self, context: Context) -> AsyncGenerator[None]:
        """Enter the middleware of a run."""
        error: BaseException | None = None
        async with AsyncExitStack() as stack:
            if _traces():
                from towpath.app import tracing  # noqa: PLC0415 - only if it is used

                stack.enter_context(tracing.consuming(context.job))
            for around in self._run:
                await stack.enter_async_context(around(context))
            try:
                yield
            except BaseException as raised:
                error = raised
                raise
        if error is not None:
            raise error


def _traces() -> bool:
    """Say whether this process has imported OpenTelemetry; it is not imported here."""
    return "opentelemetry.trace" in sys.modules
