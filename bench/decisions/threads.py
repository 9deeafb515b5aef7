"""The least that ten threads with a group commit cost: leader and followers, and nothing else.

A call spends some microseconds of Python, waits for its turn and for its commit. Bare does the very
batches in one thread. What is left between the two is the hand-over of threads, which no code of
ours can avoid.
"""

import os
import shutil
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final

from bench.decisions import show
from bench.places import disk_directory
from bench.rounds import Stopwatch

THREADS: Final = 10
CALLS: Final = 600  # of each thread
ROUNDS: Final = 3
SQL_US: Final = 10  # microseconds that the driver spends on a job, and twice that on a transaction
PAGE: Final = b"x" * 4_096

Signal = SimpleQueue[bool]  # True asks to lead, False says done


def spend(microseconds: float) -> None:
    end = time.perf_counter() + microseconds / 1e6
    while time.perf_counter() < end:
        pass


class GroupCommit:
    """A thread that finds no leader leads, for all that wait."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._waiting: deque[Signal] = deque()
        self._mutex = Lock()
        self._led = False
        self.sizes: list[int] = []

    def commit(self, size: int) -> None:
        spend(SQL_US * (size + 2))
        os.pwrite(self._file, PAGE, 0)
        os.fdatasync(self._file)

    def call(self) -> None:
        signal: Signal = SimpleQueue()
        with self._mutex:
            self._waiting.append(signal)
            leads, self._led = not self._led, True
        while leads or signal.get():
            leads = False
            with self._mutex:
                batch = list(self._waiting)
                self._waiting.clear()
            self.commit(len(batch))
            self.sizes.append(len(batch))
            for each in batch:
                each.put(False)
            with self._mutex:
                if self._waiting:
                    self._waiting[0].put(True)
                else:
                    self._led = False


def ratio(python_us: float, path: Path) -> float:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    best: list[float] = []
    for _ in range(ROUNDS):
        group = GroupCommit(file)

        def calls(group: GroupCommit = group) -> None:
            for _ in range(CALLS):
                spend(python_us)
                group.call()

        threads = [Thread(target=calls) for _ in range(THREADS)]
        watch = Stopwatch()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ours = watch.rate(THREADS * CALLS).per_second
        watch = Stopwatch()
        for size in list(group.sizes):
            group.commit(size)
        best.append(ours / watch.rate(THREADS * CALLS).per_second)
    os.close(file)
    return max(best)


def main() -> None:
    directory = disk_directory()
    try:
        rows = [[us, ratio(us, directory / "file")] for us in (0, 5, 10, 20, 40)]
    finally:
        shutil.rmtree(directory)
    show("ten threads, one group commit", ["µs of Python a call", "of bare"], rows)


if __name__ == "__main__":
    main()
