"""A worker process to be measured: python -m bench.working SCENE TOPIC NUMBER CONCURRENCY.

It imports no more than a worker needs, for its memory is measured too. It says `ready`, waits for a
line, works, says what it found, and ends at the next line.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.tasks import app, nothing, stamped, woken
from towpath.worker import Worker
from towpath.worker.outbox import Outbox

SETTLE = 0.5  # seconds for an idle worker to fall asleep the first time


async def drain(worker: Worker, count: int, warm: int) -> None:
    """Measure from the first reservation to the last outcome; so many before that do not count."""
    reserved: list[int] = []
    written: list[int] = []
    warmed, done = asyncio.Event(), asyncio.Event()

    def on_written(size: int) -> None:
        written.append(size)
        if sum(written) >= warm:
            warmed.set()
        if sum(written) >= warm + count:
            done.set()

    _watch(reserved.append, on_written)
    working = asyncio.create_task(worker.arun())
    if warm:
        await warmed.wait()
    before = sum(written)
    cpu, start = time.process_time(), time.perf_counter()
    await done.wait()
    found: dict[str, Any] = {
        "jobs": sum(written) - before,
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "reserved": [size for size in reserved if size],
        "written": written,
    }
    await _said(found)
    worker.stop()
    await working


def _watch(on_reserved: Callable[[int], None], on_written: Callable[[int], None]) -> None:
    """Tell how many jobs each reservation brought, and how many outcomes each commit took."""
    reserve, write = Worker._reserve, Outbox._write

    async def reserving(worker: Worker, limit: int, session: int) -> Any:
        leases = await reserve(worker, limit, session)
        on_reserved(len(leases))
        return leases

    async def writing(outbox: Outbox, completions: Any, outcomes: Any) -> None:
        if outcomes:
            sys.exit("a job of a benchmark failed")  # an error would only be tried again
        await write(outbox, completions, outcomes)
        on_written(len(completions))

    Worker._reserve = reserving  # type: ignore[method-assign]
    Outbox._write = writing  # type: ignore[method-assign]


async def serve(worker: Worker) -> None:
    """Work until a line comes."""
    working = asyncio.create_task(worker.arun())
    await _said("working")
    worker.stop()
    await working
    _say(woken)


async def call(worker: Worker, count: int) -> None:
    """Enqueue single jobs beside an idle worker."""
    working = asyncio.create_task(worker.arun())
    await asyncio.sleep(SETTLE)
    for _ in range(count):
        await stamped.aenqueue(time.monotonic())
        await asyncio.sleep(random.uniform(0.01, 0.03))
    await asyncio.sleep(SETTLE)
    assert len(woken) == count
    worker.stop()
    await working
    _say(woken)


async def _said(word: object) -> None:
    """Say something, and wait for a line while the loop goes on."""
    _say(word)
    await asyncio.to_thread(sys.stdin.readline)


def _say(word: object) -> None:
    print(json.dumps(word), flush=True)


def main() -> None:
    scene, topic, number, concurrency = sys.argv[1:]
    topics = [topic]
    if scene == "topics":
        topics = [f"{topic}-{nth}" for nth in range(int(number))]
        for each in topics:
            app.task(topic=each)(nothing.function)
    app.migrate()
    _say("ready")
    sys.stdin.readline()
    asyncio.run(_play(scene, topics, int(number), int(concurrency)))
    app.close()


async def _play(scene: str, topics: list[str], number: int, concurrency: int) -> None:
    worker = Worker(app, topics=topics, concurrency=concurrency, grace=0)
    if scene == "drain":
        await drain(worker, number, 0)
    elif scene == "warm-drain":
        await drain(worker, number, 2 * concurrency)
    elif scene == "call":
        await call(worker, number)
    else:
        await serve(worker)


if __name__ == "__main__":
    main()
