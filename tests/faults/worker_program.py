"""A worker in a process of its own: python -m tests.faults.worker_program URL SCHEMA."""

import asyncio
import os
import signal
import sys
import time

from towpath import App
from towpath.worker import Worker

app = App(sys.argv[1], schema=sys.argv[2], beat_every=0.2, dead_after=1.0)


@app.task(max_crashes=2)
async def kill_me() -> None:
    """Take the worker down, before anybody knows that it has begun."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task()
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@app.task()
async def spin(seconds: float) -> str:
    """Keep the event loop busy, for longer than a silent worker is thought alive."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "spun"


@app.task()
async def note(number: int) -> int:
    return number


if __name__ == "__main__":
    print("working", flush=True)  # noqa: T201 - somebody waits for it
    Worker(app, concurrency=4, grace=10).run()
