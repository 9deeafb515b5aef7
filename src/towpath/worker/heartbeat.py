"""A worker's heartbeat, in a separate thread: a busy event loop must not look like a crash."""

import logging
import time
from collections.abc import Callable, Iterable
from threading import Event, Thread
from typing import Final

from towpath.app.app import App
from towpath.errors import AppClosed, LeaseLost
from towpath.model.job import Lease
from towpath.worker.watchdog import Watchdog

log: Final = logging.getLogger("towpath")

BEAT: Final = "the heartbeat"
CHECK_EVERY: Final = 0.5  # seconds between two queries for running jobs that were asked to stop


class Heartbeat:
    """Beats for a session until it is stopped or declared dead."""

    def __init__(
        self,
        app: App,
        session: int,
        watchdog: Watchdog,
        *,
        started: Callable[[], Iterable[Lease]],
        on_cancel: Callable[[list[tuple[int, int]]], object],
        on_stop: Callable[[], object],
        on_death: Callable[[], object],
    ) -> None:
        self._app = app
        self._session = session
        self._watchdog = watchdog
        self._started = started
        self._on_cancel = on_cancel
        self._on_stop = on_stop
        self._on_death = on_death
        self._stopping = Event()
        self._thread = Thread(target=self._beat, name="towpath-heartbeat", daemon=True)
        self._thread.start()

    def stop(self, patience: float) -> None:
        """Stop beating, and wait up to `patience` seconds for a beat in progress."""
        self._stopping.set()
        self._thread.join(patience)

    def _beat(self) -> None:
        every = self._app.settings.beat_every
        beat_at = time.monotonic() + every
        while not self._stopping.wait(min(CHECK_EVERY, max(0, beat_at - time.monotonic()))):
            self._watchdog.waits_for(BEAT)
            beats = time.monotonic() >= beat_at
            started = list(self._started())
            try:
                if beats:
                    beat_at = time.monotonic() + every
                    answer = self._app.sessions.beat(self._session, started)
                    cancelled = answer.cancelled
                    if answer.stopping:
                        self._on_stop()
                else:
                    cancelled = self._app.sessions.cancelled(self._session) if started else []
            except LeaseLost:
                self._watchdog.heard(BEAT)
                self._on_death()
                return
            except AppClosed:
                return
            except Exception as error:  # noqa: BLE001 - after any error the next beat may succeed
                if beats:
                    log.warning("the heartbeat of this worker failed: %s", error)
            else:
                self._watchdog.heard(BEAT)
                if cancelled:
                    self._on_cancel(cancelled)
        self._watchdog.heard(BEAT)
