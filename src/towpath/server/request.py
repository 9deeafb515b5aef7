"""The request that a handler gets: the app, the caller, and what the caller may do.

superuser   may do everything
key         may do what its scopes and topics allow; rules do not apply
others      may do what a rule allows: the topic's rule, or the general one if it has none
"""

import asyncio
import base64
import contextlib
import logging
import time
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast
from uuid import UUID

import msgspec

from towpath.errors import NotFound, TowpathError
from towpath.model.access import Access
from towpath.model.channels import JOB, SYSTEM, checked_channel
from towpath.model.consumers import Owner
from towpath.model.job import Job
from towpath.model.rule_syntax import OF_WEBHOOKS
from towpath.model.rules import Names, Rule
from towpath.model.subscriptions import REPLAY, WebhookSubscription
from towpath.server.authentication import Caller, token_of
from towpath.server.bodies import Receive, Scope, query_of
from towpath.server.errors import Refusal
from towpath.server.outputs import job_shown
from towpath.server.webhook_outputs import subscription_fields

if TYPE_CHECKING:
    from towpath.server.shared import Shared

T = TypeVar("T")
Verb = Literal["enqueue", "manage", "work"]
ChannelVerb = Literal["publish", "subscribe", "manage"]

log: Final = logging.getLogger("towpath.server")
CHECKED_FOR: Final = 1.0  # seconds for which a right counts as checked
parsed: Final = lru_cache(maxsize=1_000)(Rule.parse)


class Request:
    """One request and its caller."""

    __slots__ = (
        "_checked_until", "_rule_fields", "access", "app", "body", "caller", "headers",
        "is_disconnected", "pass_channels", "receive", "scope", "shared",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - called only by `Shared`, for every request
        self,
        shared: "Shared",
        access: Access,
        caller: Caller,
        scope: Scope,
        receive: Receive,
        headers: dict[bytes, bytes],
    ) -> None:
        self.shared = shared
        self.app = shared.app
        self.access = access
        self.caller = caller
        self.scope = scope
        self.receive = receive
        self.headers = headers
        self.body = b""
        self.pass_channels: tuple[str, ...] | None = None  # the only ones, if it came with a pass
        self.is_disconnected = False  # the client does not read the answer any more
        self._rule_fields: dict[str, Any] | None = None
        self._checked_until = 0.0

    @property
    def client(self) -> str:
        """The network address of the client."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def redact(self) -> str:
        """The names of the fields whose values no answer to this request may hold.

        They are hidden from the browser of a superuser, which has its cookie and no token: there
        they are revealed one job at a time, and that is an act.
        """
        is_browser = self.caller.kind == "superuser" and token_of(self.headers) is None
        return self.app.settings.redact if is_browser else ""

    @property
    def is_ruled(self) -> bool:
        """Whether rules decide what the caller may do."""
        return self.caller.kind in {"anonymous", "user"}

    def may(self, verb: Verb, topic: str | None = None, job: Job | None = None) -> bool:
        """Return whether the caller may do this to the jobs of a topic, or to one job."""
        match self.caller.kind:
            case "superuser":
                return True
            case "key":
                bound = self.caller.topics
                return verb in self.caller.scopes and (not bound or topic in bound)
            case _:
                return self._allows(self.rule_of(verb, topic), topic, job)

    def require(self, verb: Verb, topic: str | None = None) -> None:
        """Refuse a caller that may not do this."""
        if not self.may(verb, topic):
            raise self._refusal(verb)
        if verb == "work":
            _refuse_own(topic)

    def closed_topics(self, verb: Verb) -> frozenset[str]:
        """Return the topics whose own rules do not let the caller do this to all their jobs."""
        own = self.access.topics if self.is_ruled else ()
        return frozenset(topic for topic in own if not self.may(verb, topic))

    def require_some(self, verb: Verb) -> None:
        """Refuse a caller that may do this in no topic and to no job."""
        if not self._may_some(verb):
            raise self._refusal(verb)

    def require_enqueue(self, topic: str, body: object) -> None:
        """Refuse a caller that may not enqueue this job; rules see `body` as the job."""
        self.require_allowed(topic)
        _refuse_own(topic)
        if self.caller.kind in {"superuser", "key"}:
            allowed = self.may("enqueue", topic)
        else:
            allowed = self._allows(self.rule_of("enqueue", topic), topic, body=body)
        if not allowed:
            raise self._refusal("enqueue")

    def require_allowed(self, topic: str) -> None:
        """Refuse a topic that is not in `allowed_topics`, unless a superuser asks."""
        allowed = self.access.allowed_topics
        if allowed and topic not in allowed and self.caller.kind != "superuser":
            message = f"only superusers may enqueue jobs of topic {topic[:200]!r}"
            raise Refusal(403, "forbidden", message)

    def require_superuser(self) -> None:
        """Refuse a caller that is not a superuser."""
        if self.caller.kind == "anonymous":
            raise login_required()
        if self.caller.kind != "superuser":
            raise Refusal(403, "forbidden", "only superusers may do this")

    def may_channel(self, verb: ChannelVerb, name: str, job: Job | None = None) -> bool:
        """Return whether the caller may do this to a channel, which may be the stream of a job."""
        if self.pass_channels is not None and not (
            verb == "subscribe" and name in self.pass_channels
        ):
            return False
        match self.caller.kind:
            case "superuser":
                return True
            case "key":
                bound = self.caller.channels
                names = SYSTEM in bound if name == SYSTEM else not bound or name.startswith(bound)
                return verb in self.caller.scopes and names
            case _:
                text, rest = self.access.channel_rule(verb, name)
                channel = {"name": name, "rest": rest}
                return self._allows(parsed(text), job=job, channel=channel)

    async def require_channel(self, verb: ChannelVerb, name: str) -> None:
        """Refuse a caller that may not do this to a channel.

        The stream of a job may also be read by a caller that may manage the job.
        """
        if self.may_channel(verb, checked_channel(name)):
            return
        is_outside = self.pass_channels is not None and name not in self.pass_channels
        if (
            name.startswith(JOB)
            and verb == "subscribe"
            and not is_outside
            and (await self._may_watch(name))
        ):
            return
        raise self._refusal(verb, "channels")

    def consumer_owner(self, name: str) -> Owner | None:
        """Return the owner of the caller's consumers; None if it may use all of the channel."""
        if self.may_channel("manage", name):
            return None
        if self.caller.kind == "anonymous":  # all such callers are one
            raise login_required()
        return Owner(self.caller.name, makes_channel=self.may_channel("publish", name))

    async def check_again(self, verb: ChannelVerb, name: str) -> None:
        """Refuse a caller that has lost a right since its request came; look once a second.

        It may have logged out, or the rules may have changed.
        """
        if fresh := await self._authenticated_again():
            await fresh.require_channel(verb, name)
            self._become(fresh)

    async def check_superuser_again(self) -> None:
        """Refuse a caller that is no superuser any more; look once a second."""
        if fresh := await self._authenticated_again():
            fresh.require_superuser()
            self._become(fresh)

    async def _authenticated_again(self) -> "Request | None":
        """Return the request as if it came now; None if that was checked a moment ago."""
        current = await self.app.access.current()
        if current.version == self.access.version and time.monotonic() < self._checked_until:
            return None
        fresh = await self.shared.request(self.scope, self.receive, is_open=False)
        fresh.pass_channels = self.pass_channels
        fresh.refuse_if_closed()
        return fresh

    def _become(self, fresh: "Request") -> None:
        self.access, self.caller, self._rule_fields = fresh.access, fresh.caller, None
        self._checked_until = time.monotonic() + CHECKED_FOR

    def may_webhook(self, subscription: Mapping[str, object]) -> bool:
        """Return whether the caller may make or manage a subscription with these fields."""
        match self.caller.kind:
            case "superuser":
                return True
            case "key":
                bound, channel = self.caller.channels, str(subscription["channel"])
                may = "webhooks" in self.caller.scopes
                return may and (not bound or channel.startswith(bound))
            case _:
                return self._allows(self._webhook_rule(), subscription=subscription)

    @property
    def may_all_webhooks(self) -> bool:
        """Whether the caller may manage every subscription, whatever its fields are."""
        match self.caller.kind:
            case "superuser":
                return True
            case "key":
                return "webhooks" in self.caller.scopes and not self.caller.channels
            case _:
                rule = self._webhook_rule()
                return not rule.subscription_fields and self._allows(rule)

    def require_webhook(self, subscription: Mapping[str, object]) -> None:
        """Refuse a caller that may not make this subscription."""
        if not self.may_webhook(subscription):
            raise self._refusal("webhooks", "channels")

    def require_some_webhook(self) -> None:
        """Refuse a caller that may manage no subscription at all."""
        match self.caller.kind:
            case "superuser":
                return
            case "key":
                may = "webhooks" in self.caller.scopes
            case _:
                may = bool(self._webhook_rule().subscription_fields) or self.may_all_webhooks
        if not may:
            raise self._refusal("webhooks", "channels")

    async def subscription(self, id: int) -> WebhookSubscription:
        """Read a subscription that the caller may manage.

        One that is hidden from the caller is answered as one that does not exist.
        """
        self.require_some_webhook()
        found = await self.app.webhooks.afind(id)
        if found is None or found.deleted_at is not None or not self._may_manage(found):
            raise self.missing_webhook(f"there is no subscription {id}; it may have been deleted")
        return found

    async def may_webhooks_of(self, id: int) -> bool:
        """Return whether the caller may manage what a subscription has left, if it is deleted."""
        if self.may_all_webhooks:
            return True
        found = await self.app.webhooks.afind(id)
        return found is not None and self._may_manage(found)

    def missing_webhook(self, message: str) -> Exception:
        """Return the error of what does not exist, or is hidden from the caller."""
        if self.caller.kind == "anonymous" and not self.may_all_webhooks:
            return login_required()
        return NotFound(message)

    def _may_manage(self, subscription: WebhookSubscription) -> bool:
        return self.may_webhook(subscription_fields(subscription))

    def _webhook_rule(self) -> Rule:
        return parsed(self.access.webhook_rule, OF_WEBHOOKS)

    async def _may_watch(self, name: str) -> bool:
        try:
            job = await self._read(UUID(name.removeprefix(JOB)))
        except (ValueError, NotFound):
            return False
        return self.may_channel("subscribe", name, job) or self.may("manage", job.topic, job)

    async def job(self, verb: Verb, id: UUID | int, *, any_version: bool = False) -> Job:
        """Read a job, if the caller may do this to it; with `any_version` also an UnreadableJob.

        A job that is hidden from the caller is answered as one that does not exist.
        """
        job = await self._visible(verb, id, any_version=any_version)
        if verb == "work":
            _refuse_own(job.topic)
        return job

    async def _visible(self, verb: Verb, id: UUID | int, *, any_version: bool) -> Job:
        if self.caller.kind == "superuser":
            return await self._read(id, any_version=any_version)
        self.require_some(verb)
        with contextlib.suppress(NotFound):
            job = await self._read(id, any_version=any_version)
            if self.may(verb, job.topic, job):
                return job
        if self.caller.kind == "anonymous" and not self.may(verb):
            raise login_required()
        msg = f"there is no job {id}"
        raise NotFound(msg)

    async def _read(self, id: UUID | int, *, any_version: bool = False) -> Job:
        jobs = self.app.jobs
        if any_version and isinstance(id, UUID):
            return await jobs.afind(id)
        return await (jobs.anumbered(id) if isinstance(id, int) else jobs.aget(id))

    def refuse_if_closed(self) -> None:
        """Refuse all but superusers while HTTP is off, and anonymous callers without any rule."""
        if self.caller.kind == "superuser":
            return
        if not self.access.http_enabled:
            raise Refusal(403, "http_disabled", "this API is off for all but superusers")
        if self.caller.kind == "anonymous" and not self.access.has_rules:
            raise login_required()  # before the body is read

    def depends_on_job(self, verb: Verb, topic: str | None) -> bool:
        """Return whether the caller may do this to some jobs and not to others."""
        match self.caller.kind:
            case "superuser":
                return False
            case "key":
                return topic is None and bool(self.caller.topics)
            case _:
                own_rules = self.access.topics if topic is None else ()
                return bool(own_rules) or self.rule_of(verb, topic).needs_job

    def _may_some(self, verb: Verb) -> bool:
        match self.caller.kind:
            case "superuser":
                return True
            case "key":
                return verb in self.caller.scopes
            case _:
                rules = [self.rule_of(verb, topic) for topic in (None, *self.access.topics)]
                return any(rule.needs_job or self._allows(rule) for rule in rules)

    def rule_of(self, verb: Verb, topic: str | None) -> Rule:
        """Return the rule that decides: that of the topic, or the general one."""
        name = f"{verb}_rule"
        own = self.access.topics.get(topic) if topic is not None else None
        text: str | None = getattr(own, name) if own else None
        return parsed(getattr(self.access, name) if text is None else text)

    def _allows(
        self,
        rule: Rule,
        topic: str | None = None,
        job: Job | None = None,
        *,
        body: object = None,
        channel: Mapping[str, object] | None = None,
        subscription: Mapping[str, object] | None = None,
    ) -> bool:
        """Return whether a rule allows a job, a job to store, a topic, a channel, a subscription.

        A rule that needs the fields of a job does not allow a whole topic.
        """
        if rule.is_public:
            return True
        if rule.is_closed:
            return False
        if job is None and body is None and lacks_job(rule, topic):
            return False
        try:
            names = self.names_of(topic, job, body, channel, subscription)
            return rule.allows(names, datetime.now(UTC))
        except (RecursionError, ValueError):
            return False  # a payload that can be stored, but not be read by a rule

    def names_of(
        self,
        topic: str | None = None,
        job: Job | None = None,
        body: object = None,
        channel: Mapping[str, object] | None = None,
        subscription: Mapping[str, object] | None = None,
    ) -> Names:
        """Return what rules see of this request, and of what it is for."""
        request = self._request_fields()
        if job is not None:
            return Names(request=request, job=partial(_job_fields, job), channel=channel)
        if body is not None:
            new = _with_arguments(cast("dict[str, Any]", for_rules(body)))  # named as in a job
            return Names(request={**request, "body": new}, job=new)
        return Names(
            request=request, job={"topic": topic}, channel=channel, subscription=subscription
        )

    def _request_fields(self) -> dict[str, Any]:
        """Return what rules see as @request."""
        if self._rule_fields is None:
            self._rule_fields = {
                "auth": self.caller.auth,
                "body": for_rules(self.body),
                "query": dict(query_of(self.scope)),
                "headers": {
                    str(name, "latin-1").replace("-", "_"): str(value, "latin-1")
                    for name, value in self.headers.items()
                    if b"_" not in name  # it would pass for the header with a hyphen
                },
                "method": self.scope["method"],
                "context": "default",
            }
        return self._rule_fields

    def _refusal(self, verb: str, of: str = "topics") -> Refusal:
        if self.caller.kind == "anonymous":
            return login_required()
        if self.caller.kind == "key":
            message = f"the scopes and {of} of this key do not allow `{verb}` here"
            return Refusal(403, "forbidden", message)
        rule = "webhook" if verb == "webhooks" else verb
        return Refusal(403, "forbidden", f"the {rule}_rule does not allow this")

    @property
    def person(self) -> dict[str, str]:
        """The account of the caller, as acts name it."""
        auth = self.caller.auth
        name = auth.get("name") or auth["email"]
        return {"collection": auth["collectionName"], "id": auth["id"], "name": name}

    async def acted(self, what: str, *, count: int = 1, **about: object) -> None:
        """Post what a person did, once it is done; requests with an API key are no acts.

        If it cannot be posted, that is logged: an error would say that nothing was done.
        """
        if self.caller.kind not in {"superuser", "user"}:
            return
        fields = {**about, "who": self.person, "count": count, "from": self.client}
        try:
            await self.app.acts.anote(what, fields)
        except TowpathError:
            log.exception("the act %s of %s could not be posted", what, self.caller.name)

    async def unless_disconnected(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """Return a result; None if the client disconnects or the server stops before it."""
        task = asyncio.ensure_future(waiting)
        others = [
            asyncio.ensure_future(each)
            for each in (self.disconnected(), self.shared.closing.wait())
        ]
        try:
            await asyncio.wait((task, *others), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return None
            self.is_disconnected = others[0].done()
            return await task
        finally:
            for each in (task, *others):
                each.cancel()

    async def disconnected(self) -> None:
        """Wait until the client has gone."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


def lacks_job(rule: Rule, topic: str | None) -> bool:
    """Return whether a rule reads fields of a job, and so allows no whole topic."""
    return bool(rule.job_fields - ({"topic"} if topic is not None else set()))


def _refuse_own(topic: str | None) -> None:
    """Refuse to enqueue or to work in a topic of Towpath itself, to superusers too."""
    if topic == REPLAY:
        path = "/api/webhooks/{subscription}/replay"
        message = f"topic {REPLAY!r} belongs to Towpath; POST {path} makes its jobs"
        raise Refusal(403, "forbidden", message)


def login_required() -> Refusal:
    """Return the refusal of an anonymous caller."""
    message = "log in and send the token, or send an API key"
    return Refusal(401, "login_required", message, headers={"www-authenticate": "Bearer"})


def for_rules(body: object) -> object:
    """Return a body as rules see it; refuse one that is nested too deep, or has a huge number."""
    if not isinstance(body, bytes):
        return body
    try:
        return msgspec.json.decode(body) if body else None
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "bad_json", f"the body cannot be read: {error}") from None


def _job_fields(job: Job) -> dict[str, Any]:
    """Return what rules see as @job: the fields of its JSON form."""
    return _with_arguments(msgspec.json.decode(msgspec.json.encode(job_shown(job))))


def _with_arguments(fields: dict[str, Any]) -> dict[str, Any]:
    """Decode a payload of bytes that holds a JSON object: a task runs it as its arguments."""
    encoding, payload = fields.get("encoding"), fields.get("payload")
    if encoding not in {"text", "base64"} or not isinstance(payload, str):
        return fields
    try:
        raw = payload if encoding == "text" else base64.b64decode(payload, validate=True)
        found = msgspec.json.decode(raw)
    except ValueError:
        return fields
    return {**fields, "payload": found} if isinstance(found, dict) else fields
