"""The tester of access rules: which rule decides, and which of its parts hold, for one caller."""

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from msgspec import Meta, field

from towpath.errors import Invalid, NotFound
from towpath.model.access import Access
from towpath.model.accounts import Collection
from towpath.model.channels import checked_channel, checked_own, job_of
from towpath.model.job import Job
from towpath.model.payload import redacted
from towpath.model.rule_syntax import Field
from towpath.model.rules import Names, Rule, RulePart
from towpath.model.subscriptions import REPLAY
from towpath.model.topics import checked
from towpath.server.accounts import AccessChange, access_changes
from towpath.server.authentication import ANONYMOUS, EXTERNAL, Caller, caller_of, caller_of_key
from towpath.server.errors import Refusal
from towpath.server.inputs import ChannelName, Input, Topic
from towpath.server.outputs import ResponseBody
from towpath.server.request import Request, Verb, lacks_job, parsed
from towpath.server.routes import Routes

routes: Final = Routes("access")

MOST_VALUE: Final = 300  # characters
MISSING: Final = "missing"

TriedVerb = Literal["enqueue", "manage", "work", "publish", "subscribe"]
Texts = dict[str, str]


class TriedCaller(Input):
    """As which caller: an account, an API key, or one with these fields."""

    collection: Collection | None = None  # of the account `id`
    id: str | None = None
    key: str | None = None  # the id of an API key
    auth: dict[str, Any] | None = None  # of a login: `@request.auth`


class AccessTry(Input):
    """A request to imagine."""

    verb: TriedVerb
    topic: Topic | None = None
    channel: ChannelName | None = None  # instead of a topic or a job
    as_: TriedCaller | None = field(name="as", default=None)  # null: without a login
    job: UUID | None = None
    body: Any = None  # `@request.body`; of an enqueue, the new job
    query: Texts = field(default_factory=dict)
    headers: Texts = field(default_factory=dict)
    method: Annotated[str, Meta(pattern="^[A-Z]{1,20}$")] = "POST"
    rules: AccessChange | None = None  # as if these were saved


class DecidingRule(ResponseBody):
    """The rule that decides."""

    name: str  # such as manage_rule
    of: Literal["general", "topic", "channel"]
    text: str


class RulePartShown(ResponseBody):
    """A comparison of a rule, with its values as JSON text; `missing` if there is none."""

    text: str
    position: int
    left: str
    operator: str  # empty for `true` and `false` alone
    right: str
    holds: bool


class AccessAnswer(ResponseBody):
    """Whether the request would be allowed, and why."""

    allowed: bool
    why: str
    rule: DecidingRule | None  # null: no rule decides
    parts: list[RulePartShown]


@routes.post("/api/access/try", errors=("not_found", "invalid_rule", "invalid_channel"))
async def try_access(request: Request, body: AccessTry) -> AccessAnswer:
    """Say whether a caller may do something, which rule decides, and which of its parts hold.

    Nothing is changed. Values that the setting `redact` names stay hidden.
    """
    request.require_superuser()
    if body.channel is not None:
        return await _try_channel(request, body, checked_channel(body.channel))
    verb = body.verb
    if verb == "publish" or verb == "subscribe":  # noqa: PLR1714 - narrows its type
        msg = f"`{verb}` is for channels; give a `channel`"
        raise Invalid(msg)
    job = None if body.job is None else await request.app.jobs.aget(body.job)
    topic = job.topic if job is not None else body.topic and checked(body.topic)
    tried = await _imagined(request, body)
    new = cast("dict[str, Any]", body.body if isinstance(body.body, dict) else {})
    given = {**new, "topic": topic} if body.verb == "enqueue" else None
    refusal = await _refusal(_do(tried, verb, topic, job, given))
    if answer := _without_rule(tried, verb, topic, refusal):
        return answer
    name = f"{body.verb}_rule"
    own = tried.access.topics.get(topic) if topic is not None else None
    is_own = own is not None and getattr(own, name) is not None
    rule = tried.rule_of(verb, topic)
    deciding = DecidingRule(name=name, of="topic" if is_own else "general", text=rule.text)
    if given is None and job is None and (answer := _needs_job(deciding, rule, topic)):
        return answer
    names = tried.names_of(topic, None if body.verb == "enqueue" else job, given)
    return _decided(request, deciding, rule, names)


async def _try_channel(request: Request, body: AccessTry, channel: str) -> AccessAnswer:
    verb = body.verb
    if verb == "enqueue" or verb == "work":  # noqa: PLR1714 - narrows its type
        msg = f"`{verb}` is for jobs; give a `topic` or a `job`"
        raise Invalid(msg)
    if verb == "publish":
        checked_own(channel)
    tried = await _imagined(request, body)
    refusal = await _refusal(tried.require_channel(verb, channel))
    if answer := _without_rule(tried, verb, channel, refusal):
        return answer
    text, rest = tried.access.channel_rule(verb, channel)
    rule = parsed(text)
    job = await _job_of(request, body, channel)
    deciding = DecidingRule(name=f"{verb}_rule", of="channel", text=text)
    if job is None and (answer := _needs_job(deciding, rule, None)):
        return answer
    names = tried.names_of(job=job, channel={"name": channel, "rest": rest})
    answer = _decided(request, deciding, rule, names)
    if answer.allowed or job is None:
        return answer
    # The stream of a job may also be read by a caller that may manage the job.
    managing = msgspec.structs.replace(body, verb="manage", channel=None, job=job.id)
    other = await try_access(request, managing)
    return other if other.allowed or rule.is_closed else answer


async def _job_of(request: Request, body: AccessTry, channel: str) -> Job | None:
    """Return the job whose stream is to be read: the API asks about no other job of a channel."""
    id = job_of(channel) if body.verb == "subscribe" else None
    return None if id is None else await request.app.jobs.aget(id)


async def _do(tried: Request, verb: Verb, topic: str | None, job: Job | None, new: object) -> None:
    """Ask for the right as the API does."""
    if new is not None:
        tried.require_enqueue(topic or "", new)
    elif job is not None:
        await tried.job(verb, job.id)
    else:
        tried.require(verb, topic)


async def _refusal(asking: Awaitable[object]) -> str | None:
    try:
        await asking
    except (Refusal, NotFound) as error:  # a job that is hidden is not found
        return str(error)
    return None


async def _imagined(request: Request, body: AccessTry) -> Request:
    """Return the request that is tried."""
    access: Access = await request.app.access.current()
    if body.rules is not None:
        access = request.app.access.changed(access, **access_changes(body.rules))
    headers = {
        name.lower().encode(): value.encode("latin-1", "replace")
        for name, value in body.headers.items()
    }
    scope = {
        **request.scope,
        "method": body.method,
        "query_string": urlencode(body.query).encode(),
    }
    caller = await _caller(request, body.as_)
    tried = Request(request.shared, access, caller, scope, request.receive, headers)
    tried.body = b"" if body.body is None else msgspec.json.encode(body.body)
    return tried


async def _caller(request: Request, given: TriedCaller | None) -> Caller:
    match given:
        case None:
            return ANONYMOUS
        case TriedCaller(collection=Collection() as collection, id=str(id), key=None, auth=None):
            return caller_of(await request.app.accounts.aget(collection, id))
        case TriedCaller(collection=None, id=None, key=str(id), auth=None):
            for key in await request.app.keys.alist():
                if key.id == id:
                    return caller_of_key(key)
            msg = f"there is no API key {id!r}"
            raise NotFound(msg)
        case TriedCaller(collection=None, id=None, key=None, auth=dict(auth)):
            known = {**ANONYMOUS.auth, "collectionName": EXTERNAL, "collectionId": EXTERNAL}
            kind: Literal["user", "anonymous"] = "user" if auth.get("id") else "anonymous"
            return Caller(kind=kind, auth={**(known if auth else ANONYMOUS.auth), **auth})
        case _:
            msg = "`as` is {collection, id} of an account, {key: id}, {auth: fields} or null"
            raise Invalid(msg)


def _without_rule(
    tried: Request, verb: TriedVerb, name: str | None, refusal: str | None
) -> AccessAnswer | None:
    """Answer for callers and situations that no rule decides about."""
    kind, access = tried.caller.kind, tried.access
    if kind != "superuser" and not access.http_enabled:
        return _plain("the API is off for all but superusers: http_enabled is false")
    is_ours = name == REPLAY and verb in {"enqueue", "work"}
    if refusal is not None and (is_ours or kind == "superuser"):
        return _plain(refusal)
    if kind == "superuser":
        return _plain("superusers may do everything", allowed=True)
    allowed = access.allowed_topics
    if verb == "enqueue" and allowed and name not in allowed:
        return _plain(f"allowed_topics does not have topic {name!r}")
    return _of_key(tried, verb, name, refusal) if kind == "key" else None


def _of_key(tried: Request, verb: TriedVerb, name: str | None, refusal: str | None) -> AccessAnswer:
    scopes = tried.caller.scopes
    if refusal is None:
        # The stream of a job may also be read by a key that may manage the job.
        scope = verb if verb in scopes else "manage"
        why = f"the key has the scope {scope!r}"
    elif verb in scopes:
        why = f"the key is not for {name!r}"
    else:
        why = f"the key does not have the scope {verb!r}"
    return _plain(f"{why}; rules do not apply to keys", allowed=refusal is None)


def _needs_job(deciding: DecidingRule, rule: Rule, topic: str | None) -> AccessAnswer | None:
    """Answer for a rule that reads fields of a job where there is no single job."""
    if rule.is_closed or not lacks_job(rule, topic):
        return None
    fields = ", ".join(f"@job.{each}" for each in sorted(rule.job_fields))
    why = f"the rule reads {fields}, so it allows single jobs and no whole topic; give a `job`"
    if deciding.of == "channel":
        why = f"the rule reads {fields}, so it allows only to subscribe to the stream of a job"
    return AccessAnswer(allowed=False, why=why, rule=deciding, parts=[])


def _plain(why: str, *, allowed: bool = False) -> AccessAnswer:
    return AccessAnswer(allowed=allowed, why=why, rule=None, parts=[])


def _decided(request: Request, deciding: DecidingRule, rule: Rule, names: Names) -> AccessAnswer:
    named = f"the {deciding.name} of this {deciding.of}"
    if deciding.of == "general":
        named = f"the general {deciding.name}"
    if rule.is_closed:
        return AccessAnswer(
            allowed=False, why=f"{named} is empty: only superusers may", rule=deciding, parts=[]
        )
    now = datetime.now(UTC)
    try:
        allowed, parts = rule.allows(names, now), rule.explain(names, now)
    except (RecursionError, ValueError):
        why = "no rule can read the payload: it is nested too deeply, or has too large a number"
        return AccessAnswer(allowed=False, why=why, rule=deciding, parts=[])
    why = f"{named} allows it"
    if not allowed:
        failed = next(part.text for part in parts if not part.holds)
        why = f"{named} does not allow it: {failed} does not hold"
    redact = request.app.settings.redact
    shown = [_part(part, redact) for part in parts]
    return AccessAnswer(allowed=allowed, why=why, rule=deciding, parts=shown)


def _part(part: RulePart, redact: str) -> RulePartShown:
    left, right = part.names
    return RulePartShown(
        text=part.text,
        position=part.position,
        left=_value(part.left, left, redact),
        operator=part.operator,
        right=_value(part.right, right, redact) if part.operator else "",
        holds=part.holds,
    )


def _value(value: object, name: Field | None, redact: str) -> str:
    """Return a value as JSON text, without what is hidden in payloads."""
    if value is None:
        return MISSING
    if name is not None and name.root == "job":
        # Under its names, as a name decides whether its value is hidden.
        for each in reversed(name.path):
            value = {each: value}
        value = msgspec.json.decode(redacted(msgspec.json.encode(value).decode(), redact))
        for each in name.path:
            value = cast("dict[str, Any]", value)[each] if isinstance(value, dict) else value
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}…"
