"""Operations: what we do to the database, free of how we talk to it.

An operation yields queries, is sent their rows, and returns a result. It does no I/O itself, so
the same one runs on every database, blocking or async, on our connection or the caller's. One
operation is one transaction; `yield from` makes one operation out of several.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from enum import Enum, auto
from functools import wraps
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from towpath.errors import TowpathError
from towpath.statement import Query

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")
I = TypeVar("I")  # noqa: E741 - an item
Row = Sequence[Any]
Steps = Generator[Query, list[Row], T]


class Mode(Enum):
    """What running an operation asks of the database."""

    WRITE = auto()
    READ = auto()  # a few rows, quick enough for an event loop
    SCAN = auto()  # may read many rows


class Operation(Struct, Generic[T], frozen=True):
    """Something to do in one transaction, and to do again if that has to be."""

    name: str
    start: Callable[[], Steps[T]]
    mode: Mode = Mode.WRITE
    whole: bool = False  # each of its statements is whole by itself: it needs no BEGIN and COMMIT
    repeatable: bool = True  # may run again when nobody knows whether it has run
    holds: bool = False  # takes contended row locks: shares a transaction only with what merges
    restart: Callable[[], Steps[T]] | None = None  # how to run again, where that differs
    abandon: "Callable[[T], Operation[Any]] | None" = None  # undoes it when nobody waits any more
    wakes: Callable[[T], Iterable[str]] | None = (
        None  # topics in which its result has changed something
    )
    appends: bool = False  # only adds jobs behind those that are there: marks stay right
    items: Sequence[Any] = ()  # of a plural operation
    # The same for more items. Calls with one and the same function here run as one operation.
    merge: "Callable[[Sequence[Any]], Operation[Any]] | None" = None

    def steps(self, *, again: bool = False) -> Steps[T]:
        """Start, or start again after an answer was lost."""
        return self.restart() if again and self.restart else self.start()


OnCommit: TypeAlias = Callable[[Operation[Any], Any], None]
"""Is told of each operation that was committed, and of its result."""

Answer: TypeAlias = T | TowpathError
"""What a plural operation says of one item."""


def answered(answer: Answer[T]) -> T:
    """Return an answer, or raise it."""
    if isinstance(answer, TowpathError):
        raise answer
    return answer


def plural(
    whole: Callable[[Sequence[Any]], bool] = lambda _: True,
    wakes: Callable[[Any], Iterable[str]] | None = None,
    *,
    appends: bool = False,
    holds: Callable[[Sequence[Any]], bool] = lambda _: False,
) -> Callable[
    [Callable[[Sequence[I]], Steps[list[Answer[T]]]]],
    Callable[[Sequence[I]], Operation[list[Answer[T]]]],
]:
    """Turn a generator function over items into operations that can be merged.

    It answers for each item in turn and raises only what concerns them all. `whole` says for which
    items it is a single write, `holds` for which it holds rows.
    """

    def decorate(
        steps: Callable[[Sequence[I]], Steps[list[Answer[T]]]],
    ) -> Callable[[Sequence[I]], Operation[list[Answer[T]]]]:
        @wraps(steps)
        def make(items: Sequence[I]) -> Operation[list[Answer[T]]]:
            return Operation(
                steps.__name__,
                lambda: steps(items),
                whole=whole(items),
                holds=holds(items),
                wakes=wakes,
                appends=appends,
                items=items,
                merge=make,
            )

        return make

    return decorate


def drive(steps: Generator[Q, A, T], execute: Callable[[Q], A]) -> T:
    """Run steps to their end, blocking on each; what is raised is raised inside them, too."""
    try:
        step = next(steps)
        while True:
            try:
                answer = execute(step)
            except BaseException as error:  # noqa: BLE001 - the steps raise it again
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(steps: Generator[Q, A, T], execute: Callable[[Q], Awaitable[A]]) -> T:
    """Run steps to their end, awaiting each; what is raised is raised inside them, too."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await execute(step)
            except BaseException as error:  # noqa: BLE001 - the steps raise it again
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
