"""A job that ends in the transaction of its own effects: both are committed, or neither."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from towpath.app.outcomes import completion_of
from towpath.database.transactions import async_transaction, blocking_transaction
from towpath.errors import Conflict
from towpath.model.arguments import encode_result
from towpath.operation import answered
from towpath.store import job_output, leases, streams
from towpath.store.job_output import Note
from towpath.store.leases import Completion
from towpath.store.streams import Say

if TYPE_CHECKING:
    from towpath.app.context import Context


class JobTransaction:
    """The block of `ctx.transaction(connection)`."""

    def __init__(self, context: "Context", connection: object) -> None:
        self.result: Any = None  # the result of the job, stored with its completion
        self._context: Final = context
        self._connection: Final = connection
        self._is_committed = False
        self._stack: Final = ExitStack()
        self._astack: Final = AsyncExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._block())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, at)

    async def __aenter__(self) -> Self:
        await self._astack.enter_async_context(self._ablock())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._astack.__aexit__(kind, error, at)

    @contextmanager
    def _block(self) -> Generator[None]:
        app, notes = self._context.app, list[Note]()
        with self._once(notes):
            speech = self._context.speech
            if speech is not None and speech.flush is not None:
                speech.follow(speech.flush())  # in the block SQLite's lock would be in its way
            completion, is_whole = None, False
            with blocking_transaction(self._connection):
                yield
                completion = self._completion()
                if completion is not None:
                    notes += self._notes()
                    if notes:
                        app.run(job_output.write(notes), self._connection)
                    if words := self._words():
                        answered(app.run(streams.say_last(words), self._connection)[0])
                    answered(app.run(leases.complete([completion]), self._connection)[0])
                is_whole = True
            if is_whole:  # psycopg's Rollback ends its block without an exception
                self._committed(completion)

    @asynccontextmanager
    async def _ablock(self) -> AsyncGenerator[None]:
        app, notes = self._context.app, list[Note]()
        with self._once(notes):
            speech = self._context.speech
            if speech is not None and speech.flush is not None:
                speech.follow(await asyncio.to_thread(speech.flush))
            completion, is_whole = None, False
            async with async_transaction(self._connection):
                yield
                completion = self._completion()
                if completion is not None:
                    notes += self._notes()
                    if notes:
                        await app.arun(job_output.write(notes), self._connection)
                    if words := self._words():
                        answered((await app.arun(streams.say_last(words), self._connection))[0])
                    answered((await app.arun(leases.complete([completion]), self._connection))[0])
                is_whole = True
            if is_whole:
                self._committed(completion)

    @contextmanager
    def _once(self, taken: list[Note]) -> Generator[None]:
        """Refuse a second block; after a rollback the run is as before."""
        context = self._context
        if context.is_ending:
            msg = (
                "this run has a transaction already, and the job ends with it; put all writes into "
                "one block of ctx.transaction"
            )
            raise Conflict(msg)
        context.is_ending = True
        if context.notes is not None:
            # A writer beside this transaction would come too late: after the end of the lease.
            context.notes.are_held = True
        if context.speech is not None:
            context.speech.hold()
        try:
            yield
        finally:
            if not self._is_committed:
                context.is_ending = False
                if context.notes is not None:
                    context.notes.are_held = False
                    context.notes.put_back(taken)
                if context.speech is not None:
                    context.speech.release()

    def _committed(self, completion: Completion | None) -> None:
        self._is_committed = True
        self._context.completion = completion
        if self._context.notes is not None:
            self._context.notes.lose()  # a completed job takes no more output
        if self._context.speech is not None:
            self._context.speech.lose()

    def _notes(self) -> list[Note]:
        return [] if self._context.notes is None else self._context.notes.take(held=True)

    def _words(self) -> Say | None:
        return None if self._context.speech is None else self._context.speech.all()

    def _completion(self) -> Completion | None:
        lease = self._context.lease
        if lease is None:
            return None
        text = encode_result(self.result, self._context.app.settings.max_result)
        return completion_of(lease, text)
