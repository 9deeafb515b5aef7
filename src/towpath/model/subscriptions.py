"""Webhooks as users see them: subscriptions and their health, sagas, attempts, dead letters."""

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final
from uuid import UUID

from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.attempts import BodyKind
from towpath.model.event import Event, TypeFilter
from towpath.model.health import NoticeKind
from towpath.model.rule_syntax import OF_EVENTS
from towpath.model.rules import Names, Rule
from towpath.model.sagas import DeliveryStatus, SagaStatus

PING: Final = "ping"  # the type of an event that tries a subscription
REPLAY: Final = "webhooks-replay"  # the topic of replays; only the app itself may use it


class WebhookSubscription(Struct, frozen=True, kw_only=True):
    """A URL that is called for events of a channel."""

    id: int
    channel: str  # whose events it gets: those published after it was made
    url: str
    types: Sequence[str]  # of events, such as order.*
    filter_rule: str | None  # a rule over @event
    timeout: timedelta  # of one attempt
    concurrency: int  # deliveries at once
    pace: timedelta | None  # from one start to the next
    burst: int  # starts at once after a pause
    ordered: bool  # one after the other, in the order of events
    waits: Sequence[timedelta]  # between attempts
    final_statuses: Sequence[int]  # of answers after which no attempt follows
    body: BodyKind
    owner: str | None
    description: str
    paused: bool  # by its user
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None


class SubscriptionHealth(Struct, frozen=True, kw_only=True):
    """How the deliveries of a subscription go."""

    subscription: int
    failures: int  # attempts since the last success
    failing_since: datetime | None
    open_until: datetime | None  # nothing starts before: most of the last attempts have failed
    stopped_at: datetime | None  # `enable` starts it again
    stopped_why: str | None  # gone or failing
    last_success_at: datetime | None
    last_failure_at: datetime | None
    last_error: str | None  # the code of the last failed attempt among these:
    recent: int  # the last attempts, at most 1,000
    recent_failed: int  # of these
    p50: timedelta | None  # half of these took no longer
    p95: timedelta | None
    waiting: int  # sagas that wait for an attempt
    in_progress: int  # sagas with an attempt
    held: int  # sagas that wait for `resume` or `enable`
    dead_letters: int  # that are kept, and were not requeued


class Saga(Struct, frozen=True, kw_only=True):
    """The delivery of one event to one subscription."""

    id: int
    event: UUID  # the webhook-id
    type: str | None  # of the event
    subscription: int
    status: SagaStatus
    attempts: int  # that have ended
    next_attempt_at: datetime | None
    created_at: datetime
    finished_at: datetime | None
    replay_of: int | None  # the saga that it was requeued or sent again from
    cancel_requested: bool
    last_error: str | None  # the code of the last attempt


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt of a saga."""

    id: int
    saga: int
    number: int  # from 1 on
    status: DeliveryStatus
    made_at: datetime
    finished_at: datetime | None
    response_status: int | None
    error_code: str | None
    duration: timedelta | None
    excerpt: str | None  # the beginning of the answer
    location: str | None  # where the answer pointed, which is not followed
    worker: str | None
    lease_until: datetime | None
    lease_losses: int  # how often a worker took it and was not heard of again


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A saga that failed for good, and its event."""

    id: int
    saga: int
    subscription: int
    event: UUID  # the webhook-id
    type: str | None
    at: datetime  # when the event was published
    failed_at: datetime
    error_code: str | None
    requeued_as: int | None  # the newest saga that was made of it
    body: str  # the payload as stored
    encoding: str  # of the body: json, or text and base64 for bytes


class Replay(Struct, frozen=True, kw_only=True):
    """Which deliveries are made again: the payload of a job of the topic `webhooks-replay`."""

    subscription: int
    status: SagaStatus  # of the sagas: Completed, Cancelled or DeadLettered
    types: Sequence[str]  # of their events
    since: int  # when these were published, in microseconds since 1970
    until: int  # and before when
    upto: int  # the last saga, or dead letter, that belongs to it
    count: int  # how many were found when it was asked for
    pace: int | None  # microseconds from one to the next


class Notice(Struct, frozen=True, kw_only=True):
    """Something about a subscription that its owner wants to know."""

    kind: NoticeKind
    subscription: int
    channel: str
    why: str | None = None
    failing: int = 0  # percent of the time until it is stopped
    saga: int | None = None
    event: UUID | None = None
    type: str | None = None


class EventToRoute:
    """An event and the values of @event in rules; its payload is decoded once, if a rule asks."""

    def __init__(self, event: Event) -> None:
        self.event = event

    @cached_property
    def _names(self) -> Names:
        event = self.event
        return Names(
            event={
                "id": str(event.id),
                "type": event.type,
                "channel": event.channel,
                "key": event.key,
                "at": event.at,
                "headers": event.headers,
                "payload": _payload(event),
            }
        )

    def value(self, root: str, path: tuple[str, ...]) -> object:
        """Return the value at `path` in the event."""
        return self._names.value(root, path)


def _payload(event: Event) -> object:
    """Return the payload for rules: its text if it cannot be decoded here."""
    if event.encoding == "json":
        with contextlib.suppress(RecursionError, ValueError):
            return event.payload
    return event.body


class Selection:
    """Which events a subscription gets."""

    def __init__(self, types: Sequence[str], filter_rule: str | None) -> None:
        if not types:
            msg = "types must name at least one type, such as ['order.*']; use ['*'] for all"
            raise Invalid(msg)
        self._has_type = TypeFilter(types)
        self._rule = Rule.parse(filter_rule, OF_EVENTS) if filter_rule is not None else None
        if self._rule is not None and self._rule.is_closed:
            msg = "filter_rule is empty; leave it out to get every event of these types"
            raise Invalid(msg)

    def __call__(self, each: EventToRoute) -> bool:
        """Say whether an event is wanted. The answer never changes: @now is the event's time."""
        if not self._has_type(each.event.type):
            return False
        return self._rule is None or self._rule.allows(each, each.event.at)
