"""Live counts: one process counts once for all of its viewers, and only while it has some.

A viewer keeps the version that it has seen, and gets what has changed since. So nothing is queued
for a viewer that does not read. No wakeup tells of every change, and on SQLite each commit rings
all of them; so the counts themselves are compared, once a second.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import field

from towpath.errors import TowpathError
from towpath.model.bulk import Bulk
from towpath.model.stats import TopicStats
from towpath.server.bulk_outputs import bulk_shown
from towpath.server.outputs import CompletedTotal, FailedNow, FailedTotal, ResponseBody, shown

if TYPE_CHECKING:
    from towpath import App

log: Final = logging.getLogger("towpath.server")

EVERY: Final = 1.0  # seconds between two counts, at least
SHARE: Final = 0.05  # of its time that a process counts, at most
EVERY_FOR_EACH: Final = 0.08  # seconds for each viewer, whose page asks for its rows after a change
LONGEST: Final = 10.0  # seconds for all viewers together
MOST_BULK: Final = 100
MOST_COUNTED: Final = 100_000  # jobs of each state
_encoder: Final = msgspec.json.Encoder()


class LiveTopic(ResponseBody):
    """Counts of one topic, as `/api/topics` has them, without rates and workers."""

    topic: str
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    exact: bool
    oldest_at: datetime | None
    paused: bool
    paused_until: datetime | None
    completed: CompletedTotal
    failed: FailedNow
    failed_total: FailedTotal
    avg_duration_ms: float | None = field(name="avgExecutionTime")


class LiveCounts:
    """What the viewers of one process are told."""

    def __init__(self, app: "App") -> None:
        self.looks = 0  # how often it has counted
        self._app = app
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._forget()

    def _forget(self) -> None:
        """Know nothing, as before the first count: what was known is old by now."""
        self._version = 0
        self._moved = asyncio.Event()
        self._counted_at: datetime | None = None
        self._topics: dict[str, TopicStats] = {}
        self._bulks: dict[UUID, Bulk] = {}
        self._changed: dict[str, int] = {}  # the version of each topic's last change
        self._gone: dict[str, int] = {}
        self._moved_bulks: dict[UUID, int] = {}
        self._told: dict[int, list[bytes]] = {}  # what is new since a version, encoded once for all

    @contextlib.contextmanager
    def viewer(self) -> Generator[None]:
        """Count while this lasts."""
        self._viewers += 1
        if self._task is None:
            self._forget()
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._task.cancel()
                self._task = None

    async def after(self, version: int, seconds: float) -> tuple[int, list[bytes]]:
        """Return what is new since a version, and the version now; wait for it so many seconds."""
        if self._version == version:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._moved.wait()
        if version not in self._told:
            self._told[version] = [*self._news(version)]
        return self._version, self._told[version]

    def beat(self) -> bytes:
        """Return a sign of life, which tells how old the counts are."""
        return _frame(beat={"at": datetime.now(UTC), "countedAt": self._counted_at})

    async def _run(self) -> None:
        """Count again and again, and rest in between."""
        while True:
            began = time.monotonic()
            try:
                await self._look()
            except TowpathError as error:  # beats go on, and tell how old the counts are
                log.warning("live counts: %s", error)
            except Exception:  # one bad row must not end the counts
                log.exception("live counts failed")
            await asyncio.sleep(rest_after(time.monotonic() - began, self._viewers))

    async def _look(self) -> None:
        topics = {each.topic: each for each in await self._app.topics.astats(MOST_COUNTED)}
        bulks = {each.id: each for each in await self._app.bulk.alist(MOST_BULK)}
        self.looks += 1
        self._counted_at = datetime.now(UTC)
        changed = {name for name, each in topics.items() if self._topics.get(name) != each}
        gone = self._topics.keys() - topics.keys()
        moved = {id for id, each in bulks.items() if self._bulks.get(id) != each}
        self._topics, self._bulks = topics, bulks
        if self._version and not (changed or gone or moved):
            return
        self._version += 1
        for name in changed:
            self._changed[name] = self._version
            self._gone.pop(name, None)
        for name in gone:
            self._gone[name] = self._version
            self._changed.pop(name, None)
        self._moved_bulks = {
            id: self._version if id in moved else self._moved_bulks[id] for id in bulks
        }
        self._told.clear()
        self._moved.set()
        self._moved = asyncio.Event()

    def _news(self, since: int) -> Generator[bytes]:
        names = [name for name, version in self._changed.items() if version > since]
        gone = [name for name, version in self._gone.items() if version > since]
        if self._version > since and (names or gone or not since):
            topics = [shown(LiveTopic, self._topics[name]) for name in names]
            gone = gone if since else []
            yield _frame(counts={"at": self._counted_at, "topics": topics, "gone": gone})
        if since and (names or gone):
            yield _frame(changed={"topics": names + gone})
        for id, version in reversed(self._moved_bulks.items()):  # the oldest first
            bulk = self._bulks[id]
            if version > since and (since or bulk.ended_at is None):
                yield _frame(bulk=bulk_shown(bulk))


def rest_after(seconds: float, viewers: int) -> float:
    """Return how long to rest after a count that took so many seconds."""
    every = max(EVERY, min(viewers * EVERY_FOR_EACH, LONGEST))
    return max(every - seconds, seconds * (1 / SHARE - 1))


def _frame(**said: Any) -> bytes:
    return b"data: " + _encoder.encode(said) + b"\n\n"
