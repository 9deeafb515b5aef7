"""Reservations: leasing jobs, and waiting for them."""

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

OFFERS_EVERY: Final = 0.1  # seconds between two queries for offers while there are other jobs


class ReserveRequest(Struct, frozen=True):
    """The arguments of a reservation."""

    topics: tuple[str, ...]
    limit: int
    session: int | None
    token: int | None  # set if the caller may repeat the call
    most: Mapping[str, int] | None  # the most jobs of single topics
    worker: str | None  # its name
    expires: bool = False  # the lease ends at its ttr, even if it has a session


class Wait(Struct, frozen=True):
    """A step that waits until the waiter is woken, or until the time is over."""

    waiter: Any  # a ThreadWaiter or a TaskWaiter, as the driver of the steps needs it
    seconds: float


class GiveBack(Struct, frozen=True):
    """A step that settles leased jobs which cannot run now."""

    outcomes: Sequence[Outcome]
    awaited: bool  # False: the caller has other leases, and must not wait


Taking: TypeAlias = Generator[Operation[Any] | Wait | GiveBack, Any, T]
"""The steps of a reservation, which run blocking or async."""


class Reservations:
    """Leases jobs, most urgent first, and waits if there are none."""

    def __init__(self, app: "App", room: Waiters, marks: LowWater) -> None:
        self._app = app
        self._room = room
        self._marks = marks
        self._giving_back: set[asyncio.Task[bool]] = set()
        self._limited: set[str] = set()  # topics of requests that met a job with a limit
        self._busy = False  # the last query got a job
        self._offers_at = 0.0  # when offers were last queried

    def take(self, request: ReserveRequest, timeout: float) -> list[Lease]:
        """Lease the ready jobs; if there are none, wait up to `timeout` seconds for one."""
        return drive(self._taken(request, timeout, ThreadWaiter), self._do)

    async def atake(self, request: ReserveRequest, timeout: float) -> list[Lease]:
        """Lease the ready jobs; if there are none, wait up to `timeout` seconds for one."""
        return await adrive(self._taken(request, timeout, TaskWaiter), self._ado)

    def _do(self, step: Operation[Any] | Wait | GiveBack) -> Any:
        if isinstance(step, Operation):
            return self._app.run(step)
        if isinstance(step, Wait):
            return step.waiter.wait(step.seconds)
        with _logged() as errors:
            self._app.run(leases.settle(step.outcomes))
        return not errors

    async def _ado(self, step: Operation[Any] | Wait | GiveBack) -> Any:
        if isinstance(step, Operation):
            return await self._app.arun(step)
        if isinstance(step, Wait):
            return await step.waiter.wait(step.seconds)
        # A separate task: a caller that is cancelled here would lose its other leases.
        task = asyncio.create_task(self._give_back(step.outcomes))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)
        return await asyncio.shield(task) if step.awaited else True

    async def _give_back(self, outcomes: Sequence[Outcome]) -> bool:
        with _logged() as errors:
            await self._app.arun(leases.settle(outcomes))
        return not errors

    def _taken(
        self, request: ReserveRequest, timeout: float, waiting: type[ThreadWaiter | TaskWaiter]
    ) -> Taking[list[Lease]]:
        reserved = yield from self._query(request)
        if reserved.leases or timeout == 0:
            return reserved.leases
        deadline = time.monotonic() + timeout
        waiter = waiting(request.topics)
        self._room.enter(waiter)
        try:
            # Query after entering, so that no job is missed in between.
            while True:
                begun = time.monotonic()
                reserved = yield from self._query(request)
                if reserved.leases or begun > deadline:
                    break
                due = self._wait_until(request, reserved, begun)
                rung: bool = yield Wait(waiter, deadline - time.monotonic())
                if not rung and due > deadline:
                    return []
        except BaseException:
            self._room.ring_here(
                request.topics
            )  # the next waiter may take the job that woke this one
            raise
        finally:
            self._room.leave(waiter)
        self._room.ring_here(request.topics)
        return reserved.leases

    def _query(self, request: ReserveRequest) -> Taking[Reserved]:
        """Query once for ready jobs, and for jobs that are offered to this worker."""
        if self._offers_first(request) and (offered := (yield from self._offered(request))):
            return offered
        reserved = yield from self._ready(request)
        self._busy = bool(reserved.leases)
        if not self._busy and request.worker:
            return (yield from self._offered(request)) or reserved
        return reserved

    def _offers_first(self, request: ReserveRequest) -> bool:
        """Say whether offers are queried first, although there are other jobs."""
        now = time.monotonic()
        if request.worker is None or not self._busy or now < self._offers_at + OFFERS_EVERY:
            return False
        self._offers_at = now
        return True

    def _offered(self, request: ReserveRequest) -> Taking[Reserved | None]:
        if request.worker is None or not (yield runs.are_offered(request.topics)):
            return None
        reserved: Reserved = yield _reserve_offered(request, request.worker)
        return reserved if reserved.leases else None

    def _ready(self, request: ReserveRequest) -> Taking[Reserved]:
        """Query once, or again if no leased job can run."""
        while True:
            reserved: Reserved = yield self._operation(request)
            given_back = True
            if reserved.limited:
                self._limited.update(request.topics)
            if reserved.unusable:
                given_back = yield GiveBack(reserved.unusable, awaited=not reserved.leases)
            if self._is_all(request, reserved, given_back=given_back):
                return reserved

    def _is_all(self, request: ReserveRequest, reserved: Reserved, *, given_back: bool) -> bool:
        """Say whether another query would get no more jobs."""
        if reserved.limited and not reserved.leases:
            return False
        # With the same token the query would return the leases that were not given back.
        same = request.token is not None and not given_back and not reserved.limited
        if not reserved.leases and reserved.unusable and not same:
            return False
        self._marks.note(request.topics, request.limit, reserved)
        return not reserved.again

    def _operation(self, request: ReserveRequest) -> Operation[Reserved]:
        return reserving.reserve(
            request.topics,
            limit=request.limit,
            session=request.session,
            worker=request.worker if request.session is None else None,
            expires=request.expires,
            token=new_number() if request.token is None else request.token,
            known_token=request.token is not None,
            ranges=self._marks.ranges(request.topics),
            limited=not self._limited.isdisjoint(request.topics),
            most=request.most,
        )

    def _wait_until(self, request: ReserveRequest, reserved: Reserved, begun: float) -> float:
        """Set the timer for the next due job; return when that is."""
        seconds = None if reserved.due_in is None else reserved.due_in / 1e6
        self._room.due(request.topics, seconds)
        return math.inf if seconds is None else begun + seconds


def _reserve_offered(request: ReserveRequest, worker: str) -> Operation[Reserved]:
    limit = min(request.limit, *(request.most or {}).values(), request.limit)
    return reserving.reserve_offered(
        request.topics, worker=worker, limit=limit, token=new_number(), session=request.session
    )


@contextlib.contextmanager
def _logged() -> Generator[list[Exception]]:
    """Log and continue if unusable jobs cannot be settled; their leases will expire."""
    errors: list[Exception] = []
    try:
        yield errors
    except (DatabaseError, AppClosed) as error:
        log.exception("could not give back jobs that cannot run now; their leases will expire")
        errors.append(error)
