"""The verbs of webhooks: subscriptions. Those of sagas and dead letters stand beside them.

Secrets and custom headers are sealed under TOWPATH_WEBHOOK_KEY before they are stored. No verb
returns them again, and no error repeats them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, Unpack, cast

from msgspec import to_builtins
from msgspec.structs import replace

from towpath.app.checks import at_least_one
from towpath.app.dead_letters import DeadLetters
from towpath.app.sagas import Sagas
from towpath.app.webhook_checks import (
    DEFAULTS,
    ReplayFilter,
    SubscriptionChanges,
    SubscriptionOptions,
    columns_of,
    headers_of,
    number_of,
    overlap_of,
    owner_of,
    replay_of,
    secret_of,
)
from towpath.errors import Invalid, KeyMissing, SealBroken
from towpath.model.channels import checked_channel
from towpath.model.ids import uuid7
from towpath.model.instants import Duration
from towpath.model.job import Job
from towpath.model.payload import encode
from towpath.model.sealing import SealingKeys
from towpath.model.signing import SubscriptionSecrets
from towpath.model.subscriptions import (
    REPLAY,
    Replay,
    Saga,
    SubscriptionHealth,
    WebhookSubscription,
)
from towpath.store import replaying, sagas, subscriptions
from towpath.store.subscriptions import Check, NewSubscription, Reseal

if TYPE_CHECKING:
    from towpath.app.app import App

MOST_PAGE: Final = 1_000
OVERLAP: Final = "24h"
REPLAY_TTR: Final = 300.0  # seconds after which a replay whose process died goes on

Change: TypeAlias = Callable[[SubscriptionSecrets, int], SubscriptionSecrets]
"""Makes the secrets and headers of the old ones and the time, in microseconds since 1970."""


class Webhooks:
    """Subscriptions: URLs that are called for the events of a channel."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self.sagas = Sagas(app)
        self.dead_letters = DeadLetters(app)

    async def acreate(
        self,
        channel: str,
        url: str,
        *,
        secret: str | None = None,
        check: Check | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> tuple[WebhookSubscription, str]:
        """Call a URL for each event that is published to a channel from now on.

        The second value is the secret that signs its requests: that which is given, such as
        `whsec_…`, or a new one. Only this call returns it. The channel is made if there is none.
        `check` gets the subscription as it is about to be stored, and may refuse it by an error of
        its own. KeyMissing if TOWPATH_WEBHOOK_KEY is not set.
        """
        secret = secret_of(secret)
        new = self._new(channel, url, options)
        secrets = SubscriptionSecrets.of(secret, headers_of(options.get("headers", {})))
        keys, text = self._keys(), secrets.as_text()
        made = subscriptions.create(new, lambda number: keys.seal(text, number), check)
        return await self._app.arun(made), secret

    async def aget(self, subscription: int) -> WebhookSubscription:
        """Read a subscription; NotFound if there is none, or it was deleted."""
        return await self._app.arun(subscriptions.get(_number(subscription)))

    async def afind(self, subscription: int) -> WebhookSubscription | None:
        """Read a subscription, which may be deleted; None if there is none."""
        found = await self._app.arun(subscriptions.find([_number(subscription)]))
        return found[0] if found else None

    async def alist(
        self,
        *,
        channel: str | None = None,
        owner: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[WebhookSubscription]:
        """List subscriptions by number, from behind one on; of a channel, or of an owner."""
        most = min(at_least_one(limit, "limit"), MOST_PAGE)
        name = None if channel is None else checked_channel(channel)
        return await self._app.arun(
            subscriptions.list_subscriptions(_number(after), most, name, owner_of(owner))
        )

    async def aupdate(
        self,
        subscription: int,
        *,
        check: Check | None = None,
        **changes: Unpack[SubscriptionChanges],
    ) -> WebhookSubscription:
        """Change what is given, and keep the rest; deliveries that wait follow the change.

        `headers` replaces all custom headers. The channel of a subscription never changes. `check`
        gets the subscription as it is about to be stored, and may refuse it.
        """
        number = _number(subscription)
        columns = columns_of(changes, self._app.settings)
        if not changes:
            msg = "nothing to change; pass url, types, timeout or another option"
            raise Invalid(msg)
        reseal = None
        if "headers" in changes:
            headers = headers_of(changes["headers"])
            reseal = self._reseal(number, lambda old, _: replace(old, headers=headers))
        return await self._app.arun(subscriptions.update(number, columns, reseal, check))

    async def apause(self, subscription: int) -> int:
        """Hold what is published for a subscription until `resume`; say how much still goes out.

        That are the attempts under way. What is held for 7 days becomes a dead letter.
        """
        return await self._app.arun(subscriptions.pause(_number(subscription)))

    async def aresume(self, subscription: int) -> WebhookSubscription:
        """Deliver again: what was held, in its order, and what is new."""
        return await self._app.arun(subscriptions.resume(_number(subscription)))

    async def aenable(self, subscription: int) -> WebhookSubscription:
        """Start a subscription that its failures, or a 410, have stopped; what it held follows."""
        return await self._app.arun(subscriptions.enable(_number(subscription)))

    async def arotate(
        self, subscription: int, *, secret: str | None = None, overlap: Duration = OVERLAP
    ) -> str:
        """Sign with another secret, which only this call returns; a new one if none is given.

        For the time of `overlap`, at most 7 days, requests have signatures of both secrets, so
        that the receiver can change over. Sealed secrets that were changed in the database are
        lost with the headers: the new secret begins alone.
        """
        number, secret, us = _number(subscription), secret_of(secret), overlap_of(overlap)

        def rotated(old: SubscriptionSecrets, now: int) -> SubscriptionSecrets:
            # A call whose answer was lost is repeated, and finds its secret there.
            return old if old.secrets[0].secret == secret else old.rotated(secret, now, us)

        reseal = self._reseal(number, rotated, SubscriptionSecrets.of(secret, {}))
        await self._app.arun(subscriptions.reseal(number, reseal))
        return secret

    async def aping(self, subscription: int) -> Saga:
        """Deliver an event of type `ping` to a subscription, the way that all events go.

        Conflict if the subscription is paused or stopped.
        """
        number = _number(subscription)
        body, encoding = encode({"subscription": number}, self._app.settings.max_payload)
        return await self._app.arun(sagas.ping(number, uuid7(), body, encoding))

    async def adelete(self, subscription: int) -> None:
        """Delete a subscription and its secrets; deliveries that wait for it are cancelled.

        Attempts that are under way end. Its dead letters can be read, but not requeued.
        """
        await self._app.arun(subscriptions.delete(_number(subscription)))

    async def ahealth(self, subscription: int) -> SubscriptionHealth:
        """Read how the deliveries of a subscription go."""
        found = await self._app.arun(subscriptions.health([_number(subscription)]))
        if not found:
            raise subscriptions.missing(subscription)
        return found[0]

    async def apreview(self, subscription: int, **filter: Unpack[ReplayFilter]) -> int:
        """Count the deliveries that `replay` would make again."""
        return (await self._acounted(subscription, filter)).count

    async def areplay(self, subscription: int, **filter: Unpack[ReplayFilter]) -> Job:
        """Make ended deliveries of a subscription again, each once, as a job with progress.

        They are counted first: `count` in the payload of the job, which is of the topic
        `webhooks-replay` and runs where webhooks are delivered. It goes on if its process dies.
        Deliveries that end later do not belong to it. An event of which a newer delivery is there
        or under way is left out.
        """
        asked = await self._acounted(subscription, filter)
        return await self._app.jobs.aenqueue(REPLAY, to_builtins(asked), ttr=REPLAY_TTR)

    async def _acounted(self, subscription: int, filter: ReplayFilter) -> Replay:
        asked = replay_of(subscription, filter)
        await self.aget(asked.subscription)
        upto = await self._app.arun(replaying.last(asked.status))
        asked = replace(asked, upto=upto)
        return replace(asked, count=await self.aleft(asked))

    async def aleft(self, replay: Replay) -> int:
        """Count what a replay has still to make again."""
        count, after = 0, 0
        while True:
            page = await self._app.arun(replaying.candidates(replay, after, MOST_PAGE))
            count += len(page.ids)
            if page.upto is None:
                return count
            after = page.upto

    def _keys(self) -> SealingKeys:
        try:
            return SealingKeys(self._app.settings.webhook_key)
        except Invalid as error:
            raise KeyMissing(str(error)) from None

    def _new(self, channel: str, url: str, options: SubscriptionOptions) -> NewSubscription:
        if "url" in options:
            msg = "pass `url` once, behind the channel"
            raise Invalid(msg)
        given = cast("SubscriptionChanges", {**DEFAULTS, **options, "url": url})
        columns = columns_of(given, self._app.settings)
        return NewSubscription(token=uuid7(), channel=checked_channel(channel), **columns)

    def _reseal(
        self, number: int, change: Change, instead: SubscriptionSecrets | None = None
    ) -> Reseal:
        """Return a function that opens sealed secrets, changes them and seals them again.

        `instead` is sealed where the old text is broken.
        """
        keys = self._keys()

        def resealed(sealed: str, now: int) -> str:
            try:
                old = SubscriptionSecrets.from_text(keys.open(sealed, number))
            except SealBroken:
                if instead is None:
                    raise
                return keys.seal(instead.as_text(), number)
            return keys.seal(change(old, now).as_text(), number)

        return resealed

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def create(
        self,
        channel: str,
        url: str,
        *,
        secret: str | None = None,
        check: Check | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> tuple[WebhookSubscription, str]:
        """Call a URL for each event that is published to a channel from now on.

        The second value is the secret that signs its requests: that which is given, such as
        `whsec_…`, or a new one. Only this call returns it. The channel is made if there is none.
        `check` gets the subscription as it is about to be stored, and may refuse it by an error of
        its own. KeyMissing if TOWPATH_WEBHOOK_KEY is not set.
        """
        secret = secret_of(secret)
        new = self._new(channel, url, options)
        secrets = SubscriptionSecrets.of(secret, headers_of(options.get("headers", {})))
        keys, text = (self._keys(), secrets.as_text())
        made = subscriptions.create(new, lambda number: keys.seal(text, number), check)
        return (self._app.run(made), secret)

    def get(self, subscription: int) -> WebhookSubscription:
        """Read a subscription; NotFound if there is none, or it was deleted."""
        return self._app.run(subscriptions.get(_number(subscription)))

    def find(self, subscription: int) -> WebhookSubscription | None:
        """Read a subscription, which may be deleted; None if there is none."""
        found = self._app.run(subscriptions.find([_number(subscription)]))
        return found[0] if found else None

    def list(
        self,
        *,
        channel: str | None = None,
        owner: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[WebhookSubscription]:
        """List subscriptions by number, from behind one on; of a channel, or of an owner."""
        most = min(at_least_one(limit, "limit"), MOST_PAGE)
        name = None if channel is None else checked_channel(channel)
        return self._app.run(
            subscriptions.list_subscriptions(_number(after), most, name, owner_of(owner))
        )

    def update(
        self,
        subscription: int,
        *,
        check: Check | None = None,
        **changes: Unpack[SubscriptionChanges],
    ) -> WebhookSubscription:
        """Change what is given, and keep the rest; deliveries that wait follow the change.

        `headers` replaces all custom headers. The channel of a subscription never changes. `check`
        gets the subscription as it is about to be stored, and may refuse it.
        """
        number = _number(subscription)
        columns = columns_of(changes, self._app.settings)
        if not changes:
            msg = "nothing to change; pass url, types, timeout or another option"
            raise Invalid(msg)
        reseal = None
        if "headers" in changes:
            headers = headers_of(changes["headers"])
            reseal = self._reseal(number, lambda old, _: replace(old, headers=headers))
        return self._app.run(subscriptions.update(number, columns, reseal, check))

    def pause(self, subscription: int) -> int:
        """Hold what is published for a subscription until `resume`; say how much still goes out.

        That are the attempts under way. What is held for 7 days becomes a dead letter.
        """
        return self._app.run(subscriptions.pause(_number(subscription)))

    def resume(self, subscription: int) -> WebhookSubscription:
        """Deliver again: what was held, in its order, and what is new."""
        return self._app.run(subscriptions.resume(_number(subscription)))

    def enable(self, subscription: int) -> WebhookSubscription:
        """Start a subscription that its failures, or a 410, have stopped; what it held follows."""
        return self._app.run(subscriptions.enable(_number(subscription)))

    def rotate(
        self, subscription: int, *, secret: str | None = None, overlap: Duration = OVERLAP
    ) -> str:
        """Sign with another secret, which only this call returns; a new one if none is given.

        For the time of `overlap`, at most 7 days, requests have signatures of both secrets, so
        that the receiver can change over. Sealed secrets that were changed in the database are
        lost with the headers: the new secret begins alone.
        """
        number, secret, us = (_number(subscription), secret_of(secret), overlap_of(overlap))

        def rotated(old: SubscriptionSecrets, now: int) -> SubscriptionSecrets:
            return old if old.secrets[0].secret == secret else old.rotated(secret, now, us)

        reseal = self._reseal(number, rotated, SubscriptionSecrets.of(secret, {}))
        self._app.run(subscriptions.reseal(number, reseal))
        return secret

    def ping(self, subscription: int) -> Saga:
        """Deliver an event of type `ping` to a subscription, the way that all events go.

        Conflict if the subscription is paused or stopped.
        """
        number = _number(subscription)
        body, encoding = encode({"subscription": number}, self._app.settings.max_payload)
        return self._app.run(sagas.ping(number, uuid7(), body, encoding))

    def delete(self, subscription: int) -> None:
        """Delete a subscription and its secrets; deliveries that wait for it are cancelled.

        Attempts that are under way end. Its dead letters can be read, but not requeued.
        """
        self._app.run(subscriptions.delete(_number(subscription)))

    def health(self, subscription: int) -> SubscriptionHealth:
        """Read how the deliveries of a subscription go."""
        found = self._app.run(subscriptions.health([_number(subscription)]))
        if not found:
            raise subscriptions.missing(subscription)
        return found[0]

    def preview(self, subscription: int, **filter: Unpack[ReplayFilter]) -> int:
        """Count the deliveries that `replay` would make again."""
        return self._counted(subscription, filter).count

    def replay(self, subscription: int, **filter: Unpack[ReplayFilter]) -> Job:
        """Make ended deliveries of a subscription again, each once, as a job with progress.

        They are counted first: `count` in the payload of the job, which is of the topic
        `webhooks-replay` and runs where webhooks are delivered. It goes on if its process dies.
        Deliveries that end later do not belong to it. An event of which a newer delivery is there
        or under way is left out.
        """
        asked = self._counted(subscription, filter)
        return self._app.jobs.enqueue(REPLAY, to_builtins(asked), ttr=REPLAY_TTR)

    def _counted(self, subscription: int, filter: ReplayFilter) -> Replay:
        asked = replay_of(subscription, filter)
        self.get(asked.subscription)
        upto = self._app.run(replaying.last(asked.status))
        asked = replace(asked, upto=upto)
        return replace(asked, count=self.left(asked))

    def left(self, replay: Replay) -> int:
        """Count what a replay has still to make again."""
        count, after = (0, 0)
        while True:
            page = self._app.run(replaying.candidates(replay, after, MOST_PAGE))
            count += len(page.ids)
            if page.upto is None:
                return count
            after = page.upto


def _number(subscription: int) -> int:
    return number_of(subscription, "subscription")
