"""One connection to PostgreSQL, for threads or for an event loop, and the operations on it."""

import asyncio
import contextlib
import time
from collections.abc import Generator, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from towpath.database.postgres import (
    Operations,
    Trouble,
    aconnect,
    connect,
    limit_transaction,
    watch,
)
from towpath.database.postgres_wire import BEGIN, COMMIT, ROLLBACK, Sent, Wire
from towpath.errors import DatabaseError, TowpathError
from towpath.operation import APART, TOGETHER, Operation, Steps, adrive, drive
from towpath.settings import Settings
from towpath.statement import Row

if TYPE_CHECKING:
    from towpath.database.postgres_database import PostgresDatabase

T = TypeVar("T")

Exchanges = Generator[Iterable[Sent], list[list[Row]], T]
"""Yields statements that are sent together, is sent their rows, and returns a result."""


class PostgresLane:
    """A connection that is made when it is needed, and the operations that run over it."""

    def __init__(self, database: "PostgresDatabase", *, by_key: bool) -> None:
        self._database = database
        self._by_key = by_key
        self._lifecycle = database.settings.lifecycle
        self._wire: Wire | None = None
        self._trouble: Trouble | None = None  # of the last run
        self._begin = [BEGIN, limit_transaction(database.settings)]  # behind a pooler

    def cut(self) -> None:
        """Cut the connection, from any thread: a caller that waits for an answer raises at once."""
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

        Its statements were never acknowledged: the server is told to end them, and new work must
        not be mixed with them.
        """
        if self._wire and not self._wire.rests:
            self._wire.call_off()
            self.close()

    def _new_trouble(self, began: float) -> Trouble:
        lost = self._trouble.lost if self._trouble else None
        database = self._database
        trouble = Trouble(database.settings, database.outage, began, lost)
        trouble.check()
        self._trouble = trouble
        return trouble

    def _exchanges(
        self, wire: Wire, operations: Operations, trouble: Trouble
    ) -> Exchanges[list[Any]]:
        trouble.doubtful = len(operations) == 1 and _commits_alone(operations[0], trouble)
        if trouble.doubtful:
            steps = operations[0].steps(self._lifecycle, again=trouble.seen, alone=True)
            return [(yield from self._one_by_one(wire, steps))]
        results = yield from self._together(wire, operations, again=trouble.seen)
        trouble.doubtful = True
        yield from _commit(wire)
        return results

    def _begins(self, wire: Wire) -> Sequence[Sent]:
        return self._begin if wire.is_pooled else [BEGIN]

    def _one_by_one(self, wire: Wire, steps: Steps[T]) -> Exchanges[T]:
        """Run an operation each of whose statements commits by itself, but for what is TOGETHER.

        Behind a pooler each has a transaction of its own: settings of a session are lost there.
        """
        begin, commit = (self._begin, [COMMIT]) if wire.is_pooled else ([], [])
        answer: list[Row] | None = None
        before: Sequence[Sent] = begin
        after: Sequence[Sent] = commit
        try:
            while True:
                query = steps.send(answer)  # type: ignore[arg-type] # None starts it
                if query is TOGETHER:
                    before, after, answer = self._begins(wire), [], []
                    continue
                if query is APART:
                    if wire.is_in_transaction:
                        yield from _commit(wire)
                    before, after, answer = begin, commit, []
                    continue
                answers = yield chain(before, [self._database.asked(query)], after)
                answer = answers[len(before)]
                if wire.is_in_transaction:
                    before = []
        except StopIteration as end:
            result: T = end.value
        if wire.is_in_transaction:
            yield from _commit(wire)
        return result

    def _together(self, wire: Wire, operations: Operations, *, again: bool) -> Exchanges[list[Any]]:
        """Begin and run operations: the first statements of all of them are sent together.

        An operation that asks for no others between its statements is run after those.
        """
        started: list[tuple[int, Steps[Any]]] = []
        later: list[tuple[int, Steps[Any]]] = []
        first: list[Sent] = []
        results: list[Any] = [None] * len(operations)

        def ask(nth: int, steps: Steps[Any], answer: list[Row] | None) -> None:
            try:
                query = steps.send(answer)  # type: ignore[arg-type] # None starts it
            except StopIteration as end:  # it had nothing to ask
                results[nth] = end.value
                return
            if query is TOGETHER:
                later.append((nth, steps))
            else:
                first.append(self._database.asked(query))
                started.append((nth, steps))

        for nth, operation in enumerate(operations):
            ask(nth, operation.steps(self._lifecycle, again=again, alone=False), None)
        while later and not first:
            ask(*later.pop(0), [])
        begin = self._begins(wire)
        answers = (yield chain(begin, first))[len(begin) :]
        for (nth, steps), answer in zip(started, answers, strict=True):
            results[nth] = yield from self._finished(steps, answer)
        for nth, steps in later:
            results[nth] = yield from self._finished(steps, [])
        return results

    def _finished(self, steps: Steps[T], answer: list[Row]) -> Exchanges[T]:
        """Run an operation to its end; `answer` is that to its first statement."""
        try:
            while True:
                query = steps.send(answer)
                [answer] = [[]] if query is TOGETHER else (yield [self._database.asked(query)])
        except StopIteration as end:
            result: T = end.value
            return result


def _commit(wire: Wire) -> Exchanges[None]:
    yield [COMMIT]
    if wire.said != b"COMMIT":  # after an error the server answers by a rollback
        msg = "the transaction was rolled back by the server; nothing was stored"
        raise DatabaseError(msg)


def _commits_alone(operation: Operation[Any], trouble: Trouble) -> bool:
    """Say whether each of its statements commits by itself: not if it has other steps by now."""
    return operation.autocommit and not (trouble.seen and operation.has_other_steps)


class ThreadLane(PostgresLane):
    """One connection of the threads."""

    def run(self, operations: Operations, began: float) -> list[Any]:
        """Run operations in one transaction, again and again while that can help."""
        trouble = self._new_trouble(began)
        while True:
            try:
                results = self._run(operations, trouble)
            except TowpathError as error:
                shared = trouble.shared(error, operations)
                if shared is error:
                    raise
                raise shared from error
            except psycopg.Error as error:
                time.sleep(trouble.pause(error, operations))
            else:
                trouble.end()
                return results

    def _run(self, operations: Operations, trouble: "Trouble") -> list[Any]:
        trouble.begin()
        wire = self._resting() or self._plug_in(
            connect(*self._where, until=trouble.until, by_key=self._by_key)
        )
        try:
            return drive(
                self._exchanges(wire, operations, trouble),
                lambda asked: wire.exchange(asked, trouble.patience()),
            )
        except BaseException:
            trouble.note_life(wire.worked_at)
            if wire.is_in_transaction:
                with contextlib.suppress(psycopg.Error):
                    wire.exchange([ROLLBACK])
            self._leave_unless_resting()
            raise


class TaskLane(PostgresLane):
    """One connection of an event loop."""

    async def run(self, operations: Operations, began: float) -> list[Any]:
        """Run operations in one transaction, again and again while that can help."""
        trouble = self._new_trouble(began)
        while True:
            try:
                results = await self._run(operations, trouble)
            except TowpathError as error:
                shared = trouble.shared(error, operations)
                if shared is error:
                    raise
                raise shared from error
            except psycopg.Error as error:
                await asyncio.sleep(trouble.pause(error, operations))
            else:
                trouble.end()
                return results

    async def _run(self, operations: Operations, trouble: "Trouble") -> list[Any]:
        trouble.begin()
        wire = self._resting() or self._plug_in(
            await aconnect(*self._where, until=trouble.until, by_key=self._by_key)
        )
        try:
            return await adrive(
                self._exchanges(wire, operations, trouble),
                lambda asked: wire.aexchange(asked, trouble.patience()),
            )
        except BaseException:
            trouble.note_life(wire.worked_at)
            if wire.is_in_transaction:
                with contextlib.suppress(psycopg.Error):
                    await wire.aexchange([ROLLBACK])
            self._leave_unless_resting()
            raise
