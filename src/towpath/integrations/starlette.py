"""A worker in the event loop of a Starlette or FastAPI application.

    api = FastAPI(lifespan=lifespan(app))

For more than a little work, run workers in processes of their own instead.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from towpath.app.app import App
from towpath.worker import Worker

log: Final = logging.getLogger("towpath")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""What Starlette takes as `lifespan`: given the application, it begins and ends with it."""


def lifespan(
    app: App, own: Lifespan | None = None, *, worker: Callable[[], Worker] | bool = True
) -> Lifespan:
    """Return a lifespan that runs a worker, inside the application's own lifespan if it has one.

    The worker begins when the own lifespan has begun, and that ends only when the worker has: what
    runs is finished within the grace period, the rest is given back. To set its options, say how
    to make it: `worker=lambda: Worker(app, concurrency=4)`; False runs none. The app stays open.
    """

    @contextlib.asynccontextmanager
    async def living(server: Any) -> AsyncGenerator[Any]:
        begin = own or _no_own
        async with begin(server) as state:
            if worker is False:
                yield state
                return
            async with _working(Worker(app) if worker is True else worker()):
                yield state

    return living


@contextlib.asynccontextmanager
async def _working(worker: Worker) -> AsyncGenerator[None]:
    working = asyncio.create_task(worker.arun())
    working.add_done_callback(_report)
    try:
        yield
    finally:
        worker.stop()
        await working


@contextlib.asynccontextmanager
async def _no_own(_: Any) -> AsyncGenerator[None]:
    yield


def _report(working: "asyncio.Task[None]") -> None:
    if not working.cancelled() and working.exception():
        log.error("the worker of this application ended", exc_info=working.exception())
