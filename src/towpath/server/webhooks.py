"""Webhooks over HTTP: subscriptions, their sagas and dead letters.

A subscription that the caller may not manage is answered as one that does not exist, and so is
all that belongs to it.
"""

import contextlib
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from towpath.errors import NotFound
from towpath.model.attempts import BodyKind
from towpath.model.channels import JOB, SYSTEM
from towpath.model.sagas import SagaStatus
from towpath.model.subscriptions import DeadLetter, Saga, WebhookSubscription
from towpath.server.errors import Refusal
from towpath.server.inputs import ChannelName, Input, Instant, Text
from towpath.server.outputs import Items, all_shown, shown
from towpath.server.request import Request, login_required
from towpath.server.routes import Routes
from towpath.server.webhook_outputs import (
    AttemptShown,
    DeadLetterOutline,
    DeadLetterShown,
    HealthShown,
    MadeSubscription,
    Paused,
    ReplayShown,
    RotatedSecret,
    SagaShown,
    SubscriptionPage,
    SubscriptionShown,
    attempt_shown,
    health_shown,
    letter_outline,
    letter_shown,
    made_shown,
    subscription_fields,
    subscription_shown,
)

routes: Final = Routes("webhooks")

AT_ONCE: Final = 1_000  # subscriptions per query
MOST_READ: Final = 10_000  # per request, hidden ones included


def _bounds(**schema: Any) -> Meta:
    """Describe bounds that the app checks."""
    return Meta(extra_json_schema=schema)


Url = Annotated[str, _bounds(format="uri")]
Secret = Annotated[str, _bounds(pattern="^whsec_")]
Types = Annotated[list[str], _bounds(minItems=1, maxItems=100)]
Timeout = Annotated[float, _bounds(minimum=1, maximum=60)]
Concurrency = Annotated[int, _bounds(minimum=1, maximum=100)]
Burst = Annotated[int, _bounds(minimum=1, maximum=1_000)]
DeliveryRate = Annotated[str, _bounds(pattern="^[1-9][0-9]{0,3}/([1-9][0-9]{0,3})?(ms|s|m|h|d)$")]
RetryWait = Annotated[float, _bounds(minimum=1, maximum=7 * 86_400)]
RetryWaits = Annotated[list[RetryWait], _bounds(maxItems=50)]
Failures = Annotated[list[Annotated[int, _bounds(minimum=300, maximum=599)]], _bounds(maxItems=100)]
Owner = Annotated[str, _bounds(minLength=1, maxLength=255)]
Description = Annotated[str, _bounds(maxLength=1_000)]
Headers = dict[Text, Text]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]


class SubscriptionInput(Input):
    """A subscription to make. A field that is null counts as omitted."""

    channel: ChannelName  # events that are published to it from now on
    url: Url
    secret: Secret | None = None  # signs the requests; default: a new one
    types: Types | None = None  # of events, such as order.*; default all
    filter_rule: Text | None = None  # a rule over @event
    timeout: Timeout | None = None  # seconds of one attempt; default 15
    concurrency: Concurrency | None = None  # deliveries at once; default 10
    rate: DeliveryRate | None = None  # of deliveries, such as 10/s
    burst: Burst | None = None  # deliveries at once after a pause
    ordered: bool | None = None  # one after the other, in the order of events
    waits: RetryWaits | None = None  # seconds between attempts
    final_statuses: Failures | None = None  # of answers after which no attempt follows
    body: BodyKind | None = None
    headers: Headers | None = None  # sent with each request, and never shown again
    owner: Owner | None = None  # default: the account that makes it
    description: Description | None = None

    def options(self) -> dict[str, Any]:
        """Return the options of `create` that are given."""
        beside = {"channel", "url", "secret"}
        named = {name: getattr(self, name) for name in self.__struct_fields__ if name not in beside}
        return {name: value for name, value in named.items() if value is not None}


class SubscriptionChange(Input):
    """Changes of a subscription; what is omitted stays as it is."""

    url: Url | UnsetType = UNSET
    types: Types | UnsetType = UNSET
    filter_rule: Text | UnsetType | None = UNSET
    timeout: Timeout | UnsetType = UNSET
    concurrency: Concurrency | UnsetType = UNSET
    rate: DeliveryRate | UnsetType | None = UNSET
    burst: Burst | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    waits: RetryWaits | UnsetType | None = UNSET
    final_statuses: Failures | UnsetType = UNSET
    body: BodyKind | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET  # replaces all of them
    owner: Owner | UnsetType | None = UNSET
    description: Description | UnsetType = UNSET

    def changes(self) -> dict[str, Any]:
        """Return what is given."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in named.items() if value is not UNSET}


class SubscriptionQuery(Input):
    """Which subscriptions to list."""

    channel: ChannelName | None = None
    owner: Owner | None = None
    after: Number = 0  # the number with which the page before ended
    limit: Limit = 100


class Rotation(Input):
    """Another secret, and how long the old one signs beside it."""

    secret: Secret | None = None  # default: a new one
    overlap: Annotated[float, _bounds(minimum=0, maximum=7 * 86_400)] = 86_400.0  # seconds


class ReplayInput(Input):
    """Which ended deliveries of a subscription to make again."""

    status: Literal["DeadLettered", "Completed", "Cancelled"] = "DeadLettered"
    types: Types | None = None  # of events; default all
    since: Instant | None = None  # only events published since then,
    until: Instant | None = None  # or before then
    rate: DeliveryRate | None = None  # such as 100/s; default as quickly as they can be made
    preview: bool = False  # only count them

    def filter(self) -> dict[str, Any]:
        """Return the filters of `replay` that are given."""
        names = ("status", "types", "since", "until", "rate")
        named = {name: getattr(self, name) for name in names}
        return {name: value for name, value in named.items() if value is not None}


class SagaQuery(Input):
    """Which sagas to list, the newest first."""

    subscription: Number | None = None  # required of callers that may not see all
    status: SagaStatus | None = None
    type: Text | None = None  # of the event
    before: Number | None = None  # the last number of the page before
    limit: Limit = 50


class Resend(Input):
    """Whether an event that was delivered is to be delivered again."""

    confirm: bool = False


class LetterQuery(Input):
    """Which dead letters to list, the newest first."""

    subscription: Number | None = None  # required of callers that may not see all
    before: Number | None = None  # the last number of the page before
    limit: Limit = 50


WRONG: Final = ("invalid_target", "blocked_target", "invalid_header", "invalid_rule")
NO_KEY: Final = ("key_missing", "seal_broken")


@routes.post(
    "/api/webhooks",
    status=201,
    errors=(*WRONG, "invalid_secret", "invalid_channel", "not_found", *NO_KEY),
)
async def create_subscription(request: Request, body: SubscriptionInput) -> MadeSubscription:
    """Call a URL for each event that is published to a channel from now on.

    The caller needs the right to read the channel; `system` and the streams of jobs are for
    superusers. The secret is shown only in this answer.
    """
    options = body.options()
    request.require_some_webhook()
    options["owner"] = _owner(request, body.owner)
    if body.channel == SYSTEM or body.channel.startswith(JOB):
        request.require_superuser()
    await request.require_channel("subscribe", body.channel)
    made, secret = await request.app.webhooks.acreate(
        body.channel, body.url, secret=body.secret, check=_managed_by(request), **options
    )
    await request.acted("webhook.created", subscription=made.id, channel=made.channel)
    return made_shown(made, secret)


@routes.get("/api/webhooks", errors=("invalid_channel",))
async def list_subscriptions(request: Request, query: SubscriptionQuery) -> SubscriptionPage:
    """List the subscriptions that the caller may manage, by number."""
    request.require_some_webhook()
    visible: list[WebhookSubscription] = []
    after, read = query.after, 0
    while True:
        most = query.limit if request.caller.kind == "superuser" else AT_ONCE
        found = await request.app.webhooks.alist(
            channel=query.channel, owner=query.owner, after=after, limit=most
        )
        for each in found:
            after = each.id
            if request.may_webhook(subscription_fields(each)):
                visible.append(each)
            if len(visible) == query.limit:
                break
        read += len(found)
        is_last = len(found) < most
        if is_last or len(visible) == query.limit or read >= MOST_READ:
            break
    more = len(visible) == query.limit or not is_last
    items = [subscription_shown(each) for each in visible]
    return SubscriptionPage(items=items, next=after if more else None)


@routes.get("/api/webhooks/{subscription}")
async def get_subscription(request: Request, subscription: int) -> SubscriptionShown:
    """Read a subscription."""
    return subscription_shown(await request.subscription(subscription))


@routes.patch("/api/webhooks/{subscription}", errors=(*WRONG, *NO_KEY))
async def update_subscription(
    request: Request, subscription: int, body: SubscriptionChange
) -> SubscriptionShown:
    """Change a subscription; deliveries that wait follow the change."""
    before = await request.subscription(subscription)
    changes = body.changes()
    if "owner" in changes and changes["owner"] != before.owner:
        _require_free_owner(request)
    changed = await request.app.webhooks.aupdate(
        subscription, check=_managed_by(request), **changes
    )
    await request.acted("webhook.changed", subscription=subscription, changed=sorted(changes))
    return subscription_shown(changed)


@routes.delete("/api/webhooks/{subscription}", status=204)
async def delete_subscription(request: Request, subscription: int) -> None:
    """Delete a subscription and its secrets; deliveries that wait for it are cancelled."""
    await request.subscription(subscription)
    await request.app.webhooks.adelete(subscription)
    await request.acted("webhook.deleted", subscription=subscription)


@routes.post("/api/webhooks/{subscription}/pause")
async def pause_subscription(request: Request, subscription: int) -> Paused:
    """Hold what is published for a subscription until it is resumed."""
    await request.subscription(subscription)
    under_way = await request.app.webhooks.apause(subscription)
    await request.acted("webhook.paused", subscription=subscription)
    return Paused(under_way=under_way)


@routes.post("/api/webhooks/{subscription}/resume")
async def resume_subscription(request: Request, subscription: int) -> SubscriptionShown:
    """Deliver again: what was held, in its order, and what is new."""
    await request.subscription(subscription)
    resumed = await request.app.webhooks.aresume(subscription)
    await request.acted("webhook.resumed", subscription=subscription)
    return subscription_shown(resumed)


@routes.post("/api/webhooks/{subscription}/enable")
async def enable_subscription(request: Request, subscription: int) -> SubscriptionShown:
    """Start a subscription that its failures, or a 410, have stopped."""
    await request.subscription(subscription)
    enabled = await request.app.webhooks.aenable(subscription)
    await request.acted("webhook.enabled", subscription=subscription)
    return subscription_shown(enabled)


@routes.post("/api/webhooks/{subscription}/rotate", errors=("invalid_secret", *NO_KEY))
async def rotate_secret(request: Request, subscription: int, body: Rotation) -> RotatedSecret:
    """Sign with another secret, which is shown only in this answer.

    For the time of `overlap` requests have signatures of both secrets.
    """
    await request.subscription(subscription)
    secret = await request.app.webhooks.arotate(
        subscription, secret=body.secret, overlap=body.overlap
    )
    await request.acted("webhook.rotated", subscription=subscription)
    return RotatedSecret(secret=secret)


@routes.post("/api/webhooks/{subscription}/ping", status=201, errors=("conflict",))
async def ping_subscription(request: Request, subscription: int) -> SagaShown:
    """Deliver an event of type `ping` to a subscription, the way that all events go."""
    await request.subscription(subscription)
    saga = await request.app.webhooks.aping(subscription)
    await request.acted("webhook.pinged", subscription=subscription, saga=saga.id)
    return shown(SagaShown, saga)


@routes.get("/api/webhooks/{subscription}/health")
async def subscription_health(request: Request, subscription: int) -> HealthShown:
    """Read how the deliveries of a subscription go."""
    await request.subscription(subscription)
    return health_shown(await request.app.webhooks.ahealth(subscription))


@routes.post("/api/webhooks/{subscription}/replay")
async def replay_subscription(
    request: Request, subscription: int, body: ReplayInput
) -> ReplayShown:
    """Make ended deliveries of a subscription again, each once, as a job with progress.

    They are counted first; with `preview` they are only counted.
    """
    await request.subscription(subscription)
    webhooks, asked = request.app.webhooks, body.filter()
    if body.preview:
        return ReplayShown(count=await webhooks.apreview(subscription, **asked), job=None)
    job = await webhooks.areplay(subscription, **asked)
    count = job.payload["count"]
    await request.acted("webhook.replayed", subscription=subscription, job=job.id, count=count)
    return ReplayShown(count=count, job=job.id)


@routes.get("/api/webhooks/sagas", errors=("not_found",))
async def list_sagas(request: Request, query: SagaQuery) -> Items[SagaShown]:
    """List sagas: the deliveries of single events, the newest first."""
    await _require_list(request, query.subscription)
    found = await request.app.webhooks.sagas.alist(
        subscription=query.subscription,
        status=query.status,
        type=query.type,
        before=query.before,
        limit=query.limit,
    )
    return all_shown(SagaShown, found)


@routes.get("/api/webhooks/sagas/{saga}")
async def get_saga(request: Request, saga: int) -> SagaShown:
    """Read a saga."""
    return shown(SagaShown, await _saga(request, saga))


@routes.get("/api/webhooks/sagas/{saga}/attempts")
async def list_attempts(request: Request, saga: int) -> Items[AttemptShown]:
    """Read the attempts of a saga, in order."""
    await _saga(request, saga)
    found = await request.app.webhooks.sagas.aattempts(saga)
    return Items(items=[attempt_shown(each) for each in found])


@routes.post("/api/webhooks/sagas/{saga}/resend", status=201, errors=("conflict",))
async def resend_saga(request: Request, saga: int, body: Resend) -> SagaShown:
    """Deliver the event of an ended saga once more, by a new saga; a delivered one if confirmed."""
    await _saga(request, saga)
    again = await request.app.webhooks.sagas.aresend(saga, confirm=body.confirm)
    await request.acted("saga.resent", subscription=again.subscription, saga=saga)
    return shown(SagaShown, again)


@routes.post("/api/webhooks/sagas/{saga}/cancel", errors=("conflict",))
async def cancel_saga(request: Request, saga: int) -> SagaShown:
    """End a saga without a further attempt; one with an attempt under way ends with it."""
    await _saga(request, saga)
    cancelled = await request.app.webhooks.sagas.acancel(saga)
    await request.acted("saga.cancelled", subscription=cancelled.subscription, saga=saga)
    return shown(SagaShown, cancelled)


@routes.get("/api/webhooks/dead-letters", errors=("not_found",))
async def list_dead_letters(request: Request, query: LetterQuery) -> Items[DeadLetterOutline]:
    """List dead letters without their payloads, the newest first."""
    await _require_list(request, query.subscription)
    found = await request.app.webhooks.dead_letters.alist(
        subscription=query.subscription, before=query.before, limit=query.limit
    )
    return Items(items=[letter_outline(each) for each in found])


@routes.get("/api/webhooks/dead-letters/{letter}")
async def get_dead_letter(request: Request, letter: int) -> DeadLetterShown:
    """Read a dead letter with the payload of its event."""
    return letter_shown(await _letter(request, letter), request.redact)


@routes.post("/api/webhooks/dead-letters/{letter}/requeue", status=201, errors=("conflict",))
async def requeue_dead_letter(request: Request, letter: int) -> SagaShown:
    """Deliver the event of a dead letter again, by a new saga."""
    await _letter(request, letter)
    actor = request.caller.name[:255]
    saga = await request.app.webhooks.dead_letters.arequeue(letter, actor=actor)
    await request.acted("dead_letter.requeued", subscription=saga.subscription, letter=letter)
    return shown(SagaShown, saga)


@routes.delete("/api/webhooks/dead-letters/{letter}", status=204)
async def delete_dead_letter(request: Request, letter: int) -> None:
    """Forget a dead letter."""
    found = await _letter(request, letter)
    await request.app.webhooks.dead_letters.adelete(letter)
    await request.acted("dead_letter.deleted", subscription=found.subscription, letter=letter)


def _managed_by(request: Request) -> Callable[[WebhookSubscription], None]:
    """Return a check that refuses a subscription which the caller could not manage afterwards."""
    return lambda each: request.require_webhook(subscription_fields(each))


async def _require_list(request: Request, subscription: int | None) -> None:
    """Refuse a caller that may not see what belongs to a subscription, or to all of them."""
    request.require_some_webhook()
    if subscription is None and not request.may_all_webhooks:
        if request.caller.kind == "anonymous":
            raise login_required()
        message = "name a `subscription`: the caller may not see those of all"
        raise Refusal(403, "forbidden", message)
    if subscription is not None and not await request.may_webhooks_of(subscription):
        raise request.missing_webhook(f"there is no subscription {subscription}")


async def _saga(request: Request, id: int) -> Saga:
    """Read a saga, if the caller may manage its subscription."""
    request.require_some_webhook()
    with contextlib.suppress(NotFound):
        saga = await request.app.webhooks.sagas.aget(id)
        if await request.may_webhooks_of(saga.subscription):
            return saga
    raise request.missing_webhook(f"there is no saga {id}; ended ones are forgotten after a while")


async def _letter(request: Request, id: int) -> DeadLetter:
    """Read a dead letter, if the caller may manage its subscription."""
    request.require_some_webhook()
    with contextlib.suppress(NotFound):
        letter = await request.app.webhooks.dead_letters.aget(id)
        if await request.may_webhooks_of(letter.subscription):
            return letter
    raise request.missing_webhook(f"there is no dead letter {id}; old ones are forgotten")


def _owner(request: Request, owner: str | None) -> str | None:
    """Return the owner of a new subscription; only superusers and keys choose it."""
    own: str | None = request.caller.auth["id"] if request.is_ruled else None
    if owner not in {None, own}:
        _require_free_owner(request)
    return own or owner


def _require_free_owner(request: Request) -> None:
    if request.is_ruled:
        message = "only superusers and API keys may choose the owner of a subscription"
        raise Refusal(403, "forbidden", message)
