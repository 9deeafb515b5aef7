"""Low-water marks: where in the order of each topic the last reservation ended.

With them PostgreSQL skips dead rows that an old transaction keeps from being removed. A mark lives
in one process and for at most a second, so that no job that sorts before it stays hidden.
"""

import time
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

from towpath.database.forks import begin_anew_after_fork
from towpath.store.reserving import Range, Reserved

MOST_AGE: Final = 1.0  # seconds
MOST_MARKS: Final = 8  # of one topic: each is one more range to read


class LowWater:
    """The marks of one process, by topic and priority."""

    def __init__(self, *, kept: bool) -> None:
        self._kept = kept  # SQLite has no dead rows to skip
        self._start()
        begin_anew_after_fork(self)

    def start_again(self) -> None:
        """Start again in a forked child, where another thread's lock would stay locked."""
        self._start()

    def _start(self) -> None:
        self._lock = Lock()
        self._marks: dict[str, dict[int, int]] = {}
        self._due_from: dict[str, int] = {}
        self._born: dict[str, float] = {}

    def ranges(self, topics: Sequence[str]) -> list[Range]:
        """Return the ranges of these topics that a reservation has to read."""
        with self._lock:
            return [part for topic in topics for part in self._ranges(topic)]

    def _ranges(self, topic: str) -> list[Range]:
        if time.monotonic() - self._born.get(topic, 0) > MOST_AGE:
            self._drop(topic)
        due_from = self._due_from.get(topic, 0)
        parts: list[Range] = []
        behind: tuple[int, int] = (-1, 0)
        for priority, seq in sorted(self._marks.get(topic, {}).items()):
            parts.append(Range(topic, *behind, upto=priority - 1, due_from=due_from))
            behind = (priority, seq)
        return [*parts, Range(topic, *behind, due_from=due_from)]

    def note(self, topics: Sequence[str], limit: int, reserved: Reserved) -> None:
        """Move the marks after a reservation; drop them if it got fewer jobs than wanted."""
        if not self._kept:
            return
        with self._lock:
            if len(reserved.leases) < limit or reserved.back_in_line:
                for topic in topics:
                    self._drop(topic)
                return
            now = time.monotonic()
            for topic in topics:
                self._born.setdefault(topic, now)
                self._due_from[topic] = reserved.now
            for lease in reserved.leases:
                marks = self._marks.setdefault(lease.job.topic, {})
                mark = marks.get(lease.job.priority, 0)
                marks[lease.job.priority] = max(mark, lease.job.seq)
                if len(marks) > MOST_MARKS:
                    marks.clear()

    def drop(self, topics: Iterable[str]) -> None:
        """Drop the marks of these topics, as a job became ready before them."""
        with self._lock:
            for topic in topics:
                self._drop(topic)

    def _drop(self, topic: str) -> None:
        self._marks.pop(topic, None)
        self._due_from.pop(topic, None)
        self._born.pop(topic, None)
