"""Webhooks in the bodies of answers. No answer has a secret but those that make one."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

from towpath.model.attempts import BodyKind
from towpath.model.sagas import DeliveryStatus, SagaStatus
from towpath.model.subscriptions import (
    Attempt,
    DeadLetter,
    SubscriptionHealth,
    WebhookSubscription,
)
from towpath.server.inputs import Encoding
from towpath.server.outputs import ResponseBody, encoding_shown, milliseconds, stored


class SubscriptionShown(ResponseBody):
    """A URL that is called for events of a channel; durations are seconds."""

    id: int
    channel: str
    url: str
    types: list[str]
    filter_rule: str | None
    timeout: float
    concurrency: int
    pace: float | None  # from one start to the next, by the rate
    burst: int
    ordered: bool
    waits: list[float]  # between attempts
    final_statuses: list[int]
    body: BodyKind
    owner: str | None
    description: str
    paused: bool
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None


class MadeSubscription(SubscriptionShown):
    """A new subscription; the secret that signs its requests cannot be read again."""

    secret: str


class SubscriptionPage(ResponseBody):
    """A page of subscriptions, by number."""

    items: list[SubscriptionShown]
    next: int | None  # pass it as `after` to read the next page


class Paused(ResponseBody):
    """A paused subscription."""

    under_way: int  # attempts that still end


class RotatedSecret(ResponseBody):
    """The new secret of a subscription; it cannot be read again."""

    secret: str


class HealthShown(ResponseBody):
    """How the deliveries of a subscription go."""

    subscription: int
    failures: int  # attempts since the last success
    failing_since: datetime | None
    open_until: datetime | None  # nothing starts before: most of the last attempts have failed
    stopped_at: datetime | None  # `enable` starts it again
    stopped_why: str | None
    last_success_at: datetime | None
    last_failure_at: datetime | None
    last_error: str | None  # the code of the last failed attempt among these:
    recent: int  # the last attempts, at most 1,000
    recent_failed: int  # of these
    p50_ms: float | None  # half of these took no longer
    p95_ms: float | None
    waiting: int
    in_progress: int
    held: int
    dead_letters: int  # that were not requeued


class ReplayShown(ResponseBody):
    """A replay: how many deliveries belong to it, and the job that makes them."""

    count: int
    job: UUID | None  # null for a preview


class SagaShown(ResponseBody):
    """The delivery of one event to one subscription."""

    id: int
    event: UUID  # the webhook-id
    type: str | None
    subscription: int
    status: SagaStatus
    attempts: int  # that have ended
    next_attempt_at: datetime | None
    created_at: datetime
    finished_at: datetime | None
    replay_of: int | None
    cancel_requested: bool
    last_error: str | None


class AttemptShown(ResponseBody):
    """One attempt of a saga."""

    id: int
    saga: int
    number: int
    status: DeliveryStatus
    made_at: datetime
    finished_at: datetime | None
    response_status: int | None
    error_code: str | None
    duration_ms: float | None
    excerpt: str | None
    location: str | None
    worker: str | None
    lease_until: datetime | None
    lease_losses: int


class DeadLetterOutline(ResponseBody):
    """A saga that failed for good."""

    id: int
    saga: int
    subscription: int
    event: UUID
    type: str | None
    at: datetime
    failed_at: datetime
    error_code: str | None
    requeued_as: int | None


class DeadLetterShown(DeadLetterOutline):
    """A saga that failed for good, with its event. Bytes are given as text or base64."""

    encoding: Encoding
    payload: Raw


def subscription_shown(each: WebhookSubscription) -> SubscriptionShown:
    """Return a subscription as JSON shows it."""
    return SubscriptionShown(**_fields(each))


def made_shown(each: WebhookSubscription, secret: str) -> MadeSubscription:
    """Return a new subscription as JSON shows it, once with its secret."""
    return MadeSubscription(**_fields(each), secret=secret)


def subscription_fields(each: WebhookSubscription) -> dict[str, Any]:
    """Return what rules see as @subscription: the fields of its JSON form."""
    fields: dict[str, Any] = msgspec.to_builtins(subscription_shown(each))
    return fields


def health_shown(each: SubscriptionHealth) -> HealthShown:
    """Return the health of a subscription as JSON shows it."""
    beside = {"p50_ms", "p95_ms"}
    known = {
        name: getattr(each, name) for name in HealthShown.__struct_fields__ if name not in beside
    }
    return HealthShown(**known, p50_ms=milliseconds(each.p50), p95_ms=milliseconds(each.p95))


def attempt_shown(each: Attempt) -> AttemptShown:
    """Return an attempt as JSON shows it."""
    beside = "duration_ms"
    known = {name: getattr(each, name) for name in AttemptShown.__struct_fields__ if name != beside}
    return AttemptShown(**known, duration_ms=milliseconds(each.duration))


def letter_outline(each: DeadLetter) -> DeadLetterOutline:
    """Return a dead letter as a list shows it, without its payload."""
    return DeadLetterOutline(**_outline(each))


def letter_shown(each: DeadLetter, redact: str) -> DeadLetterShown:
    """Return a dead letter as JSON shows it, with the values hidden of fields in `redact`."""
    payload, encoding = stored(each.body, each.encoding, redact), encoding_shown(each.encoding)
    return DeadLetterShown(**_outline(each), payload=payload, encoding=encoding)


def _fields(each: WebhookSubscription) -> dict[str, Any]:
    known = {name: getattr(each, name) for name in SubscriptionShown.__struct_fields__}
    known["timeout"] = each.timeout.total_seconds()
    known["pace"] = None if each.pace is None else each.pace.total_seconds()
    known["waits"] = [wait.total_seconds() for wait in each.waits]
    known["types"], known["final_statuses"] = list(each.types), list(each.final_statuses)
    return known


def _outline(each: DeadLetter) -> dict[str, Any]:
    return {name: getattr(each, name) for name in DeadLetterOutline.__struct_fields__}
