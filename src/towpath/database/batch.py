"""Operations that share a commit: those of one kind become one plural operation."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from towpath.errors import DatabaseUnavailable
from towpath.operation import Changed, OnCommit, Operation, has_changed, value_of

log: Final = logging.getLogger("towpath")

T = TypeVar("T")


class Call(Protocol):
    """An operation on its way, and whoever waits for it."""

    operation: Operation[Any]

    def settle(self, result: object, error: BaseException | None) -> None:
        """Tell whoever waits. Only the first word counts."""
        ...

    def is_abandoned(self) -> bool:
        """Say whether nobody waits, and nobody wants it done."""
        ...


class CallGroup:
    """Calls that run as one operation."""

    __slots__ = ("calls", "operation")

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        first = calls[0].operation
        if len(calls) > 1 and first.merge:
            items = [item for call in calls for item in call.operation.batch.items]
            self.operation = first.merge(items)
        else:
            self.operation = first

    def settle(self, result: Any) -> None:
        """Give each call its share of the result."""
        if len(self.calls) == 1:
            self.calls[0].settle(result, None)
            return
        start = 0
        for call in self.calls:
            end = start + len(call.operation.batch.items)
            call.settle(result[start:end], None)
            start = end


def grouped(calls: Sequence[Call]) -> list[CallGroup]:
    """Put calls that have the same `merge` together: a name may belong to two operations.

    Concurrent calls have no order that could matter.
    """
    if len(calls) == 1:
        return [CallGroup([calls[0]])]
    kinds: dict[object, list[Call]] = {}
    for call in calls:
        operation = call.operation
        kinds.setdefault(operation.merge or id(call), []).append(call)
    return [CallGroup(same) for same in kinds.values()]


def settle(groups: Sequence[CallGroup], results: Sequence[Any], on_commit: OnCommit) -> None:
    """Tell whoever waits what came of it, and of what was committed."""
    for group, result in zip(groups, results, strict=True):
        # First: a caller that goes on finds it in force.
        group.settle(tell(on_commit, group.operation, result))


def tell(on_commit: OnCommit, operation: Operation[T], result: T | Changed[T]) -> T:
    """Tell of a commit, which stands whatever comes of that; return the caller's result."""
    if has_changed(result):
        try:
            on_commit(result)
        except Exception:  # a waiter still finds the job by polling
            log.exception("could not ring for %s", operation.name)
    return value_of(result)


def interrupted() -> DatabaseUnavailable:
    """Return what those are told whose batch was led by one who was interrupted."""
    return DatabaseUnavailable(
        "whoever led this batch was interrupted; it may have been done: look before you try again"
    )


def run_batch(
    calls: Sequence[Call],
    run: Callable[[list[Operation[Any]]], list[Any]],
    on_commit: OnCommit,
    nobodys: tuple[type[Exception], ...],
) -> None:
    """Run calls together, and one by one if that fails, so that a bad one fails alone.

    What is `nobodys` fault fails them all: to wait for it once is enough.
    """
    groups = grouped(calls)
    try:
        results = run([group.operation for group in groups])
    except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for it
        if len(calls) == 1 or isinstance(error, nobodys):
            for call in calls:
                call.settle(None, error)
            return
    else:
        settle(groups, results, on_commit)
        return
    for call in calls:
        run_batch([call], run, on_commit, nobodys)
