"""Upkeep: promote, rescue, fire schedules, forget what is old. On any process, no leader.

Reservations promote and rescue in their own topics, so upkeep only bounds how long things take.
"""

import logging
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from towpath.app.sessions import new_number
from towpath.database.forks import begin_anew_after_fork
from towpath.errors import DatabaseUnavailable, TowpathError
from towpath.model.payload import clean_text
from towpath.operation import Operation
from towpath.store import (
    accounts,
    dependencies,
    leases,
    limits,
    logins,
    reserving,
    retention,
    schedules,
    sessions,
    stats,
    topics,
)
from towpath.store.schedules import Fired, FirePlan, Move, Owed, ScheduleRow
from towpath.store.sessions import Adopted

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

EVERY: Final = 1.0  # seconds between two rounds, at most
SHORTEST_REST: Final = 0.001  # seconds
PRUNE_EVERY: Final = 60_000_000  # microseconds of the database's clock
FORGET_TOPICS_EVERY: Final = 60 * PRUNE_EVERY
MANY_TOPICS: Final = 1_000  # of which the empty ones are forgotten oftener
MOST_BATCHES: Final = 100  # of one kind in one round
MOST_ERROR: Final = 1_000  # characters
NEVER: Final = float("inf")


class SeenSession(Struct, frozen=True):
    """A session as this observer knows it."""

    beats: int
    since: int  # the database's clock when this beat was first seen
    could_beat_since: int | None = None  # when this observer itself could write, in the silence


class Upkeep:
    """What every process may do for all."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._seen: dict[int, SeenSession] = {}
        self._looked_at: int | None = None
        self._away = False  # the database, in this round
        self._clock: int | None = None  # of the database, at the last round
        self._set_back = True  # the clock; what lies too far ahead since is not all brought near
        self._pruned_at = 0
        self._topics_kept_until = 0
        self._fires_at = NEVER  # the next schedule, as far as is known
        self._freed_upto = ""  # the last key of a limit that was looked at
        self._adopted_upto = 0  # the last lease whose session was looked for
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
        now: int | None = self._do(retention.clock())
        if now is not None:
            self._heed(now)
        self._fire()
        self._come_due()
        self._free()
        self._do(dependencies.tell_all())
        self._watch_sessions()
        self._adopt()
        self._do(stats.roll_up())
        if now is not None:
            self._forget(now)

    def start(self) -> None:
        """Do a round every second or oftener, in a thread."""
        self._stopping.clear()
        if self._thread is None:
            self._thread = Thread(target=self._go_on, name="towpath-upkeep", daemon=True)
            self._thread.start()

    def stop(self, patience: float | None = None) -> None:
        """End the thread, and wait for that; with `patience`, for so many seconds at most."""
        self._stopping.set()
        if self._thread:
            self._thread.join(patience)
            if self._thread.is_alive():
                return  # it ends after the statement that it waits for
            self._thread = None
        self._stopping.clear()

    def _go_on(self) -> None:
        # Often enough that looking itself never leaves a gap in watching the sessions.
        every = min(EVERY, self._app.settings.dead_after / 8)
        while not self._stopping.is_set():
            started = time.monotonic()
            self.run()
            self._rest(started + every)

    def _rest(self, until: float) -> None:
        """Wait for the next round; what fires before it fires at its time."""
        while self._fires_at < until:
            if self._stopping.wait(max(SHORTEST_REST, self._fires_at - time.monotonic())):
                return
            self._fire()
        self._stopping.wait(max(0, until - time.monotonic()))

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

    def _heed(self, now: int) -> None:
        """Notice that the clock was set back. Before the first round it may have been, too."""
        if self._clock is not None and now < self._clock:
            log.warning("the database's clock went back by %g s", (self._clock - now) / 1e6)
            self._set_back = True
            self._looked_at = None  # sessions are watched from here on
            self._pruned_at = self._topics_kept_until = 0
        self._clock = now
        if self._set_back:
            self._set_back = not self._brought_near()

    def _brought_near(self) -> bool:
        """Bring near what lies further ahead than it can; say whether nothing is left."""
        left = [self._do(leases.move_near()), self._do(limits.move_near())]
        found: list[ScheduleRow] | None = self._do(schedules.find_all())
        moves = [move for each in found or () if (move := self._moved_near(each))]
        moved: int | None = self._do(schedules.move_near(moves)) if moves else 0
        return left == [0, 0] and found is not None and moved == len(moves)

    def _moved_near(self, found: ScheduleRow) -> Move | None:
        try:
            return schedules.moved_near(found)
        except Exception:  # noqa: BLE001 - one that cannot be read is reported when it is due
            return None

    def _come_due(self) -> None:
        names: list[str] = self._do(topics.due()) or []
        if names:
            self._repeat(lambda: self._do(reserving.promote(names)))
            self._repeat(lambda: self._do(leases.rescue(names)))

    def _free(self) -> None:
        """Let in what waits for limits and was forgotten: some keys in each round, in turn."""
        keys: list[str] = self._do(limits.blocked_keys(self._freed_upto)) or []
        self._freed_upto = keys[-1] if len(keys) == limits.KEYS_AT_ONCE else ""
        if keys:
            self._do(limits.free(keys))

    def _adopt(self) -> None:
        """Take back leases whose session is gone: some leases in each round, in turn."""
        adopted: Adopted | None = self._do(sessions.adopt_orphans(self._adopted_upto))
        self._adopted_upto = adopted.upto if adopted else 0

    def _fire(self) -> None:
        """Fire the schedules that are due, and find out when the next one is."""
        self._fire_owed()
        last: ScheduleRow | None = None
        for _ in range(MOST_BATCHES):
            found: list[ScheduleRow] = self._do(schedules.look(last)) or []
            if not found:
                break
            self._fire_together([plan for each in found if (plan := self._planned(each))])
            last = found[-1]
        wait: int | None = self._do(schedules.next_due())
        self._fires_at = NEVER if wait is None else time.monotonic() + wait / 1e6

    def _fire_owed(self) -> None:
        last: Owed | None = None
        for _ in range(MOST_BATCHES):
            owed: list[Owed] = self._do(schedules.owed(last)) or []
            if not owed:
                return
            if self._do(schedules.fire_owed(owed, self._app.storing.each)) is None:
                for each in owed:  # one of them may spoil it for the others
                    self._do(schedules.fire_owed([each], self._app.storing.each))
            last = owed[-1]

    def _fire_together(self, plans: list[FirePlan]) -> None:
        if not plans:
            return
        fired: list[Fired] | None = self._do(schedules.fire(plans, self._app.storing.each))
        if fired is None and len(plans) > 1:  # one of them may spoil it for the others
            for plan in plans:
                self._fire_together([plan])
        for each in fired or ():
            self._tell(each)

    def _planned(self, found: ScheduleRow) -> FirePlan | None:
        try:
            return schedules.planned(found)
        except Exception as error:  # noqa: BLE001 - one that cannot be read stops no other
            self._set_aside(found, error)
            return None

    def _tell(self, fired: Fired) -> None:
        found, due = fired.plan.found, fired.plan.due
        if fired.error:
            self._set_aside(found, fired.error)
        elif due.older:
            log.warning(
                "schedule %r missed more than %d fires: the older ones are dropped",
                found.name,
                len(due.fires),
            )

    def _set_aside(self, found: ScheduleRow, error: Exception) -> None:
        """Say once why a schedule cannot fire. It stays due: another process may be able to."""
        text = clean_text(f"{type(error).__name__}: {error}", MOST_ERROR)
        if text != found.error:
            log.error("schedule %r could not fire: %s", found.name, text)
            self._do(schedules.report(found, text))

    def _forget(self, now: int) -> None:
        """Forget what is old or empty, but seldom: looking for it reads more than its own rows."""
        seldom = now - self._pruned_at >= PRUNE_EVERY
        if seldom:
            self._repeat(lambda: self._do(retention.prune()))
            self._repeat(lambda: self._do(stats.sum_up()))
            self._repeat(lambda: self._do(limits.forget_unused()))
            self._repeat(lambda: self._do(accounts.prune_tokens()))
            self._repeat(lambda: self._do(logins.prune()))
            self._repeat(lambda: self._do(sessions.prune_remote()))
            self._pruned_at = now
        if self._app.settings.topic_cleanup and (
            now >= self._topics_kept_until or (seldom and self._are_many_topics())
        ):
            forgotten = self._do(topics.forget_empty())
            # Soon again after one was forgotten, for a job of it may have been on its way.
            pause = FORGET_TOPICS_EVERY if forgotten == [] else PRUNE_EVERY
            self._topics_kept_until = now + pause

    def _are_many_topics(self) -> bool:
        return len(self._do(topics.list_topics()) or ()) >= MANY_TOPICS

    def _watch_sessions(self) -> None:
        """Call a session dead only when this observer itself saw it silent for long enough.

        After a gap in its own looking, such as an outage of the database, it starts to count anew.
        While nothing can be written, as on a full disk, silence says nothing either.
        """
        found: list[tuple[int, int, int]] | None = self._do(sessions.observe())
        if not found:
            self._seen.clear()
            return
        now = found[0][2]
        dead_after = int(self._app.settings.dead_after * 1e6)
        gap = self._looked_at is None or now - self._looked_at > dead_after // 2
        self._looked_at = now
        seen: dict[int, SeenSession] = {}
        for session, beats, _ in found:
            known = self._seen.get(session)
            if known is None or gap or known.beats != beats:
                known = SeenSession(beats, now)
            seen[session] = known
        self._seen = self._doubted(seen, now, dead_after // 2)
        for session, known in self._seen.items():
            could = known.could_beat_since
            if now - known.since >= dead_after and could and now - could >= dead_after // 2:
                self._do(sessions.bury_session(session, known.beats))

    def _doubted(self, seen: dict[int, SeenSession], now: int, long: int) -> dict[int, SeenSession]:
        """Find out whether those that are silent for long could show that they live."""
        silent = [session for session, known in seen.items() if now - known.since >= long]
        wrote_at: int | None = self._do(sessions.probe_write(new_number())) if silent else None
        for session in silent:
            known = seen[session]
            since = wrote_at and (known.could_beat_since or wrote_at)
            seen[session] = replace(known, could_beat_since=since)
        return seen
