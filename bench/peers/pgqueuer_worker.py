"""PgQueuer going through waiting jobs, in an environment of its own: URL COUNT BODY.

On asyncpg with two connections, which is what we have, uvloop, and batches of 500. It is told to
drain, which writes the last outcomes at once.
"""

import json
import sys
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.core.buffers import JobStatusLogBuffer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH = 500


async def main(url: str, count: int, body: bytes) -> None:
    async with asyncpg.create_pool(url, min_size=2, max_size=2) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        await queries.install()
        for start in range(0, count, 1_000):
            size = min(1_000, count - start)
            await queries.enqueue(["nothing"] * size, [body] * size, [0] * size)
        queue = PgQueuer(driver)

        @queue.entrypoint("nothing")
        async def nothing(job: Any) -> None: ...

        last = _last_outcome()
        print("ready", flush=True)
        sys.stdin.readline()
        cpu, start_at = time.process_time(), time.perf_counter()
        await queue.run(
            batch_size=BATCH,
            mode=QueueExecutionMode.drain,
            dequeue_timeout=timedelta(seconds=0.1),
        )
        spent = time.process_time() - cpu
        assert last["outcomes"] == count
        print(json.dumps({"seconds": last["at"] - start_at, "cpu": spent}))


def _last_outcome() -> dict[str, Any]:
    """Keep when the last outcome was written, and how many were."""
    seen = {"at": 0.0, "outcomes": 0}
    flush = JobStatusLogBuffer.flush_items

    async def flushing(buffer: Any, items: list[Any]) -> None:
        await flush(buffer, items)
        seen["at"] = time.perf_counter()
        seen["outcomes"] += len(items)

    JobStatusLogBuffer.flush_items = flushing
    return seen


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()))
