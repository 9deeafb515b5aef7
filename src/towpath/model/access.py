"""The access rules of the HTTP API: general ones, those of single topics, those of channels."""

import re
from typing import Final, NamedTuple

from msgspec import Struct

from towpath.model.channels import SYSTEM
from towpath.model.job import SHOWN
from towpath.model.subscriptions import WebhookSubscription


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda found: found[1].upper(), name)


JOB_FIELDS: Final = frozenset(map(_camel, SHOWN))
"""The fields of a job that a rule may read, under the names that the HTTP API uses."""


SUBSCRIPTION_FIELDS: Final = frozenset(map(_camel, WebhookSubscription.__struct_fields__))
"""The fields of a subscription that a rule may read, under the names that the HTTP API uses."""


class TopicAccess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of one topic; a rule that is None falls back to the general one."""

    enqueue_rule: str | None = None
    manage_rule: str | None = None
    work_rule: str | None = None


CHANNEL_FIELDS: Final = frozenset({"name", "rest"})
"""The fields of a channel that a rule may read: its name, and what follows the rule's prefix."""


class ChannelAccess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of channels whose names begin with a text; None: those of a shorter text hold."""

    publish_rule: str | None = None
    subscribe_rule: str | None = None
    manage_rule: str | None = None


class ChannelRule(NamedTuple):
    """The rule that decides about a channel."""

    text: str
    rest: str  # of the channel's name, behind the prefix that has the rule


class Access(Struct, frozen=True, kw_only=True):
    """The rules of access. An empty rule is for superusers only."""

    enqueue_rule: str = ""
    manage_rule: str = ""
    work_rule: str = ""
    webhook_rule: str = ""
    http_enabled: bool = True
    allowed_topics: tuple[str, ...] = ()  # topics that users may enqueue to; empty: all topics
    topics: dict[str, TopicAccess] = {}
    channels: dict[str, ChannelAccess] = {}  # by the text with which their names begin
    version: int = 0  # grows with every change of accounts, keys and rules

    @property
    def has_rules(self) -> bool:
        """Whether any rule may allow a caller that is not a superuser."""
        rules: list[Access | TopicAccess] = [self, *self.topics.values()]
        return (
            bool(self.webhook_rule)
            or any(each.enqueue_rule or each.manage_rule or each.work_rule for each in rules)
            or any(
                each.publish_rule or each.subscribe_rule or each.manage_rule
                for each in self.channels.values()
            )
        )

    def channel_rule(self, verb: str, name: str) -> ChannelRule:
        """Return the rule of the longest prefix that has one; else the one for superusers only.

        Channel `system` is open only to a rule that names it: a rule for all channels does not mean
        what happens to other users' jobs.
        """
        prefixes = filter(SYSTEM.__eq__ if name == SYSTEM else name.startswith, self.channels)
        for prefix in sorted(prefixes, key=len, reverse=True):
            text: str | None = getattr(self.channels[prefix], f"{verb}_rule")
            if text is not None:
                return ChannelRule(text, name[len(prefix) :])
        return ChannelRule("", name)
