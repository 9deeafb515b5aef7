"""The health of a subscription: what deliveries have taught about it, and what may start. No I/O.

- A success ends every suspicion.
- Deliveries begin one at a time: before the first success, after a failure, and after a minute
  without a success. Each success while all that may run do run makes it one more at once.
- A receiver that is mostly prompt does not wait behind others (`prompt`).
- The breaker opens where most of the recent results are failures, or ten in a row, whatever time
  these took: nothing starts for a while, then one delivery tries again.
- A subscription is stopped by a 410, or after five days of nothing but failures.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from towpath.model.deliveries import DAY, MINUTE, SECOND
from towpath.model.limits import Gauge

WINDOW: Final = 5 * MINUTE
FEWEST_RESULTS: Final = 10  # in a window or in a row, before the breaker may open
MOST_FAILED: Final = 70  # percent
FIRST_BREAK: Final = 30 * SECOND  # doubled each time
LONGEST_BREAK: Final = 10 * MINUTE
STOP_AFTER: Final = 5 * DAY  # of nothing but failures
FEWEST_DEAD: Final = 2  # dead letters before a subscription is stopped
WARNINGS: Final = (100, 90, 70, 50)  # percent of that time
TOLD: Final = 1  # of `warned`: trouble was told before it was enabled, and no success since
QUIET: Final = MINUTE  # without a success: as long as the longest attempt
PROMPT: Final = SECOND  # how soon the answer of a prompt receiver comes
MOST_PROMPT: Final = 20  # slow answers in a row that may come when this machine is busy
STALLED: Final = SECOND // 10  # how soon to look again for jobs that no worker takes
GONE: Final = "gone"
FAILING: Final = "failing"


class NoticeKind(StrEnum):
    """What is worth telling about a subscription."""

    FAILING = "failing"  # it will be stopped if that goes on
    STOPPED = "stopped"
    RECOVERED = "recovered"  # a delivery has succeeded after such a notice
    DEAD_LETTERED = "dead_lettered"


class Vitals(Struct, kw_only=True):
    """What is remembered of a subscription's deliveries; times in microseconds."""

    tat: int = 0
    failures: int = 0
    failing_since: int | None = None
    dead: int = 0
    warned: int = 0
    window_at: int = 0
    results: int = 0
    failed: int = 0
    open_until: int | None = None
    trips: int = 0
    holds: bool = False
    stopped_at: int | None = None
    stopped_why: str | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    at_once: int = 1  # deliveries that may run together
    prompt: int = 0  # successes within a second, less slow ones, since the last failure

    def rest(self, now: int) -> None:
        """Begin again with one at a time if nothing has succeeded for a while."""
        if self.last_success_at is not None and now - self.last_success_at > QUIET:
            self.at_once = 1

    def growth(self, under_way: int) -> int:
        """Say how each success changes `at_once`, if so many attempts were under way."""
        if under_way >= self.at_once:
            return 1
        # What is not needed is given up: a receiver that falls silent would keep it all.
        return -1 if under_way * 2 < self.at_once else 0

    def succeed(self, at: int, duration: int = 0, growth: int = 1) -> NoticeKind | None:
        """Note a success."""
        was_warned = self.warned
        self.at_once = max(1, self.at_once + growth)
        step = 1 if duration <= PROMPT else -1
        self.prompt = min(max(0, self.prompt + step), MOST_PROMPT)
        self.failures = self.dead = self.warned = self.trips = 0
        self.failing_since = self.open_until = None
        self.last_success_at = max(at, self.last_success_at or 0)
        self._count(at, failed=False)
        return NoticeKind.RECOVERED if was_warned else None

    def fail(self, at: int, now: int, *, is_dead: bool) -> NoticeKind | None:
        """Note a failed attempt; one that is the last of its saga has left a dead letter."""
        self.failures += 1
        self.at_once, self.prompt = 1, 0
        self.dead += is_dead
        self.failing_since = at if self.failing_since is None else self.failing_since
        self.last_failure_at = max(at, self.last_failure_at or 0)
        self._count(now, failed=True)
        self._trip(now)
        return self._worsened(now)

    def stop(self, why: str, now: int) -> NoticeKind | None:
        """Start no more, until it is enabled."""
        if self.stopped_at is not None:
            return None
        self.stopped_at, self.stopped_why = now, why
        return NoticeKind.STOPPED

    def enable(self) -> None:
        """Forget every suspicion, but not that it was told: the first success tells the end."""
        self.warned = TOLD if self.warned or self.stopped_at is not None else 0
        self.failures = self.dead = self.trips = self.results = self.failed = 0
        self.failing_since = self.open_until = self.stopped_at = self.stopped_why = None
        self.at_once, self.prompt = 1, 0

    def _count(self, now: int, *, failed: bool) -> None:
        if not self.window_at <= now < self.window_at + WINDOW:
            self.window_at, self.results, self.failed = now, 0, 0
        self.results += 1
        self.failed += failed

    def _trip(self, now: int) -> None:
        """Open the breaker: after too many failures, or after the try that follows a break."""
        if self.open_until is not None and now < self.open_until:
            return  # an attempt that began before
        most = self.results >= FEWEST_RESULTS and self.failed * 100 >= self.results * MOST_FAILED
        # A receiver that never answers has few results in a window: an attempt may take a minute.
        if self.trips or most or self.failures >= FEWEST_RESULTS:
            self.trips += 1
            self.open_until = now + min(FIRST_BREAK << min(self.trips - 1, 10), LONGEST_BREAK)
            self.window_at, self.results, self.failed = now, 0, 0

    def _worsened(self, now: int) -> NoticeKind | None:
        failing = 0 if self.failing_since is None else now - self.failing_since
        if failing >= STOP_AFTER and self.dead >= FEWEST_DEAD:
            return self.stop(FAILING, now)
        reached = next((each for each in WARNINGS if failing * 100 >= STOP_AFTER * each), 0)
        if reached <= self.warned:
            return None
        self.warned = reached
        return NoticeKind.FAILING


class Gate(Struct):
    """How many deliveries of a subscription may start now, and when to ask again."""

    vitals: Vitals
    gauge: Gauge  # running: delivery jobs that have not ended
    pending: int  # those that no worker has taken
    ordered: bool = False

    @property
    def room(self) -> int:
        """How many may start."""
        gauge, vitals = self.gauge, self.vitals
        if vitals.open_until is not None and gauge.now < vitals.open_until:
            return 0
        room = gauge.room()
        if gauge.pace is not None:
            # No more than a burst waits for workers: after a standstill they would send it at once.
            room = min(room, gauge.burst - self.pending)
        return max(0, min(room, self._at_once - gauge.running))

    @property
    def _at_once(self) -> int:
        return 1 if self.ordered else self.vitals.at_once

    def started(self, count: int) -> None:
        """Count deliveries that have just started."""
        self.pending += count
        for _ in range(count):
            self.gauge.start()
        self.vitals.tat = self.gauge.tat

    @property
    def wakes_at(self) -> int | None:
        """When more may start though some wait; None if the end of a delivery has to come first."""
        gauge, vitals = self.gauge, self.vitals
        if vitals.open_until is not None and gauge.now < vitals.open_until:
            return vitals.open_until
        if gauge.running >= self._at_once:
            return None
        if gauge.concurrency is not None and gauge.running >= gauge.concurrency:
            return None
        if gauge.pace is not None and self.pending >= gauge.burst:
            return max(gauge.free_at or 0, gauge.now + max(gauge.pace, STALLED))
        return gauge.free_at
