"""Who may do what over HTTP: the rules, and those of single topics."""

import re
from typing import Final

from msgspec import Struct

from towpath.model.job import SHOWN

JOB_FIELDS: Final = frozenset(
    re.sub("_(.)", lambda found: found[1].upper(), name) for name in SHOWN
)
"""The fields of a job that rules may name: those that HTTP shows, in camel case."""


class TopicAccess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of one topic; where there is none, the general one holds."""

    enqueue_rule: str | None = None
    manage_rule: str | None = None
    work_rule: str | None = None


class Access(Struct, frozen=True, kw_only=True):
    """The rules of access. An empty rule is for superusers only."""

    enqueue_rule: str = ""
    manage_rule: str = ""
    work_rule: str = ""
    http_enabled: bool = True
    allowed_topics: tuple[str, ...] = ()  # that others than superusers may enqueue; none: all
    topics: dict[str, TopicAccess] = {}
    version: int = 0  # grows with every change of accounts, keys and rules

    @property
    def has_rules(self) -> bool:
        """Say whether any rule lets others in than superusers."""
        rules: list[Access | TopicAccess] = [self, *self.topics.values()]
        return any(each.enqueue_rule or each.manage_rule or each.work_rule for each in rules)
