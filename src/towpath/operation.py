"""Operations: what we do to the database, free of how we talk to it.

An operation yields queries, is sent their rows, and returns a result. It does no I/O itself, so
the same one runs on every database, blocking or async, on our connection or the caller's.
`yield from` makes one operation out of several.

An operation is one transaction, and several may share one. An `autocommit` operation that runs
alone on PostgreSQL begins no transaction: each of its statements commits by itself. So whatever it
has done when it stops half-way must be right as it is. Its other steps, for a lost answer, run in
a transaction.

Some steps are no statements: `Operation.steps` answers them. `is_posted` asks whether a change is
posted as a lifecycle event, `rings` names a wakeup.
"""

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Sequence
from enum import Enum, auto
from functools import wraps
from typing import Any, Final, Generic, NamedTuple, Self, TypeAlias, TypeGuard, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from towpath.errors import TowpathError
from towpath.settings import LIFECYCLE
from towpath.statement import Query, Row, Statement, no_rows

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")
I = TypeVar("I")  # noqa: E741 - an item
Steps = Generator[Query[Any], list[Row], T]

NOTHING: Final = LIFECYCLE[0]
# Steps for a lane: the statements between them are one transaction, without others between them.
TOGETHER: Final[Query[Any]] = no_rows()()
APART: Final[Query[Any]] = no_rows()()
_ASK: Final[Statement[None]] = no_rows()
_POSTED: Final[Query[Any]] = no_rows()()
_RING: Final[Statement[None]] = no_rows()
_RANKS: Final = {level: rank for rank, level in enumerate(LIFECYCLE)}
_ASKED: Final = {  # made once, for each operation asks
    (level, begins): _ASK(rank=rank, begins=begins)
    for level, rank in _RANKS.items()
    for begins in (False, True)
}


class Mode(Enum):
    """What running an operation asks of the database."""

    WRITE = auto()
    READ = auto()  # a few rows, quick enough for an event loop
    SCAN = auto()  # may read many rows
    APPEND = auto()  # a write that may wait for a channel: nothing else waits behind it


class Rerun(Enum):
    """How to run an operation again when its answer was lost, so that it may have been done."""

    SAME = auto()  # by the same steps: to do it twice is to do it once
    NEVER = auto()  # not at all: the caller is told


class Wakeup(NamedTuple):
    """The name of what a commit has changed: `topic/mail`, `access`. It carries no data."""

    kind: str  # no slash in it
    name: str = ""  # any text; empty where there is one of its kind

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the wakeup that is written so."""
        kind, _, name = text.partition("/")
        return cls(kind, name)

    @classmethod
    def topics(cls, topics: Iterable[str]) -> set[Self]:
        """Return the wakeups of these topics."""
        return {cls("topic", topic) for topic in topics}

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else self.kind


class Batch(Struct, Generic[T], frozen=True):
    """The items of a plural operation, and how to make one operation of the items of several."""

    items: Sequence[Any]
    merge: "Callable[[Sequence[Any]], Operation[T]] | None" = None  # None: it stays by itself
    size: int = 0  # bytes of their payloads, where many could be too many for one statement


class Changed(Struct, Generic[T], frozen=True):
    """The result of an operation that has changed what others wait for."""

    value: T
    topics: Collection[str] = ()  # in which jobs may be ready now
    appends: bool = False  # only adds jobs behind those that are there: marks stay right
    others: Collection[Wakeup] = ()  # that are no topics

    @property
    def wakeups(self) -> set[Wakeup]:
        """What is to ring once it is committed."""
        return Wakeup.topics(self.topics).union(self.others)


class Operation(Struct, Generic[T], frozen=True):
    """Something to do in one transaction, and to do again if that has to be."""

    name: str
    start: Callable[[], Steps[T | Changed[T]]]
    mode: Mode = Mode.WRITE
    autocommit: bool = False  # each of its statements may commit by itself
    locks: bool = False  # takes contended row locks: shares a transaction only with what merges
    # The steps to run it again after a lost answer, or whether to.
    retry: Rerun | Callable[[], Steps[T | Changed[T]]] = Rerun.SAME
    undo: "Callable[[T], Operation[Any]] | None" = None  # for a caller that has gone
    batch: Batch[T] = Batch(())

    @property
    def is_repeatable(self) -> bool:
        """Whether it may run again after its answer was lost."""
        return self.retry is not Rerun.NEVER

    @property
    def has_other_steps(self) -> bool:
        """Whether it runs by other steps after its answer was lost, and so in a transaction."""
        return not isinstance(self.retry, Rerun)

    @property
    def merge(self) -> "Callable[[Sequence[Any]], Operation[T]] | None":
        """How to make one operation of this one's items and of those of others."""
        return self.batch.merge

    def inside(self) -> Steps[T]:
        """Return its steps as part of another operation, which tells of its changes."""
        return value_of((yield from self.start()))

    def steps(
        self, lifecycle: str = NOTHING, *, again: bool = False, alone: bool | None = None
    ) -> Steps[T | Changed[T]]:
        """Start, or start again after an answer was lost, under this setting `lifecycle`.

        In a lane it may yield TOGETHER and APART. Where it runs alone, each statement outside of
        these commits by itself.
        """
        start = self.retry if again and not isinstance(self.retry, Rerun) else self.start
        return _answering(start(), lifecycle, alone=alone)


def is_posted(level: str, *, begins: bool = True) -> Steps[bool]:
    """Say whether changes of this level are posted as lifecycle events.

    If so, what follows is one transaction, up to `posted`: an operation asks before its change.
    """
    return bool((yield _ASKED[level, begins]))


def posted() -> Steps[None]:
    """Note that a change has its event: the transaction of the two may end."""
    yield _POSTED


def rings(wakeup: Wakeup) -> Steps[None]:
    """Have a wakeup ring once the operation is committed."""
    yield _RING(wakeup=wakeup)


def _answering(  # noqa: C901 - one loop, as it runs for every statement
    steps: Steps[T | Changed[T]], lifecycle: str, *, alone: bool | None
) -> Steps[T | Changed[T]]:
    """Run steps, and answer those that are no statements."""
    wakeups: set[Wakeup] = set()
    unposted = 0  # changes that are to be posted
    try:
        query = next(steps)
        while True:
            answer: list[Row] = []
            if query.statement is _ASK:
                if query.params["rank"] <= _RANKS[lifecycle]:
                    answer = [(True,)]
                    if query.params["begins"]:
                        unposted += 1
                        if unposted == 1 and alone is not None:
                            yield TOGETHER
                    elif alone and not unposted:
                        msg = "a change was made before the transaction that posts it"
                        raise AssertionError(msg)
            elif query is _POSTED:
                unposted = max(0, unposted - 1)
                if alone and not unposted:
                    yield APART
            elif query.statement is _RING:
                wakeups.add(query.params["wakeup"])
            else:
                try:
                    answer = yield query
                except BaseException as error:  # noqa: BLE001 - the steps raise it again
                    query = steps.throw(error)
                    continue
            query = steps.send(answer)
    except StopIteration as end:
        result: T | Changed[T] = end.value
        return _ringing(result, wakeups) if wakeups else result


def _ringing(result: T | Changed[T], wakeups: set[Wakeup]) -> Changed[T]:
    if has_changed(result):
        return replace(result, others=wakeups.union(result.others))
    return Changed(cast("T", result), others=wakeups)


OnCommit: TypeAlias = Callable[[Changed[Any]], None]
"""Is told what each operation has changed that was committed."""


def has_changed(result: object) -> TypeGuard[Changed[Any]]:
    """Say whether an operation has changed what others wait for."""
    return isinstance(result, Changed)


def value_of(result: T | Changed[T]) -> T:
    """Return the result of an operation for its caller."""
    return cast("T", result.value if has_changed(result) else result)


Answer: TypeAlias = T | TowpathError
"""What a plural operation says of one item."""


def answered(answer: Answer[T]) -> T:
    """Return an answer, or raise it."""
    if isinstance(answer, TowpathError):
        raise answer
    return answer


def plural(
    *,
    autocommit: Callable[[Sequence[Any]], bool] = lambda _: True,
    locks: Callable[[Sequence[Any]], bool] = lambda _: False,
) -> Callable[
    [Callable[[Sequence[I]], Steps[list[Answer[T]] | Changed[list[Answer[T]]]]]],
    Callable[[Sequence[I]], Operation[list[Answer[T]]]],
]:
    """Turn a generator function over items into operations that can be merged.

    It answers for each item in turn and raises only what concerns them all. `autocommit` and
    `locks` say for which items they hold.
    """

    def decorate(
        steps: Callable[[Sequence[I]], Steps[list[Answer[T]] | Changed[list[Answer[T]]]]],
    ) -> Callable[[Sequence[I]], Operation[list[Answer[T]]]]:
        @wraps(steps)
        def make(items: Sequence[I]) -> Operation[list[Answer[T]]]:
            return Operation(
                steps.__name__,
                lambda: steps(items),
                autocommit=autocommit(items),
                locks=locks(items),
                batch=Batch(items, make),
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
