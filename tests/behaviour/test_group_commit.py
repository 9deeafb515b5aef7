"""Concurrent calls share a commit; only calls of one operation become one statement."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Event

import pytest

from tests.conftest import eventually
from towpath.database import group_commit
from towpath.database.group_commit import COMPANY_TICKS, Call, Inbox, Policy
from towpath.database.task_lanes import TaskLanes
from towpath.database.thread_lanes import ThreadLanes
from towpath.errors import DatabaseUnavailable
from towpath.operation import Answer, Operation, Steps, plural
from towpath.statement import Statement

pytestmark = pytest.mark.both_colours

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
    monkeypatch.setattr(ThreadLanes, "is_lone", lambda *_: False)  # so that none goes first
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
    inbox = Inbox()
    for make in (left, left, right, right):
        inbox.append(Call(make(["a"])))

    taken = [
        [call.operation.merge for call in inbox.take([], Policy(batch_size=10))] for _ in range(2)
    ]

    assert taken == [[left, left], [right, right]]


class Doubling:
    """A lane that doubles numbers and remembers its calls; it refuses what is not positive."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.called = asyncio.Event()

    async def run(self, operations: Sequence[Operation[list[int]]], _: float) -> list[list[int]]:
        results: list[list[int]] = []
        for operation in operations:
            items = list(operation.batch.items)
            self.calls.append(items)
            self.called.set()
            await asyncio.sleep(0)
            if min(items, default=1) < 0:
                raise DatabaseUnavailable
            if 0 in items:
                raise ValueError(items)
            results.append([2 * item for item in items])
        return results


@plural()
def double(items: Sequence[int]) -> Steps[list[Answer[int]]]:
    raise NotImplementedError(items)  # the lane runs it itself
    yield


def doubled_by(lane: Doubling, batch_size: int = 1_000) -> TaskLanes[Doubling]:
    policy = Policy(
        batch_size=batch_size, shared_errors=(DatabaseUnavailable,), company_ticks=COMPANY_TICKS
    )
    return TaskLanes([lane], Doubling.run, policy)


def ask(*calls: Sequence[int]) -> tuple[list[object], list[list[int]]]:
    """Make calls at once; return their answers, and the calls that the lane got."""

    async def gather() -> tuple[list[object], list[list[int]]]:
        lane = Doubling()
        lanes = doubled_by(lane)
        answers = (lanes.arun(double(items)) for items in calls)
        return await asyncio.gather(*answers, return_exceptions=True), lane.calls

    return asyncio.run(gather())


def test_each_caller_gets_its_share_of_one_operation():
    assert ask([1, 2], [3], []) == ([[2, 4], [6], []], [[1, 2, 3]])


def test_a_bad_call_fails_alone():
    [good, bad, other], _ = ask([1], [0], [3])

    assert (good, other) == ([2], [6])
    assert isinstance(bad, ValueError)


def test_an_error_of_the_database_fails_all_calls_and_nothing_is_done_again():
    """It may have been done, and only its answer was lost."""
    errors, calls = ask([1], [-2])

    assert [type(error) for error in errors] == [DatabaseUnavailable] * 2
    assert calls == [[1, -2]]


def test_calls_that_come_while_a_lane_is_led_share_the_next_transaction():
    async def main():
        lane = Doubling()
        lanes = doubled_by(lane)
        first = asyncio.create_task(lanes.arun(double([1])))
        await lane.called.wait()
        await asyncio.gather(first, lanes.arun(double([2])), lanes.arun(double([3])))
        return lane.calls

    assert asyncio.run(main()) == [[1], [2, 3]]


def test_callers_that_take_turns_are_waited_for_and_those_that_stay_away_are_not():
    async def main():
        lane = Doubling()
        lanes = doubled_by(lane)

        async def call(times, ticks):
            for _ in range(times):
                await lanes.arun(double([1]))
                for _ in range(ticks):
                    await asyncio.sleep(0)

        await asyncio.wait_for(asyncio.gather(call(50, 0), call(50, 3), call(5, 0)), 30)
        return [len(items) for items in lane.calls]

    sizes = asyncio.run(main())
    assert sum(sizes) == 105
    assert sizes.count(2) > 40


def test_a_transaction_is_no_larger_than_others_can_wait_for():
    async def main():
        lane = Doubling()
        lanes = doubled_by(lane, batch_size=1_000)
        await asyncio.gather(*(lanes.arun(double([1] * 300)) for _ in range(10)))
        return [len(items) for items in lane.calls]

    sizes = asyncio.run(main())
    assert sum(sizes) == 3_000
    assert max(sizes) <= 1_300


def test_calls_that_may_not_share_with_one_that_waits_do_not_wait_for_it():
    """There is another lane for them."""

    async def main():
        go_on = asyncio.Event()

        async def run(_: str, operations: Sequence[Operation[str]], __: float) -> list[str]:
            if operations[0].locks:
                await go_on.wait()
            return [operation.name for operation in operations]

        lanes = TaskLanes(["one", "other"], run, Policy(batch_size=1_000))
        waits = asyncio.create_task(lanes.arun(Operation("waits", unused, locks=True)))
        async with asyncio.timeout(20):
            for _ in range(3):  # the first of them in the tick of the one that waits
                assert await lanes.arun(Operation("goes", unused)) == "goes"
            assert not waits.done()
            go_on.set()
            assert await waits == "waits"

    asyncio.run(main())


def unused() -> Steps[str]:
    raise NotImplementedError  # the lane runs it itself
    yield


def test_a_thread_that_waited_in_line_is_told_of_its_own_error():
    arrived, go_on = Event(), Event()

    def run(_: str, operations: Sequence[Operation[str]], __: float) -> list[str]:
        if operations[0].name == "stands still":
            arrived.set()
            go_on.wait(30)
        if "bad" in [operation.name for operation in operations]:
            raise ValueError
        return [operation.name for operation in operations]

    lanes: ThreadLanes[str] = ThreadLanes(["lane"], run, Policy(batch_size=10))
    with ThreadPoolExecutor(3) as threads:
        try:
            threads.submit(lanes.run, Operation("stands still", unused))
            assert arrived.wait(10)
            calls = [threads.submit(lanes.run, Operation(name, unused)) for name in ("bad", "good")]
            eventually(lambda: len(lanes._inbox) == len(calls))
        finally:
            go_on.set()

    assert isinstance(calls[0].exception(10), ValueError)
    assert calls[1].result(10) == "good"


def test_a_lane_that_has_just_come_to_a_thread_is_not_lost(monkeypatch):
    """It would be led by two threads at once."""
    arrived, go_on = Event(), Event()

    class Late(SimpleQueue[object]):
        """A queue whose first wait ends in the moment in which something comes."""

        def get(self, block: bool = True, timeout: float | None = None) -> object:
            if not go_on.is_set():
                go_on.set()
                eventually(lambda: not self.empty())
                raise Empty
            return super().get(block, timeout)

    def run(_: str, operations: Sequence[Operation[str]], __: float) -> list[str]:
        if operations[0].name == "stands still":
            arrived.set()
            go_on.wait(30)
        return [operation.name for operation in operations]

    monkeypatch.setattr(group_commit, "SimpleQueue", Late)
    lanes: ThreadLanes[str] = ThreadLanes(["lane"], run, Policy(batch_size=10))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(lanes.run, Operation("stands still", unused))
        assert arrived.wait(10)
        assert lanes.run(Operation("waits", unused)) == "waits"
        first.result(10)

    assert lanes._idle == ["lane"]
