"""Huey going through waiting jobs in a SQLite file, in an environment of its own.

FILE COUNT SYNCHRONOUS BODY. One worker: all threads of a process share one connection and its lock.
"""

import json
import sys
import threading
import time

from huey import SqliteHuey


def main(file: str, count: int, synchronous: str, body: str) -> None:
    huey = SqliteHuey(filename=file, fsync=False)
    done = threading.Event()
    left = count

    @huey.task()
    def nothing(body: str) -> None:  # noqa: ARG001 - jobs carry it
        nonlocal left
        left -= 1
        if not left:
            done.set()

    for _ in range(count):
        nothing(body)
    huey.storage.sql("pragma wal_checkpoint(truncate)")
    _be(huey, synchronous)
    consumer = huey.create_consumer(workers=1, periodic=False)
    print("ready", flush=True)
    sys.stdin.readline()
    cpu, start = time.process_time(), time.perf_counter()
    consumer.start()
    done.wait()
    seconds, spent = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu": spent}), flush=True)
    consumer.stop()


def _be(huey: SqliteHuey, synchronous: str) -> None:
    """Make its connection as durable as ours; Huey itself only knows full and off."""
    connection = huey.storage.conn
    connection.execute(f"pragma synchronous={synchronous}")
    found = connection.execute("pragma synchronous").fetchone()[0]
    assert found == {"normal": 1, "full": 2}[synchronous]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
