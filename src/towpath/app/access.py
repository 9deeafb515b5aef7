"""The verbs of access: the rules of the HTTP API, and the version by which caches see changes."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, cast

from msgspec.structs import replace

from towpath.app.access_cache import AccessCache
from towpath.database.wakeups import Wakeups
from towpath.errors import Invalid, InvalidRule
from towpath.model.access import (
    CHANNEL_FIELDS,
    JOB_FIELDS,
    SUBSCRIPTION_FIELDS,
    Access,
    ChannelAccess,
    TopicAccess,
)
from towpath.model.channels import JOB, checked_channel
from towpath.model.topics import checked
from towpath.store import access

if TYPE_CHECKING:
    from towpath.app.app import App

RULES: Final = ("enqueue_rule", "manage_rule", "work_rule")
WEBHOOK_RULE: Final = "webhook_rule"
CHANNEL_RULES: Final = ("publish_rule", "subscribe_rule", "manage_rule")


class AccessChanges(TypedDict, total=False):
    """What `set` can change."""

    enqueue_rule: str  # allows a caller to enqueue
    manage_rule: str  # allows a caller to read, requeue, cancel, kick and delete jobs
    work_rule: str  # allows a caller to reserve jobs and to complete, fail or release them
    webhook_rule: str  # allows a caller to make and manage subscriptions of webhooks
    access_rule: str  # sets enqueue_rule and manage_rule
    http_enabled: bool  # False: only superusers may use the API
    allowed_topics: Iterable[str]  # topics that users may enqueue to; empty: all topics
    topics: Mapping[str, Mapping[str, str | None] | None]  # rules of a topic; None removes them
    channels: Mapping[str, Mapping[str, str | None] | None]  # of channels, by how names begin


class AccessVerbs:
    """Read and change the access rules of the HTTP API."""

    def __init__(self, app: "App", wakeups: Wakeups) -> None:
        self._app = app
        self._current = AccessCache(app, wakeups)

    async def aget(self) -> Access:
        """Read the rules."""
        return await self._app.arun(access.get())

    async def aset(self, **changes: Unpack[AccessChanges]) -> Access:
        """Change the given settings and keep the others. InvalidRule if a rule cannot be read.

        `topics` replaces the rules of the topics that it names; None removes those of a topic.
        `channels` does the same for channels: {"chat:": {"subscribe_rule": …}} is for all whose
        names begin with chat:, and "" for all; of several the longest holds. Such a rule may read
        @channel.name, and @channel.rest behind the prefix; that of `job:` may also read @job.
        """
        return await self._app.arun(access.change(_changing(changes)))

    def changed(self, current: Access, **changes: Unpack[AccessChanges]) -> Access:
        """Return rules as `set` would change them; nothing is stored."""
        return _changing(changes)(current)

    @property
    def known(self) -> Access | None:
        """The current rules if they are in memory, else None."""
        return self._current.known

    async def current(self) -> Access:
        """Return the current rules; a change by another process arrives within moments."""
        return await self._current.get()

    async def aversion(self) -> int:
        """Read a number that grows with every change of an account, a token, a key or a rule."""
        return await self._app.arun(access.version())

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def get(self) -> Access:
        """Read the rules."""
        return self._app.run(access.get())

    def set(self, **changes: Unpack[AccessChanges]) -> Access:
        """Change the given settings and keep the others. InvalidRule if a rule cannot be read.

        `topics` replaces the rules of the topics that it names; None removes those of a topic.
        `channels` does the same for channels: {"chat:": {"subscribe_rule": …}} is for all whose
        names begin with chat:, and "" for all; of several the longest holds. Such a rule may read
        @channel.name, and @channel.rest behind the prefix; that of `job:` may also read @job.
        """
        return self._app.run(access.change(_changing(changes)))

    def version(self) -> int:
        """Read a number that grows with every change of an account, a token, a key or a rule."""
        return self._app.run(access.version())


def check_rule(name: str, text: str) -> str:
    """Return a rule; raise InvalidRule with its `name` if it cannot be read."""
    from towpath.model.rule_syntax import OF_ACCESS, OF_WEBHOOKS  # noqa: PLC0415 - as below
    from towpath.model.rules import Rule  # noqa: PLC0415 - an app without a server has no rules

    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"{name} must be text, not {type(text).__name__}"
        raise Invalid(msg)
    try:
        rule = Rule.parse(text, OF_WEBHOOKS if name == WEBHOOK_RULE else OF_ACCESS)
    except InvalidRule as error:
        msg = f"{name}: {error}"
        raise InvalidRule(msg, error.position, name) from error
    if rule.channel_fields and not name.startswith("channels."):
        position = text.find("@channel.")
        msg = f"{name}: position {position}: only the rules of channels may use @channel"
        raise InvalidRule(msg, position, name)
    for field in sorted(rule.channel_fields - CHANNEL_FIELDS):
        position = text.find(f"@channel.{field}")
        known = ", ".join(sorted(CHANNEL_FIELDS))
        msg = f"{name}: position {position}: unknown field @channel.{field}; known fields: {known}"
        raise InvalidRule(msg, position, name)
    for field in sorted(rule.subscription_fields - SUBSCRIPTION_FIELDS):
        position = text.find(f"@subscription.{field}")
        known = ", ".join(sorted(SUBSCRIPTION_FIELDS))
        what = f"unknown field @subscription.{field}; known fields: {known}"
        msg = f"{name}: position {position}: {what}"
        raise InvalidRule(msg, position, name)
    for field in sorted(rule.job_fields - JOB_FIELDS):
        position = text.find(f"@job.{field}")
        msg = f"{name}: position {position}: unknown field @job.{field}; {_meant(field)}"
        raise InvalidRule(msg, position, name)
    if name.endswith("work_rule") and rule.job_fields - {"topic"}:
        msg = (
            f"{name}: position {text.find('@job.')}: a work_rule may use only @job.topic, as the "
            "job is not known before it is reserved"
        )
        raise InvalidRule(msg, text.find("@job."), name)
    return text


def _meant(field: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - seldom used

    close = get_close_matches(field, JOB_FIELDS, 1)
    return f"did you mean @job.{close[0]}?" if close else "the job's data is in @job.payload"


def _changing(given: AccessChanges) -> Callable[[Access], Access]:
    """Check the changes; return a function that applies them to the stored rules."""
    changes = dict(cast("Mapping[str, Any]", given))
    unknown = changes.keys() - AccessChanges.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(AccessChanges.__annotations__))
        msg = f"unknown access settings: {', '.join(sorted(unknown))}; known settings: {known}"
        raise Invalid(msg)
    if "access_rule" in changes:
        rule = changes.pop("access_rule")
        changes = {"enqueue_rule": rule, "manage_rule": rule, **changes}
    for name in (*RULES, WEBHOOK_RULE):
        if name in changes:
            check_rule(name, changes[name])
    if not isinstance(changes.get("http_enabled", True), bool):
        msg = f"http_enabled must be true or false, not {changes['http_enabled']!r}"
        raise Invalid(msg)
    if "allowed_topics" in changes:
        changes["allowed_topics"] = _topics(changes["allowed_topics"])
    overrides = _overrides(changes.pop("topics", {}))
    of_channels = _channel_rules(changes.pop("channels", {}))

    def changed(stored: Access) -> Access:
        topics = {**stored.topics, **overrides}
        channels = {**stored.channels, **of_channels}
        return replace(
            stored,
            **changes,
            topics={topic: rules for topic, rules in topics.items() if rules is not None},
            channels={prefix: rules for prefix, rules in channels.items() if rules is not None},
        )

    return changed


def _topics(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        msg = f"allowed_topics must be a list of topics, not {names!r}"
        raise Invalid(msg)
    return tuple(dict.fromkeys(checked(name) for name in cast("Iterable[str]", names)))


def _overrides(topics: object) -> dict[str, TopicAccess | None]:
    if not isinstance(topics, Mapping):
        msg = "topics must be an object: the rules of each topic under its name"
        raise Invalid(msg)
    by_topic = cast("Mapping[str, object]", topics)
    return {checked(topic): _override(topic, rules) for topic, rules in by_topic.items()}


def _override(topic: str, rules: object) -> TopicAccess | None:
    if isinstance(rules, TopicAccess):
        rules = {name: getattr(rules, name) for name in RULES}
    own = _own_rules(f"topic {topic}", rules, RULES)
    if own is None:
        return None
    return TopicAccess(
        **{name: check_rule(f"topics.{topic}.{name}", rule) for name, rule in own.items()}
    )


def _channel_rules(channels: object) -> dict[str, ChannelAccess | None]:
    if not isinstance(channels, Mapping):
        msg = "channels must be an object: rules under the text with which the names begin"
        raise Invalid(msg)
    by_prefix = cast("Mapping[str, object]", channels)
    return {
        prefix and checked_channel(prefix): _of_channels(prefix, rules)
        for prefix, rules in by_prefix.items()
    }


def _of_channels(prefix: str, rules: object) -> ChannelAccess | None:
    if isinstance(rules, ChannelAccess):
        rules = {name: getattr(rules, name) for name in CHANNEL_RULES}
    own = _own_rules(f"channels {prefix!r}", rules, CHANNEL_RULES)
    if own is None:
        return None
    return ChannelAccess(**{name: _channel_rule(prefix, name, own[name]) for name in own})


def _channel_rule(prefix: str, name: str, text: str) -> str:
    from towpath.model.rules import Rule  # noqa: PLC0415 - an app without a server has no rules

    check_rule(f"channels.{prefix}.{name}", text)
    if Rule.parse(text).job_fields and not prefix.startswith(JOB):
        position = text.find("@job.")
        msg = (
            f"channels.{prefix}.{name}: position {position}: only the rules of channels that "
            f"begin with {JOB} may use @job"
        )
        raise InvalidRule(msg, position, f"channels.{prefix}.{name}")
    return text


def _own_rules(whose: str, rules: object, known: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the rules that are given; None where all are to be removed."""
    if rules is None:
        return None
    if not isinstance(rules, Mapping):
        msg = f"the rules of {whose} must be an object or null"
        raise Invalid(msg)
    by_name = cast("Mapping[str, Any]", rules)
    unknown = sorted(str(name) for name in by_name if name not in known)
    if unknown:
        msg = f"unknown rules of {whose}: {', '.join(unknown)}; known rules: {', '.join(known)}"
        raise Invalid(msg)
    return {name: rule for name, rule in by_name.items() if rule is not None}
