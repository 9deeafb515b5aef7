"""A worker, and what delivers webhooks, in the event loop of a Starlette or FastAPI application.

    api = FastAPI(lifespan=lifespan(app))

For more than a little work, run them in separate processes instead.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from towpath.app.app import App
from towpath.webhooks.running import Deliveries
from towpath.worker import Worker

if TYPE_CHECKING:
    from towpath.server import Api

log: Final = logging.getLogger("towpath")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""The type of Starlette's `lifespan`: it takes the application and runs as long as it."""


def lifespan(
    app: App,
    own: Lifespan | None = None,  # the application's own lifespan
    *,
    worker: Callable[[], Worker] | bool = True,  # makes the worker; False: none
    deliveries: Callable[[], Deliveries] | bool = False,  # makes what delivers webhooks
    api: "Api | None" = None,  # that the application mounts
) -> Lifespan:
    """Return a lifespan that runs a worker, inside the application's own lifespan if it has one.

    The worker starts after the application's own lifespan has started, and ends before it ends:
    running jobs are finished within the grace period, others are given back. To set the worker's
    options, pass a function: `worker=lambda: Worker(app, concurrency=4)`; False runs no worker.
    With `deliveries=True` webhooks are delivered beside it, by all parts and with upkeep; it ends
    as the worker does. A function sets its options: `lambda: Deliveries(app, concurrency=20)`.
    A mounted `api` ends its server-sent events and WebSockets when the process is asked to stop.
    The app stays open.
    """

    @contextlib.asynccontextmanager
    async def living(server: Any) -> AsyncGenerator[Any]:
        begin = own or _no_own
        async with begin(server) as state, _closing(api):
            parts: list[Worker | Deliveries] = []
            if worker is not False:
                parts.append(Worker(app) if worker is True else worker())
            if deliveries is not False:
                parts.append(Deliveries(app) if deliveries is True else deliveries())
            async with _working(parts):
                yield state

    return living


@contextlib.asynccontextmanager
async def _working(parts: Sequence[Worker | Deliveries]) -> AsyncGenerator[None]:
    working = [asyncio.create_task(part.arun()) for part in parts]
    for part, each in zip(parts, working, strict=True):
        named = "worker" if isinstance(part, Worker) else "delivery of webhooks"
        each.add_done_callback(partial(_report, named))
    try:
        yield
    finally:
        for part in parts:
            part.stop()
        await asyncio.gather(*working)


@contextlib.asynccontextmanager
async def _closing(api: "Api | None") -> AsyncGenerator[None]:
    """Close the API at a signal, before the server that handles it waits for open answers."""
    if api is None:
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(api.close)
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    with contextlib.suppress(ValueError):  # not in the main thread: a test, not a server
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)


@contextlib.asynccontextmanager
async def _no_own(_: Any) -> AsyncGenerator[None]:
    yield


def _report(part: str, working: "asyncio.Task[None]") -> None:
    if not working.cancelled() and working.exception():
        log.error("the %s of this application failed", part, exc_info=working.exception())
