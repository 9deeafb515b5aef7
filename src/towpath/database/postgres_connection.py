"""One connection to PostgreSQL, of threads or of an event loop, and what runs on it together."""

import asyncio
import contextlib
import time
from collections.abc import Generator, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from towpath.database.batch import grouped, settle
from towpath.database.calls import LoopCall, OrphanCall
from towpath.database.postgres import (
    Operations,
    Trouble,
    aconnect,
    connect,
    wait_for_locks,
    watch,
)
from towpath.database.postgres_wire import BEGIN, COMMIT, ROLLBACK, Sent, Wire
from towpath.errors import DatabaseError, DatabaseUnavailable, TowpathError
from towpath.operation import Steps, adrive, drive
from towpath.settings import Settings
from towpath.statement import Row

if TYPE_CHECKING:
    from towpath.database.postgres_database import PostgresDatabase

T = TypeVar("T")

Exchanges = Generator[Iterable[Sent], list[list[Row]], T]
"""What is asked together, the answers to that, and what came of it in the end."""


class Connected:
    """A connection that is made when it is needed, and what runs over it."""

    def __init__(self, database: "PostgresDatabase", *, by_key: bool) -> None:
        self._database = database
        self._by_key = by_key
        self._wire: Wire | None = None
        self._begin = [BEGIN, wait_for_locks(database.settings)]  # at a pooler

    def cut(self) -> None:
        """Cut the connection, from any thread: whoever waits for its answer is told at once."""
        if self._wire:
            self._wire.cut()

    def close(self) -> None:
        """Close the connection."""
        if self._wire:
            self._wire.close()
            self._wire = None

    @property
    def _where(self) -> tuple[str, Settings]:
        self._database.check_open()
        return self._database.url, self._database.settings

    def _plug_in(self, wire: Wire) -> Wire:
        self._wire = watch(wire, self._database.url, self._database.settings)
        return wire

    def _resting(self) -> Wire | None:
        """Return the wire, if it is at rest."""
        self._leave_unless_resting()
        return self._wire

    def _leave_unless_resting(self) -> None:
        """Leave a wire that is lost or interrupted.

        What it holds was never acknowledged: the server is to end it, and it must not be mixed with
        new work.
        """
        if self._wire and not self._wire.rests:
            self._wire.call_off()
            self.close()

    def _exchanges(
        self, wire: Wire, operations: Operations, trouble: Trouble
    ) -> Exchanges[list[Any]]:
        trouble.doubtful = len(operations) == 1 and operations[0].autocommit
        if trouble.doubtful:
            alone = self._finished(operations[0].steps(again=trouble.seen), None)
            return [(yield from self._wrapped(alone) if wire.is_pooled else alone)]
        begin = self._begin if wire.is_pooled else [BEGIN]
        results = yield from self._together(operations, begin, again=trouble.seen)
        trouble.doubtful = True
        yield [COMMIT]
        if wire.said != b"COMMIT":  # after an error the server answers by a rollback
            msg = "the transaction was rolled back by the server; nothing was stored"
            raise DatabaseError(msg)
        return results

    def _wrapped(self, exchanges: Exchanges[T]) -> Exchanges[T]:
        """Run what needs no transaction in one each: settings of a session are lost at a pooler."""
        try:
            asked = next(exchanges)
            while True:
                answers = yield chain(self._begin, asked, [COMMIT])
                asked = exchanges.send(answers[len(self._begin) : -1])
        except StopIteration as end:
            result: T = end.value
            return result

    def _together(
        self, operations: Operations, begin: Sequence[Sent], *, again: bool
    ) -> Exchanges[list[Any]]:
        """Begin and run operations: all of them ask before the first is answered."""
        started = [operation.steps(again=again) for operation in operations]
        first = (self._database.asked(next(steps)) for steps in started)
        answers = (yield chain(begin, first))[len(begin) :]
        results: list[Any] = []
        for steps, answer in zip(started, answers, strict=True):
            results.append((yield from self._finished(steps, answer)))
        return results

    def _finished(self, steps: Steps[T], answer: list[Row] | None) -> Exchanges[T]:
        """Run an operation to its end; from an answer on if it has asked."""
        try:
            while True:
                query = steps.send(answer)  # type: ignore[arg-type] # None starts it
                [answer] = yield [self._database.asked(query)]
        except StopIteration as end:
            result: T = end.value
            return result


class Lane(Connected):
    """One connection of the threads."""

    def run(self, operations: Operations) -> list[Any]:
        """Run operations in one transaction, again and again while that can help."""
        trouble = Trouble(self._database.settings)
        while True:
            try:
                return self._run(operations, trouble)
            except TowpathError as error:
                told = trouble.shared(error, operations)
                if told is error:
                    raise
                raise told from error
            except psycopg.Error as error:
                time.sleep(trouble.pause(error, operations))

    def _run(self, operations: Operations, trouble: "Trouble") -> list[Any]:
        trouble.doubtful = False  # while it connects
        wire = self._resting() or self._plug_in(connect(*self._where, by_key=self._by_key))
        try:
            return drive(self._exchanges(wire, operations, trouble), wire.exchange)
        except BaseException:
            if wire.is_in_transaction:
                with contextlib.suppress(psycopg.Error):
                    wire.exchange([ROLLBACK])
            self._leave_unless_resting()
            raise


class AsyncLane(Connected):
    """One connection of an event loop."""

    async def serve(self, calls: Sequence[LoopCall | OrphanCall[Any]]) -> None:
        """Run calls together, and one by one if that fails, so that a bad one fails alone."""
        groups = grouped(calls)
        try:
            results = await self.run([group.operation for group in groups])
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for it
            if len(calls) == 1 or isinstance(error, DatabaseUnavailable):
                for call in calls:
                    call.settle(None, error)
                return
        else:
            settle(groups, results, self._database.on_commit)
            return
        for call in calls:
            await self.serve([call])

    async def run(self, operations: Operations) -> list[Any]:
        """Run operations in one transaction, again and again while that can help."""
        trouble = Trouble(self._database.settings)
        while True:
            try:
                return await self._run(operations, trouble)
            except TowpathError as error:
                told = trouble.shared(error, operations)
                if told is error:
                    raise
                raise told from error
            except psycopg.Error as error:
                await asyncio.sleep(trouble.pause(error, operations))

    async def _run(self, operations: Operations, trouble: "Trouble") -> list[Any]:
        trouble.doubtful = False  # while it connects
        wire = self._resting() or self._plug_in(await aconnect(*self._where, by_key=self._by_key))
        try:
            return await adrive(self._exchanges(wire, operations, trouble), wire.aexchange)
        except BaseException:
            if wire.is_in_transaction:
                with contextlib.suppress(psycopg.Error):
                    await wire.aexchange([ROLLBACK])
            self._leave_unless_resting()
            raise
