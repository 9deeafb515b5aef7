"""Attempts to deliver: what a worker has seen, and what follows from it. No I/O, no clock.

A worker reports facts and decides nothing: the orchestrator asks `decided`.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import Final

import msgspec
from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.attempts import AttemptError
from towpath.model.instants import Duration, microseconds
from towpath.model.sagas import DeliveryStatus, SagaStatus

SECOND: Final = 10**6
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WAITS: Final = (
    5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, DAY,
)  # fmt: skip
"""The default waits between attempts, in microseconds: ten attempts in 75 h 35 m."""

JITTER: Final = 0.2  # the share of a wait by which it may be longer, never shorter
MOST_WAITS: Final = 50
LONGEST_WAIT: Final = 7 * DAY
LATEST_RETRY: Final = DAY  # that a receiver can ask for
LEASE_SLACK: Final = 15 * SECOND  # by which a lease is longer than the attempt
MOST_LOSSES: Final = 5  # leases of one attempt

LEASE_LOST: Final = "lease_lost"
UNOPENED: Final = "unopened"  # no outcome: a worker could not open the secrets
SUBSCRIPTION_STOPPED: Final = "subscription_stopped"
FINAL: Final = frozenset(
    {AttemptError.BLOCKED_TARGET, AttemptError.INVALID_URL, AttemptError.INVALID_HEADER}
)
"""Error codes after which no attempt follows."""

GONE: Final = 410
_waits: Final = msgspec.json.Decoder(tuple[int, ...])


class AttemptOutcome(Struct, frozen=True, kw_only=True):
    """What a worker has seen of one attempt."""

    response_status: int | None = None  # of the answer, if there was one
    error_code: str | None = None  # None: the receiver has taken it
    retry_after: int | None = None  # microseconds, as the receiver asked
    duration: int | None = None  # microseconds
    excerpt: str | None = None  # the beginning of the answer
    location: str | None = None  # where an answer pointed, which is not followed

    @property
    def status(self) -> DeliveryStatus:
        """What becomes of its delivery job."""
        return DeliveryStatus.COMPLETED if self.error_code is None else DeliveryStatus.FAILED


class RetrySchedule(Struct, frozen=True):
    """When the next attempt follows a failed one."""

    waits: tuple[int, ...] = WAITS  # microseconds
    jitter: float = JITTER

    @classmethod
    def of(cls, waits: Sequence[Duration]) -> "RetrySchedule":
        """Return a schedule with these waits; raise Invalid if it cannot be one."""
        if isinstance(waits, str) or not isinstance(waits, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            msg = f"waits must be a list such as ['5s', '5m', '1h'], not {waits!r}"
            raise Invalid(msg)
        if len(waits) > MOST_WAITS:
            msg = f"a subscription has at most {MOST_WAITS} waits, not {len(waits)}"
            raise Invalid(msg)
        each = tuple(microseconds(wait, "a wait") for wait in waits)
        for wait, given in zip(each, waits, strict=True):
            if not SECOND <= wait <= LONGEST_WAIT:
                msg = f"the wait {given!r} is not between 1 second and 7 days"
                raise Invalid(msg)
        return cls(each)

    @classmethod
    def stored(cls, text: str | None) -> "RetrySchedule":
        """Return the schedule that is stored so."""
        return cls() if text is None else cls(_waits.decode(text))

    def as_text(self) -> str | None:
        """Return how it is stored: nothing where it is the default."""
        return None if self.waits == WAITS else msgspec.json.encode(self.waits).decode()

    def after(self, attempts: int, of: object) -> int | None:
        """Return the wait after this many failed attempts; None after the last.

        The jitter depends only on the saga and the number, so a repeated call gives the same wait.
        """
        if attempts > len(self.waits):
            return None
        chance = Random(f"{of}:{attempts}").random()  # noqa: S311 - no secret
        return round(self.waits[attempts - 1] * (1 + self.jitter * chance))


class EndedAttempt(Struct, frozen=True, kw_only=True):
    """How an attempt has ended, with what decides about its saga."""

    status: str  # of the delivery job
    saga: int
    attempts: int  # of the saga before this one
    response_status: int | None = None
    error_code: str | None = None
    retry_after: int | None = None
    cancel_requested: bool = False

    @property
    def is_attempt(self) -> bool:
        """Whether a worker has taken it; a job that was cancelled before counts for nothing."""
        return self.status != DeliveryStatus.CANCELLED

    @property
    def is_success(self) -> bool:
        """Whether the receiver has taken the event."""
        return self.status == DeliveryStatus.COMPLETED

    @property
    def is_about_receiver(self) -> bool:
        """Whether it says anything about the receiver; a lost lease is a matter of our own."""
        return self.is_attempt and self.error_code != LEASE_LOST


class Decision(Struct, frozen=True):
    """What becomes of a saga after an attempt."""

    status: SagaStatus
    next_attempt_at: int | None = None
    stops: bool = False  # the whole subscription


def decided(
    ended: EndedAttempt, schedule: RetrySchedule, final: Collection[int], now: int
) -> Decision:
    """Decide what follows an attempt."""
    if ended.is_success:
        return Decision(SagaStatus.COMPLETED)
    stops = ended.is_attempt and ended.response_status == GONE
    if ended.cancel_requested or not ended.is_attempt:
        return Decision(SagaStatus.CANCELLED, stops=stops)
    wait = schedule.after(ended.attempts + 1, ended.saga)
    if wait is None or stops or ended.error_code in FINAL or ended.response_status in final:
        return Decision(SagaStatus.DEAD_LETTERED, stops=stops)
    asked = min(ended.retry_after or 0, LATEST_RETRY)
    return Decision(SagaStatus.PENDING_RETRY, now + max(wait, asked))
