"""The verbs of access: rules, and the version that tells a cache to look again."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, cast

from msgspec.structs import replace

from towpath.app.access_cache import AccessCache
from towpath.database.wakeups import Wakeups
from towpath.errors import Invalid, InvalidRule
from towpath.model.access import JOB_FIELDS, Access, TopicAccess
from towpath.model.topics import checked
from towpath.store import access

if TYPE_CHECKING:
    from towpath.app.app import App

RULES: Final = ("enqueue_rule", "manage_rule", "work_rule")


class AccessChanges(TypedDict, total=False):
    """What `set` can change."""

    enqueue_rule: str  # who may enqueue
    manage_rule: str  # who may look at jobs, requeue, cancel, kick and delete them
    work_rule: str  # who may reserve jobs and settle them
    access_rule: str  # sets enqueue_rule and manage_rule
    http_enabled: bool  # False: only superusers are let in
    allowed_topics: Iterable[str]  # that others than superusers may enqueue; none: all
    topics: Mapping[str, Mapping[str, str | None] | None]  # their own rules; None: none any more


class AccessVerbs:
    """Who may do what over HTTP."""

    def __init__(self, app: "App", wakeups: Wakeups) -> None:
        self._app = app
        self._current = AccessCache(app, wakeups)

    async def aget(self) -> Access:
        """Read the rules."""
        return await self._app.arun(access.get())

    async def aset(self, **changes: Unpack[AccessChanges]) -> Access:
        """Change what is named, and leave the rest. A rule that cannot be read is refused.

        `topics` replaces the rules of the topics that it names; None takes those of a topic away.
        """
        return await self._app.arun(access.change(_changing(changes)))

    @property
    def known(self) -> Access | None:
        """The rules as they are now, if that is known without a look at the database."""
        return self._current.known

    async def current(self) -> Access:
        """Return the rules as they are now; changes by other processes ring within moments."""
        return await self._current.get()

    async def aversion(self) -> int:
        """Read a number that grows with every change of an account, a token, a key or a rule."""
        return await self._app.arun(access.version())

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def get(self) -> Access:
        """Read the rules."""
        return self._app.run(access.get())

    def set(self, **changes: Unpack[AccessChanges]) -> Access:
        """Change what is named, and leave the rest. A rule that cannot be read is refused.

        `topics` replaces the rules of the topics that it names; None takes those of a topic away.
        """
        return self._app.run(access.change(_changing(changes)))

    def version(self) -> int:
        """Read a number that grows with every change of an account, a token, a key or a rule."""
        return self._app.run(access.version())


def check_rule(name: str, text: str) -> str:
    """Return a rule that can be read; `name` says which one it is where it cannot."""
    from towpath.model.rules import Rule  # noqa: PLC0415 - an app without a server has no rules

    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"{name} is text, not {type(text).__name__}"
        raise Invalid(msg)
    try:
        rule = Rule.parse(text)
    except InvalidRule as error:
        msg = f"{name}: {error}"
        raise InvalidRule(msg, error.position, name) from error
    for field in sorted(rule.job_fields - JOB_FIELDS):
        position = text.find(f"@job.{field}")
        msg = f"{name}: position {position}: there is no @job.{field}: {_meant(field)}"
        raise InvalidRule(msg, position, name)
    if name.endswith("work_rule") and rule.job_fields - {"topic"}:
        msg = (
            f"{name}: position {text.find('@job.')}: which job is reserved is not known before: of "
            "@job, a work_rule can ask for the topic alone"
        )
        raise InvalidRule(msg, text.find("@job."), name)
    return text


def _meant(field: str) -> str:
    close = get_close_matches(field, JOB_FIELDS, 1)
    return f"did you mean @job.{close[0]}?" if close else "its data are in @job.payload"


def _changing(given: AccessChanges) -> Callable[[Access], Access]:
    """Check what was said; return how it changes what is stored."""
    changes = dict(cast("Mapping[str, Any]", given))
    unknown = changes.keys() - AccessChanges.__annotations__.keys()
    if unknown:
        msg = f"unknown settings of access: {', '.join(sorted(unknown))}"
        raise Invalid(msg)
    if "access_rule" in changes:
        rule = changes.pop("access_rule")
        changes = {"enqueue_rule": rule, "manage_rule": rule, **changes}
    for name in RULES:
        if name in changes:
            check_rule(name, changes[name])
    if not isinstance(changes.get("http_enabled", True), bool):
        msg = "http_enabled is true or false"
        raise Invalid(msg)
    if "allowed_topics" in changes:
        changes["allowed_topics"] = _topics(changes["allowed_topics"])
    overrides = _overrides(changes.pop("topics", {}))

    def changed(found: Access) -> Access:
        topics = {**found.topics, **overrides}
        kept = {topic: rules for topic, rules in topics.items() if rules is not None}
        return replace(found, **changes, topics=kept)

    return changed


def _topics(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        msg = "allowed_topics is a list of topics"
        raise Invalid(msg)
    return tuple(dict.fromkeys(checked(name) for name in cast("Iterable[str]", names)))


def _overrides(topics: object) -> dict[str, TopicAccess | None]:
    if not isinstance(topics, Mapping):
        msg = "topics is an object: the rules of each topic by its name"
        raise Invalid(msg)
    found = cast("Mapping[str, object]", topics)
    return {checked(topic): _override(topic, rules) for topic, rules in found.items()}


def _override(topic: str, rules: object) -> TopicAccess | None:
    if isinstance(rules, TopicAccess):
        rules = {name: getattr(rules, name) for name in RULES}
    if not isinstance(rules, Mapping):
        if rules is None:
            return None
        msg = f"the rules of topic {topic} are an object, or null"
        raise Invalid(msg)
    found = cast("Mapping[str, Any]", rules)
    unknown = sorted(str(name) for name in found if name not in RULES)
    if unknown:
        msg = f"topic {topic} has no {', '.join(unknown)}: its rules are {', '.join(RULES)}"
        raise Invalid(msg)
    own = {name: rule for name, rule in found.items() if rule is not None}
    return TopicAccess(
        **{name: check_rule(f"topics.{topic}.{name}", rule) for name, rule in own.items()}
    )
