"""Upkeep: promote what is due, rescue what is lost, forget what is old. On any process, no leader.

Reservations promote and rescue in their own topics, so upkeep only bounds how long things take.
"""

import logging
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from towpath.database.forks import begin_anew_after_fork
from towpath.errors import DatabaseUnavailable, TowpathError
from towpath.operation import Operation
from towpath.store import dependencies, leases, limits, reserving, sessions, stats, topics, upkeep

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

EVERY: Final = 1.0  # seconds between two rounds, at most
PRUNE_EVERY: Final = 60_000_000  # microseconds of the database's clock
FORGET_TOPICS_EVERY: Final = 60 * PRUNE_EVERY
MOST_BATCHES: Final = 100  # of one kind in one round


class Seen(Struct, frozen=True):
    """A session as this observer knows it."""

    beats: int
    since: int  # the database's clock when this beat was first seen


class Upkeep:
    """What every process may do for all."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._seen: dict[int, Seen] = {}
        self._looked_at: int | None = None
        self._away = False  # the database, in this round
        self._pruned_at = 0
        self._topics_kept_until = 0
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._stopping = Event()
        self._thread: Thread | None = None

    def start_again(self) -> None:
        """Begin anew in a forked child, which has no thread until it starts one."""
        self._start()

    def run(self) -> None:
        """Do one round. What fails is logged and does not keep the rest from being done.

        While the database is away the round is left out, and so is the rest of one that is stopped.
        """
        self._away = False
        names: list[str] = self._do(topics.list_topics()) or []
        self._repeat(lambda: self._do(reserving.promote(names)))
        self._repeat(lambda: self._do(leases.rescue(names)))
        self._do(limits.free_all())
        self._do(dependencies.tell_all())
        self._watch_sessions()
        self._do(sessions.adopt_orphans())
        self._do(stats.roll_up())
        self._forget()

    def start(self) -> None:
        """Do a round every second or oftener, in a thread."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = Thread(target=self._go_on, name="towpath-upkeep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread:
            self._thread.join()
            self._thread = None
        self._stopping.clear()

    def _go_on(self) -> None:
        # Often enough that looking itself never leaves a gap in watching the sessions.
        every = min(EVERY, self._app.settings.dead_after / 8)
        while not self._stopping.is_set():
            started = time.monotonic()
            self.run()
            self._stopping.wait(max(0, every - (time.monotonic() - started)))

    def _do(self, operation: Operation[Any]) -> Any:
        if self._away or self._stopping.is_set():
            return None
        try:
            return self._app.run(operation)
        except DatabaseUnavailable as error:
            self._away = True
            log.warning("upkeep could not %s: %s", operation.name, error)
        except TowpathError as error:
            log.warning("upkeep could not %s: %s", operation.name, error)
        except Exception:  # one bad thing must not end all upkeep
            log.exception("upkeep could not %s", operation.name)
        return None

    def _repeat(self, step: Callable[[], Any]) -> None:
        for _ in range(MOST_BATCHES):
            if not step():
                return

    def _forget(self) -> None:
        """Forget what is old or empty, but seldom: looking for it reads more than its own rows."""
        now: int | None = self._do(upkeep.clock())
        if now is None:
            return
        if now - self._pruned_at >= PRUNE_EVERY:
            self._repeat(lambda: self._do(upkeep.prune()))
            self._repeat(lambda: self._do(stats.sum_up()))
            self._do(limits.forget_unused())
            self._pruned_at = now
        if self._app.settings.topic_cleanup and now >= self._topics_kept_until:
            forgotten = self._do(topics.forget_empty())
            # Soon again after one was forgotten, for a job of it may have been on its way.
            pause = FORGET_TOPICS_EVERY if forgotten == [] else PRUNE_EVERY
            self._topics_kept_until = now + pause

    def _watch_sessions(self) -> None:
        """Call a session dead only when this observer itself saw it silent for long enough.

        After a gap in its own looking, such as an outage of the database, it starts to count anew.
        """
        found: list[tuple[int, int, int]] | None = self._do(sessions.observe())
        if not found:
            self._seen.clear()
            return
        now = found[0][2]
        dead_after = int(self._app.settings.dead_after * 1e6)
        gap = self._looked_at is None or now - self._looked_at > dead_after // 2
        self._looked_at = now
        seen: dict[int, Seen] = {}
        for session, beats, _ in found:
            known = self._seen.get(session)
            if known is None or gap or known.beats != beats:
                known = Seen(beats, now)
            seen[session] = known
            if now - known.since >= dead_after:
                self._do(sessions.bury_session(session, beats))
        self._seen = seen
