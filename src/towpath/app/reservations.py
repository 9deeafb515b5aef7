"""Reservations: looking for jobs, and waiting for them."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from towpath.app.low_water import LowWater
from towpath.app.sessions import new_number
from towpath.app.waiters import TaskWaiter, ThreadWaiter, Waiters
from towpath.errors import AppClosed, DatabaseError
from towpath.model.job import Lease
from towpath.operation import Operation, adrive, drive
from towpath.store import leases, reserving, runs
from towpath.store.leases import Outcome
from towpath.store.reserving import Reserved

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

T = TypeVar("T")

OFFERS_EVERY: Final = 0.1  # seconds between two looks at offers while there is other work


class ReserveRequest(Struct, frozen=True):
    """What is to be reserved, and for whom."""

    topics: tuple[str, ...]
    limit: int
    session: int | None
    token: int | None  # given by a caller who may repeat it
    most: Mapping[str, int] | None  # of each topic
    worker: str | None  # by its name
    expires: bool = False  # at its ttr, though a session holds it


class Wait(Struct, frozen=True):
    """A pause in a verb: until the waiter is rung for, or the time is over."""

    waiter: Any  # of the kind that the driver of these steps can wait for
    seconds: float


class Aside(Struct, frozen=True):
    """Jobs that were leased and cannot be used: what is to become of them."""

    outcomes: Sequence[Outcome]
    awaited: bool  # else the caller has leases in hand, and goes on at once


Taking: TypeAlias = Generator[Operation[Any] | Wait | Aside, Any, T]
"""A reservation as steps that run blocking or async."""


class Reservations:
    """Takes jobs, most urgent first, and waits where there are none."""

    def __init__(self, app: "App", room: Waiters, marks: LowWater) -> None:
        self._app = app
        self._room = room
        self._marks = marks
        self._asides: set[asyncio.Task[bool]] = set()
        self._limited: set[str] = set()  # topics of looks that met one with limits
        self._busy = False  # the last look found something
        self._offers_at = 0.0  # when offers were last looked at

    def take(self, wish: ReserveRequest, timeout: float) -> list[Lease]:
        """Lease what there is; wait up to so many seconds for a first one."""
        return drive(self._taken(wish, timeout, ThreadWaiter), self._do)

    async def atake(self, wish: ReserveRequest, timeout: float) -> list[Lease]:
        """Lease what there is; wait up to so many seconds for a first one."""
        return await adrive(self._taken(wish, timeout, TaskWaiter), self._ado)

    def _do(self, step: Operation[Any] | Wait | Aside) -> Any:
        if isinstance(step, Operation):
            return self._app.run(step)
        if isinstance(step, Wait):
            return step.waiter.wait(step.seconds)
        with _telling() as told:
            self._app.run(leases.settle(step.outcomes))
        return not told

    async def _ado(self, step: Operation[Any] | Wait | Aside) -> Any:
        if isinstance(step, Operation):
            return await self._app.arun(step)
        if isinstance(step, Wait):
            return await step.waiter.wait(step.seconds)
        # A task of its own: a caller that is cancelled here would lose the leases in its hand.
        task = asyncio.create_task(self._put_aside(step.outcomes))
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)
        return await asyncio.shield(task) if step.awaited else True

    async def _put_aside(self, outcomes: Sequence[Outcome]) -> bool:
        with _telling() as told:
            await self._app.arun(leases.settle(outcomes))
        return not told

    def _taken(
        self, wish: ReserveRequest, timeout: float, waiting: type[ThreadWaiter | TaskWaiter]
    ) -> Taking[list[Lease]]:
        reserved = yield from self._look(wish)
        if reserved.leases or timeout == 0:
            return reserved.leases
        deadline = time.monotonic() + timeout
        waiter = waiting(wish.topics)
        self._room.enter(waiter)
        try:
            # Look after getting in line, so that no job slips in between.
            while True:
                begun = time.monotonic()
                reserved = yield from self._look(wish)
                if reserved.leases or begun > deadline:
                    break
                due = self._wait_until(wish, reserved, begun)
                rung: bool = yield Wait(waiter, deadline - time.monotonic())
                if not rung and due > deadline:
                    return []
        except BaseException:
            self._room.ring_here(wish.topics)  # the job that woke this waiter may be for the next
            raise
        finally:
            self._room.leave(waiter)
        self._room.ring_here(wish.topics)
        return reserved.leases

    def _look(self, wish: ReserveRequest) -> Taking[Reserved]:
        """Look once: at jobs in line, and at jobs that are offered to this worker."""
        if self._offers_first(wish) and (offered := (yield from self._offered(wish))):
            return offered
        reserved = yield from self._in_line(wish)
        self._busy = bool(reserved.leases)
        if not self._busy and wish.worker:
            return (yield from self._offered(wish)) or reserved
        return reserved

    def _offers_first(self, wish: ReserveRequest) -> bool:
        """Say whether it is time for jobs that name a worker, although there is other work."""
        now = time.monotonic()
        if wish.worker is None or not self._busy or now < self._offers_at + OFFERS_EVERY:
            return False
        self._offers_at = now
        return True

    def _offered(self, wish: ReserveRequest) -> Taking[Reserved | None]:
        if wish.worker is None or not (yield runs.are_offered(wish.topics)):
            return None
        reserved: Reserved = yield _reserve_offered(wish, wish.worker)
        return reserved if reserved.leases else None

    def _in_line(self, wish: ReserveRequest) -> Taking[Reserved]:
        """Look once, or again if nothing that was found can be used."""
        while True:
            reserved: Reserved = yield self._operation(wish)
            aside = True
            if reserved.limited:
                self._limited.update(wish.topics)
            if reserved.unusable:
                aside = yield Aside(reserved.unusable, awaited=not reserved.leases)
            if self._is_all(wish, reserved, aside=aside):
                return reserved

    def _is_all(self, wish: ReserveRequest, reserved: Reserved, *, aside: bool) -> bool:
        """Say whether another look would find no more."""
        if reserved.limited and not reserved.leases:
            return False
        # By its token it would find again what was not put aside.
        same = wish.token is not None and not aside and not reserved.limited
        if not reserved.leases and reserved.unusable and not same:
            return False
        self._marks.note(wish.topics, wish.limit, reserved)
        return not reserved.again

    def _operation(self, wish: ReserveRequest) -> Operation[Reserved]:
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

    def _wait_until(self, wish: ReserveRequest, reserved: Reserved, begun: float) -> float:
        """Have a ring for what will be due; return when that is, as far as a look can tell."""
        seconds = None if reserved.due_in is None else reserved.due_in / 1e6
        self._room.due(wish.topics, seconds)
        return math.inf if seconds is None else begun + seconds


def _reserve_offered(wish: ReserveRequest, worker: str) -> Operation[Reserved]:
    limit = min(wish.limit, *(wish.most or {}).values(), wish.limit)
    return reserving.reserve_offered(
        wish.topics, worker=worker, limit=limit, token=new_number(), session=wish.session
    )


@contextlib.contextmanager
def _telling() -> Generator[list[Exception]]:
    """Log and go on if unusable jobs cannot be put aside: their leases end by themselves."""
    told: list[Exception] = []
    try:
        yield told
    except (DatabaseError, AppClosed) as error:
        log.exception("jobs that cannot be run now could not be put aside either")
        told.append(error)
