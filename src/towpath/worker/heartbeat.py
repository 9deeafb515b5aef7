"""A worker's sign of life, from a thread of its own: a busy event loop is not death."""

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

BEAT: Final = "a beat of its heart"
LOOK_EVERY: Final = 0.5  # seconds between two looks for running jobs that were asked to stop


class Heartbeat:
    """Beats for a session until it is stopped or called dead."""

    def __init__(
        self,
        app: App,
        session: int,
        health: Watchdog,
        *,
        started: Callable[[], Iterable[Lease]],
        on_cancel: Callable[[list[tuple[int, int]]], object],
        on_death: Callable[[], object],
    ) -> None:
        self._app = app
        self._session = session
        self._health = health
        self._started = started
        self._on_cancel = on_cancel
        self._on_death = on_death
        self._stopping = Event()
        self._thread = Thread(target=self._go_on, name="towpath-heart", daemon=True)
        self._thread.start()

    def stop(self, patience: float) -> None:
        """Beat no more, and wait a while for a beat that is on its way."""
        self._stopping.set()
        self._thread.join(patience)

    def _go_on(self) -> None:
        every = self._app.settings.beat_every
        beat_at = time.monotonic() + every
        while not self._stopping.wait(min(LOOK_EVERY, max(0, beat_at - time.monotonic()))):
            self._health.waits_for(BEAT)
            beats = time.monotonic() >= beat_at
            started = list(self._started())
            try:
                if beats:
                    beat_at = time.monotonic() + every
                    cancelled = self._app.sessions.beat(self._session, started)
                else:
                    cancelled = self._app.sessions.cancelled(self._session) if started else []
            except LeaseLost:
                self._health.heard(BEAT)
                self._on_death()
                return
            except AppClosed:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may get through
                if beats:
                    log.warning("a worker could not show that it lives: %s", error)
            else:
                self._health.heard(BEAT)
                if cancelled:
                    self._on_cancel(cancelled)
        self._health.heard(BEAT)
