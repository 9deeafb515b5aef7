"""Reservations: looking for jobs, and waiting for them."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from towpath.app.marks import Marks
from towpath.app.sessions import new_number
from towpath.app.waiting import TaskWaiter, ThreadWaiter, WaitingRoom
from towpath.errors import AppClosed, DatabaseError
from towpath.model.job import Lease
from towpath.operation import Operation
from towpath.store import leases, reserving, runs
from towpath.store.leases import Outcome
from towpath.store.reserving import Reserved

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

OFFERS_EVERY: Final = 0.1  # seconds between two looks at offers while there is other work


class Wish(Struct, frozen=True):
    """What is to be reserved, and for whom."""

    topics: tuple[str, ...]
    limit: int
    session: int | None
    token: int | None  # given by a caller who may repeat it
    most: Mapping[str, int] | None  # of each topic
    worker: str | None  # by its name
    expires: bool = False  # at its ttr, though a session holds it


@contextlib.contextmanager
def _telling() -> Generator[list[Exception]]:
    """Go on where what nobody can use cannot be put aside either: its leases end by themselves."""
    told: list[Exception] = []
    try:
        yield told
    except (DatabaseError, AppClosed) as error:
        log.exception("jobs that cannot be run now could not be put aside either")
        told.append(error)


class Reservations:
    """Takes jobs, most urgent first, and waits where there are none."""

    def __init__(self, app: "App", room: WaitingRoom, marks: Marks) -> None:
        self._app = app
        self._room = room
        self._marks = marks
        self._asides: set[asyncio.Task[bool]] = set()
        self._limited: set[str] = set()  # topics of looks that met one with limits
        self._busy = False  # the last look found something
        self._offers_at = 0.0  # when offers were last looked at

    def take(self, wish: Wish, timeout: float) -> list[Lease]:
        """Lease what there is; wait up to so many seconds for a first one."""
        reserved = self._look(wish)
        if reserved.leases or timeout == 0:
            return reserved.leases
        deadline = time.monotonic() + timeout
        waiter = ThreadWaiter(wish.topics)
        self._room.enter(waiter)
        try:
            # Look after getting in line, so that nothing slips in between.
            while True:
                begun = time.monotonic()
                reserved = self._look(wish)
                if reserved.leases or begun > deadline:
                    break
                due = self._wait_until(wish, reserved, begun)
                rung = waiter.wait(deadline - time.monotonic())
                if not rung and due > deadline:
                    return []
        except BaseException:
            self._room.ring_here(wish.topics)  # what woke this one may be there for the next
            raise
        finally:
            self._room.leave(waiter)
        self._room.ring_here(wish.topics)
        return reserved.leases

    async def atake(self, wish: Wish, timeout: float) -> list[Lease]:
        """Lease what there is; wait up to so many seconds for a first one."""
        reserved = await self._alook(wish)
        if reserved.leases or timeout == 0:
            return reserved.leases
        deadline = time.monotonic() + timeout
        waiter = TaskWaiter(wish.topics)
        self._room.enter(waiter)
        try:
            while True:
                begun = time.monotonic()
                reserved = await self._alook(wish)
                if reserved.leases or begun > deadline:
                    break
                due = self._wait_until(wish, reserved, begun)
                rung = await waiter.wait(deadline - time.monotonic())
                if not rung and due > deadline:
                    return []
        except BaseException:
            self._room.ring_here(wish.topics)  # what woke this one may be there for the next
            raise
        finally:
            self._room.leave(waiter)
        self._room.ring_here(wish.topics)
        return reserved.leases

    # ------------------------------------------------------------ one look

    def _look(self, wish: Wish) -> Reserved:
        """Look once: at what is in line, and at what is offered to this worker."""
        if self._offers_first(wish) and (offered := self._take_offered(wish)):
            return offered
        reserved = self._in_line(wish)
        self._busy = bool(reserved.leases)
        if not self._busy and wish.worker:
            return self._take_offered(wish) or reserved
        return reserved

    async def _alook(self, wish: Wish) -> Reserved:
        """Look once: at what is in line, and at what is offered to this worker."""
        if self._offers_first(wish) and (offered := await self._atake_offered(wish)):
            return offered
        reserved = await self._ain_line(wish)
        self._busy = bool(reserved.leases)
        if not self._busy and wish.worker:
            return await self._atake_offered(wish) or reserved
        return reserved

    def _offers_first(self, wish: Wish) -> bool:
        """Say whether it is time for those that name a worker, although there is other work."""
        now = time.monotonic()
        if wish.worker is None or not self._busy or now < self._offers_at + OFFERS_EVERY:
            return False
        self._offers_at = now
        return True

    def _take_offered(self, wish: Wish) -> Reserved | None:
        if wish.worker is None or not self._app.run(runs.are_offered(wish.topics)):
            return None
        reserved = self._app.run(_offered(wish, wish.worker))
        return reserved if reserved.leases else None

    async def _atake_offered(self, wish: Wish) -> Reserved | None:
        if wish.worker is None or not await self._app.arun(runs.are_offered(wish.topics)):
            return None
        reserved = await self._app.arun(_offered(wish, wish.worker))
        return reserved if reserved.leases else None

    # ------------------------------------------------------------ in line

    def _in_line(self, wish: Wish) -> Reserved:
        """Look once, or again if nothing that was found can be used."""
        while True:
            reserved = self._app.run(self._operation(wish))
            self._note_limits(wish, reserved)
            aside = not reserved.unusable or self._put_aside(reserved.unusable)
            if self._is_all(wish, reserved, aside=aside):
                return reserved

    async def _ain_line(self, wish: Wish) -> Reserved:
        """Look once, or again if nothing that was found can be used."""
        while True:
            reserved = await self._app.arun(self._operation(wish))
            self._note_limits(wish, reserved)
            aside = True
            if reserved.unusable:
                # Not awaited beside others: whoever is cancelled here would keep their leases.
                task = asyncio.create_task(self._aput_aside(reserved.unusable))
                self._asides.add(task)
                task.add_done_callback(self._asides.discard)
                if not reserved.leases:
                    aside = await asyncio.shield(task)
            if self._is_all(wish, reserved, aside=aside):
                return reserved

    def _is_all(self, wish: Wish, reserved: Reserved, *, aside: bool) -> bool:
        """Say whether another look would find no more."""
        if reserved.limited:
            return False
        # By its token it would find again what was not put aside.
        same = wish.token is not None and not aside
        if not reserved.leases and reserved.unusable and not same:
            return False
        self._marks.note(wish.topics, wish.limit, reserved)
        return not reserved.again

    def _put_aside(self, unusable: Sequence[Outcome]) -> bool:
        with _telling() as told:
            self._app.run(leases.settle(unusable))
        return not told

    async def _aput_aside(self, unusable: Sequence[Outcome]) -> bool:
        with _telling() as told:
            await self._app.arun(leases.settle(unusable))
        return not told

    def _note_limits(self, wish: Wish, reserved: Reserved) -> None:
        if reserved.limited:
            self._limited.update(wish.topics)

    def _operation(self, wish: Wish) -> Operation[Reserved]:
        return reserving.reserve(
            wish.topics,
            limit=wish.limit,
            session=wish.session,
            worker=wish.worker if wish.session is None else None,
            expires=wish.expires,
            token=new_number() if wish.token is None else wish.token,
            known_token=wish.token is not None,
            ranges=self._marks.ranges(wish.topics),
            limited=not self._limited.isdisjoint(wish.topics),
            most=wish.most,
        )

    def _wait_until(self, wish: Wish, reserved: Reserved, begun: float) -> float:
        """Have a ring for what will be due; return when that is, as far as a look can tell."""
        seconds = None if reserved.due_in is None else reserved.due_in / 1e6
        self._room.due(wish.topics, seconds)
        return math.inf if seconds is None else begun + seconds


def _offered(wish: Wish, worker: str) -> Operation[Reserved]:
    limit = min(wish.limit, *(wish.most or {}).values(), wish.limit)
    return reserving.reserve_offered(
        wish.topics, worker=worker, limit=limit, token=new_number(), session=wish.session
    )
