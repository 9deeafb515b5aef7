"""Lanes of one event loop: a task leads each of them, and serves calls until none is left."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from towpath.database.group_commit import SHARE, Call, Lanes, Operations, Policy, batch, began, fail
from towpath.operation import Operation, adrive

L = TypeVar("L")


class TaskLanes(Lanes[L]):
    """Lanes of one event loop, led by tasks that await `run`."""

    def __init__(
        self,
        lanes: list[L],
        run: Callable[[L, Operations, float], Awaitable[Sequence[Any]]],
        policy: Policy,
    ) -> None:
        super().__init__(lanes, policy)
        self._run = run
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_their_way: set[asyncio.Task[None]] = set()  # tasks that have no lane yet

    def take_over(self, operation: Operation[Any]) -> None:
        """Run an operation that has no caller."""
        self._enter(Call(operation))
        if self._idle:
            self._start(asyncio.get_running_loop())

    def _needs_leader(self, loop: asyncio.AbstractEventLoop) -> bool:  # noqa: ARG002 - it has one
        return len(self._inbox) >= SHARE * len(self._on_their_way)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        # A task of its own: a cancelled caller must not abort its neighbours.
        task = loop.create_task(self._lead(loop))
        self._tasks.add(task)
        self._on_their_way.add(task)
        task.add_done_callback(self._ended)

    async def _lead(self, loop: asyncio.AbstractEventLoop) -> None:
        await self._gather()
        self._on_their_way.discard(cast("asyncio.Task[None]", asyncio.current_task(loop)))
        if not self._idle or not self._inbox:
            return
        lane = self._idle.pop()
        leaders = min(-(-len(self._inbox) // SHARE), len(self._idle) + 1)
        share: int | None = -(-len(self._inbox) // leaders)
        calls: list[Call] = []
        try:
            while self._inbox.take(calls, self._policy, share):
                if self._inbox and self._idle and self._needs_leader(loop):
                    self._start(loop)  # what may not share this transaction need not wait for it
                await self._serve(lane, calls)
                self._note_company(calls)
                calls, share = [], None
                await self._gather()
        except BaseException:
            fail(calls)
            raise
        finally:
            self._idle.append(lane)  # at once: a call of the next tick finds it

    async def _serve(self, lane: L, calls: Sequence[Call]) -> None:
        since = began(calls)
        running = batch(calls, self._policy)
        await adrive(running, lambda operations: self._run(lane, operations, since))

    async def _gather(self) -> None:
        ticks = 0
        while self._inbox and not self._has_company(ticks):
            ticks += 1
            await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._on_their_way.discard(task)
        if self._inbox and self._idle:  # the task was cancelled
            self._start(task.get_loop())

    async def quiet(self, patience: float | None = None) -> None:
        """Wait until nothing is under way, or for so many seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)
