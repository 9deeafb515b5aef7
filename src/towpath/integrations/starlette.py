"""A worker in the event loop of a Starlette or FastAPI application.

    api = FastAPI(lifespan=lifespan(app))

For more than a little work, run workers in separate processes instead.
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
"""The type of Starlette's `lifespan`: it takes the application and runs as long as it."""


def lifespan(
    app: App,
    own: Lifespan | None = None,  # the application's own lifespan
    *,
    worker: Callable[[], Worker] | bool = True,  # makes the worker; False: none
) -> Lifespan:
    """Return a lifespan that runs a worker, inside the application's own lifespan if it has one.

    The worker starts after the application's own lifespan has started, and ends before it ends:
    running jobs are finished within the grace period, others are given back. To set the worker's
    options, pass a function: `worker=lambda: Worker(app, concurrency=4)`; False runs no worker.
    The app stays open.
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
        log.error("the worker of this application failed", exc_info=working.exception())
