"""Upkeep: promote, rescue, fire schedules, delete old rows. Any process runs it; no leader.

Reservations promote and rescue in their own topics, so upkeep only bounds the delay elsewhere.
"""

import logging
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from towpath.app.sessions import new_number
from towpath.app.webhook_upkeep import WebhookUpkeep
from towpath.database.forks import begin_anew_after_fork
from towpath.errors import DatabaseUnavailable, TowpathError
from towpath.model.durable import Appended
from towpath.model.payload import clean_text
from towpath.model.sessions import Session
from towpath.operation import Answer, Operation
from towpath.store import (
    accounts,
    bulk,
    channels,
    dependencies,
    events,
    leases,
    limits,
    logins,
    reserving,
    retention,
    schedules,
    sessions,
    stats,
    streams,
    topics,
    trimming,
    webhook_upkeep,
)
from towpath.store.leases import Settled
from towpath.store.schedules import Fired, FirePlan, Move, Owed, ScheduleRow
from towpath.store.sessions import Adopted
from towpath.store.trimming import Kept, Trimmed, Visit

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

EVERY: Final = 1.0  # seconds between two rounds, at most
SHORTEST_REST: Final = 0.001  # seconds
PRUNE_EVERY: Final = 60_000_000  # microseconds of the database's clock
DELETE_TOPICS_EVERY: Final = 60 * PRUNE_EVERY
MANY_TOPICS: Final = 1_000  # with so many topics the empty ones are deleted more often
MOST_BATCHES: Final = 100  # of one kind in one round
MOST_ERROR: Final = 1_000  # characters
CHANNELS_AT_ONCE: Final = 100
MOST_OF_CHANNEL: Final = 20  # batches of one channel in one round
BULK_TIME: Final = 0.5  # seconds of a round of upkeep
BULK_AT_ONCE: Final = 4  # bulk acts that go on in turn
NEVER: Final = float("inf")


class SeenSession(Struct, frozen=True):
    """A session as this process has observed it."""

    beats: int
    since: int  # the database's clock when this beat was first seen
    could_beat_since: int | None = None  # when this process could write during the silence


class Upkeep:
    """Periodic work that any process may do for all."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._seen: dict[int, SeenSession] = {}
        self._observed_at: int | None = None
        self._unavailable = False  # the database cannot be reached in this round
        self._clock: int | None = None  # the database's clock in the last round
        self._set_back = True  # the clock may have been set back, and times are not all moved yet
        self._noted_in = 0  # the minute in which the depths of topics were noted
        self._pruned_at = 0
        self._topics_kept_until = 0
        self._fires_at = NEVER  # when the next schedule is due, as far as is known
        self._freed_upto = ""  # the last key of a limit that was checked
        self._streams_upto = 0  # the last job whose stream was checked
        self._adopted_upto = 0  # the last lease whose session was checked
        self._trimmed_upto = 0  # the last channel that was trimmed
        self._webhooks = WebhookUpkeep(app.settings, self._do)
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._stopping = Event()
        self._thread: Thread | None = None

    def start_again(self) -> None:
        """Start again in a forked child, which has no thread until it starts one."""
        self._start()

    def run(self) -> None:
        """Do one round. A step that fails is logged, and the others are done.

        The rest of a round is skipped if the database becomes unavailable or upkeep is stopped.
        """
        self._unavailable = False
        now: int | None = self._do(retention.clock())
        if now is not None:
            self._check_clock(now)
        self._fire()
        self._come_due()
        self._carry_on_bulk()
        self._free()
        self._do(dependencies.tell_all())
        self._watch_sessions()
        self._adopt()
        self._do(stats.roll_up())
        self._repeat(self._place_posted)
        self._repeat(lambda: self._do(channels.expire(CHANNELS_AT_ONCE)))
        self._streams_upto = self._do(streams.end_some(self._streams_upto)) or 0
        self._repeat(lambda: self._do(channels.drop_deleted()))
        self._trim()  # after the deleted channels are gone, which it would visit
        if now is not None:
            self._note_depths(now)
            self._webhooks.run(now)
            self._prune(now)

    def start(self) -> None:
        """Do a round every second or more often, in a thread."""
        self._stopping.clear()
        if self._thread is None:
            self._thread = Thread(target=self._run_rounds, name="towpath-upkeep", daemon=True)
            self._thread.start()

    def stop(self, patience: float | None = None) -> None:
        """End the thread, and wait for it; with `patience`, at most so many seconds."""
        self._stopping.set()
        if self._thread:
            self._thread.join(patience)
            if self._thread.is_alive():
                return  # it ends when its current statement has returned
            self._thread = None
        self._stopping.clear()

    def _run_rounds(self) -> None:
        # Often enough that there is never a gap in the observation of sessions.
        every = min(EVERY, self._app.settings.dead_after / 8)
        while not self._stopping.is_set():
            started = time.monotonic()
            self.run()
            self._rest(started + every)

    def _rest(self, until: float) -> None:
        """Wait for the next round; fire schedules that are due before it."""
        while self._fires_at < until:
            if self._stopping.wait(max(SHORTEST_REST, self._fires_at - time.monotonic())):
                return
            self._fire()
        self._stopping.wait(max(0, until - time.monotonic()))

    def _do(self, operation: Operation[Any]) -> Any:
        if self._unavailable or self._stopping.is_set():
            return None
        try:
            return self._app.run(operation)
        except DatabaseUnavailable as error:
            self._unavailable = True
            log.warning("upkeep: %s failed: %s", operation.name, error)
        except TowpathError as error:
            log.warning("upkeep: %s failed: %s", operation.name, error)
        except Exception:  # one bad row must not end the thread
            log.exception("upkeep: %s failed", operation.name)
        return None

    def _repeat(self, step: Callable[[], Any]) -> None:
        for _ in range(MOST_BATCHES):
            if not step():
                return

    def _check_clock(self, now: int) -> None:
        """Notice that the clock was set back, which may also be so before the first round."""
        if self._clock is not None and now < self._clock:
            log.warning("the database's clock was set back by %g s", (self._clock - now) / 1e6)
            self._set_back = True
            self._observed_at = None  # the observation of sessions starts again
            self._pruned_at = self._topics_kept_until = 0
        self._clock = now
        if self._set_back:
            self._set_back = not self._move_times()

    def _move_times(self) -> bool:
        """Move times that are too far in the future; say whether none is left."""
        self._do(webhook_upkeep.move_near())
        left = [self._do(leases.move_near()), self._do(limits.move_near())]
        rows: list[ScheduleRow] | None = self._do(schedules.find_all())
        moves = [move for each in rows or () if (move := self._move(each))]
        moved: int | None = self._do(schedules.move_near(moves)) if moves else 0
        return left == [0, 0] and rows is not None and moved == len(moves)

    def _move(self, schedule: ScheduleRow) -> Move | None:
        try:
            return schedules.moved_near(schedule)
        except Exception:  # noqa: BLE001 - an unreadable schedule is reported when it is due
            return None

    def _come_due(self) -> None:
        names: list[str] = self._do(topics.due()) or []
        if names:
            self._repeat(lambda: self._do(reserving.promote(names)))
            self._repeat(lambda: self._do(reserving.rescue(names)))

    def _carry_on_bulk(self) -> None:
        """Do rounds of the bulk acts that have begun, in turn, for a part of this round's time."""
        until = time.monotonic() + BULK_TIME
        while due := self._do(bulk.due()):
            done = [self._do(bulk.carry_on(each.id, each.epoch)) for each in due[:BULK_AT_ONCE]]
            if not any(done) or time.monotonic() >= until:
                return

    def _free(self) -> None:
        """Unblock jobs that a limit allows but no worker has unblocked: some keys per round."""
        keys: list[str] = self._do(limits.blocked_keys(self._freed_upto)) or []
        self._freed_upto = keys[-1] if len(keys) == limits.KEYS_AT_ONCE else ""
        if keys:
            self._do(limits.free(keys))

    def _place_posted(self) -> bool:
        """Give numbers to some events that were posted; say whether there are more."""
        names: list[str] = self._do(channels.posted(CHANNELS_AT_ONCE)) or []
        placed: list[Answer[Appended]] = (self._do(events.place(names)) if names else None) or []
        are_left = any(not isinstance(each, TowpathError) and each.posted for each in placed)
        return are_left or len(names) == CHANNELS_AT_ONCE

    def _trim(self) -> None:
        """Delete the events that channels need not keep: of some channels per round."""
        kept = Kept.of(self._app.settings)
        visit: Visit | None = self._do(trimming.visit(self._trimmed_upto, kept))
        self._trimmed_upto = visit.upto if visit else 0
        left = MOST_BATCHES
        for channel, low in visit.left if visit else ():
            left = self._drop_below(channel, low, left)
        for channel in visit.channels if visit else ():
            for _ in range(min(MOST_OF_CHANNEL, left)):
                trimmed: Trimmed | None = self._do(trimming.trim(channel, kept))
                if trimmed is None:
                    break
                left = self._drop_below(channel, trimmed.low, left)
                if not trimmed.more:
                    break

    def _drop_below(self, channel: int, low: int, left: int) -> int:
        """Delete events below a low-water mark; return how many batches of the round are left."""
        most = min(MOST_OF_CHANNEL, left)
        for done in range(1, most + 1):
            if not self._do(trimming.drop_below(channel, low)):
                return left - done
        return left - most

    def _adopt(self) -> None:
        """Take back leases whose session does not exist: some leases per round."""
        adopted: Adopted | None = self._do(sessions.adopt_orphans(self._adopted_upto))
        self._adopted_upto = adopted.upto if adopted else 0

    def _fire(self) -> None:
        """Fire the schedules that are due, and read when the next one is."""
        self._fire_owed()
        last: ScheduleRow | None = None
        for _ in range(MOST_BATCHES):
            rows: list[ScheduleRow] = self._do(schedules.look(last)) or []
            if not rows:
                break
            self._fire_all([plan for each in rows if (plan := self._planned(each))])
            last = rows[-1]
        wait: int | None = self._do(schedules.next_due())
        self._fires_at = NEVER if wait is None else time.monotonic() + wait / 1e6

    def _fire_owed(self) -> None:
        last: Owed | None = None
        for _ in range(MOST_BATCHES):
            owed: list[Owed] = self._do(schedules.owed(last)) or []
            if not owed:
                return
            if self._do(schedules.fire_owed(owed, self._app.storing.each)) is None:
                for each in owed:  # one of them may have failed the whole batch
                    self._do(schedules.fire_owed([each], self._app.storing.each))
            last = owed[-1]

    def _fire_all(self, plans: list[FirePlan]) -> None:
        if not plans:
            return
        fired: list[Fired] | None = self._do(schedules.fire(plans, self._app.storing.each))
        if fired is None and len(plans) > 1:  # one of them may have failed the whole batch
            for plan in plans:
                self._fire_all([plan])
        for each in fired or ():
            self._report(each)

    def _planned(self, schedule: ScheduleRow) -> FirePlan | None:
        try:
            return schedules.planned(schedule)
        except Exception as error:  # noqa: BLE001 - an unreadable schedule must not stop the others
            self._report_error(schedule, error)
            return None

    def _report(self, fired: Fired) -> None:
        schedule, due = fired.plan.found, fired.plan.due
        if fired.error:
            self._report_error(schedule, fired.error)
        elif due.older:
            log.warning(
                "schedule %r missed more than %d fires; the older ones are dropped",
                schedule.name,
                len(due.fires),
            )

    def _report_error(self, schedule: ScheduleRow, error: Exception) -> None:
        """Log and store once why a schedule cannot fire. It stays due for other processes."""
        text = clean_text(f"{type(error).__name__}: {error}", MOST_ERROR)
        if text != schedule.error:
            log.error("schedule %r could not fire: %s", schedule.name, text)
            self._do(schedules.report(schedule, text))

    def _note_depths(self, now: int) -> None:
        """Note once a minute how many jobs are ready, unless another process has."""
        if now // stats.MINUTE != self._noted_in:
            self._noted_in = now // stats.MINUTE
            if depths := self._do(stats.depths()):
                self._do(stats.note_depths(depths))

    def _prune(self, now: int) -> None:
        """Delete old rows and empty topics, but seldom, as the queries read many rows."""
        seldom = now - self._pruned_at >= PRUNE_EVERY
        if seldom:
            self._repeat(lambda: self._do(retention.prune()))
            self._repeat(lambda: self._do(stats.fold()))
            self._repeat(lambda: self._do(stats.forget_depths()))
            self._do(stats.forget_histograms())
            self._repeat(lambda: self._do(limits.forget_unused()))
            self._repeat(lambda: self._do(accounts.prune_tokens()))
            self._repeat(lambda: self._do(logins.prune()))
            self._repeat(lambda: self._do(sessions.prune_remote()))
            self._do(bulk.forget())
            self._pruned_at = now
        if self._app.settings.topic_cleanup and (
            now >= self._topics_kept_until or (seldom and self._are_many_topics())
        ):
            deleted = self._do(topics.forget_empty())
            # Sooner if a topic was deleted: a job that was being enqueued may have restored it.
            pause = DELETE_TOPICS_EVERY if deleted == [] else PRUNE_EVERY
            self._topics_kept_until = now + pause

    def _are_many_topics(self) -> bool:
        return len(self._do(topics.list_topics()) or ()) >= MANY_TOPICS

    def _watch_sessions(self) -> None:
        """Declare a session dead only if this process itself observed its silence long enough.

        After a gap in its observation, such as an outage of the database, it counts from 0 again.
        While no process can write, as with a full disk, silence does not count.
        """
        observed: list[tuple[int, int, int]] | None = self._do(sessions.observe())
        if not observed:
            self._seen.clear()
            return
        now = observed[0][2]
        dead_after = int(self._app.settings.dead_after * 1e6)
        gap = self._observed_at is None or now - self._observed_at > dead_after // 2
        self._observed_at = now
        seen: dict[int, SeenSession] = {}
        for session, beats, _ in observed:
            known = self._seen.get(session)
            if known is None or gap or known.beats != beats:
                known = SeenSession(beats, now)
            seen[session] = known
        self._seen = self._probed(seen, now, dead_after // 2)
        for session, known in self._seen.items():
            could = known.could_beat_since
            if now - known.since >= dead_after and could and now - could >= dead_after // 2:
                self._bury(session, known)

    def _bury(self, session: int, known: SeenSession) -> None:
        """Take back the leases of a dead worker."""
        listed: list[Session] = self._do(sessions.list_sessions()) or []
        settled: list[Settled] = self._do(sessions.bury_session(session, known.beats)) or []
        if settled:  # otherwise it had none, or another process was first
            worker = next((each.worker for each in listed if each.session == session), "?")
            jobs = "1 job" if len(settled) == 1 else f"{len(settled):,} jobs"
            log.info("took back %s of worker %s, which was silent", jobs, worker)

    def _probed(self, seen: dict[int, SeenSession], now: int, long: int) -> dict[int, SeenSession]:
        """Probe whether the sessions that are silent for long could have written a beat."""
        silent = [session for session, known in seen.items() if now - known.since >= long]
        wrote_at: int | None = self._do(sessions.probe_write(new_number())) if silent else None
        for session in silent:
            known = seen[session]
            since = wrote_at and (known.could_beat_since or wrote_at)
            seen[session] = replace(known, could_beat_since=since)
        return seen
