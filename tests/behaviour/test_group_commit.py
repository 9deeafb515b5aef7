"""Concurrent calls share a commit; only calls of one operation become one statement."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tests.conftest import eventually
from towpath.database.calls import Inbox, OrphanCall
from towpath.database.sqlite_database import Alone
from towpath.operation import Answer, Operation, Steps, plural
from towpath.statement import Statement

Make = Callable[[Sequence[str]], Operation[list[Answer[str]]]]


def operation_called_write(word: str, told: list[Sequence[str]], *, locks: bool = False) -> Make:
    """Make a plural operation that answers with its own word; two of them share a name."""
    statement = Statement("word", {"any": f"select '{word}'"})

    @plural(locks=lambda _: locks)
    def write(items: Sequence[str]) -> Steps[list[Answer[str]]]:
        told.append(items)
        [[said]] = yield statement()
        return [f"{said} {item}" for item in items]

    return write


def standing_still(arrived: Event, go_on: Event) -> Operation[None]:
    """Make an operation that keeps its lane until told to go on."""

    def steps() -> Steps[None]:
        yield Statement("nothing", {"any": "select 1"})()
        arrived.set()
        go_on.wait(30)

    return Operation("stand_still", steps)


def test_operations_of_one_name_never_share_a_statement_among_threads(make_app):
    app = make_app(lanes=1)
    app.migrate()
    lefts: list[Sequence[str]] = []
    rights: list[Sequence[str]] = []
    left, right = operation_called_write("left", lefts), operation_called_write("right", rights)
    arrived, go_on = Event(), Event()

    with ThreadPoolExecutor(7) as threads:
        try:
            first = threads.submit(app.run, standing_still(arrived, go_on))
            assert arrived.wait(10)
            calls = [threads.submit(app.run, make(["a", "b"])) for make in [left, right] * 3]
            eventually(lambda: len(app._database._lanes._inbox) == len(calls))
        finally:
            go_on.set()
        first.result(10)
        answers = [call.result(10) for call in calls]

    assert answers == [["left a", "left b"], ["right a", "right b"]] * 3
    assert lefts == rights == [["a", "b"] * 3]  # each was one statement


def test_operations_of_one_name_never_share_a_statement_in_an_event_loop(make_app, monkeypatch):
    monkeypatch.setattr(Alone, "may_go", lambda *_: False)  # so that none goes before the others
    app = make_app(lanes=1)
    app.migrate()
    lefts: list[Sequence[str]] = []
    rights: list[Sequence[str]] = []
    left, right = operation_called_write("left", lefts), operation_called_write("right", rights)

    async def in_one_tick():
        calls = [make(["a"]) for make in [left, right] * 3]
        return await asyncio.gather(*(app._database.arun(each) for each in calls))

    assert asyncio.run(in_one_tick()) == [["left a"], ["right a"]] * 3
    assert lefts == rights == [["a"] * 3]  # each was one statement


def test_operations_of_one_name_that_hold_rows_do_not_share_a_transaction():
    """Two transactions that hold rows could deadlock, unless they become one statement."""
    left = operation_called_write("left", [], locks=True)
    right = operation_called_write("right", [], locks=True)
    inbox: Inbox[OrphanCall[None]] = Inbox()
    for make in (left, left, right, right):
        inbox.append(OrphanCall(make(["a"]), lambda _: False))

    taken = [[call.operation.merge for call in inbox.take(10, [])] for _ in range(2)]

    assert taken == [[left, left], [right, right]]
