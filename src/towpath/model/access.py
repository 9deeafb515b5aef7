"""The access rules of the HTTP API: general ones, and those of single topics."""

import re
from typing import Final

from msgspec import Struct

from towpath.model.job import SHOWN

JOB_FIELDS: Final = frozenset(
    re.sub("_(.)", lambda found: found[1].upper(), name) for name in SHOWN
)
"""The fields of a job that a rule may read, under the names that the HTTP API uses."""


class TopicAccess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of one topic; a rule that is None falls back to the general one."""

    enqueue_rule: str | None = None
    manage_rule: str | None = None
    work_rule: str | None = None


class Access(Struct, frozen=True, kw_only=True):
    """The rules of access. An empty rule is for superusers only."""

    enqueue_rule: str = ""
    manage_rule: str = ""
    work_rule: str = ""
    http_enabled: bool = True
    allowed_topics: tuple[str, ...] = ()  # topics that users may enqueue to; empty: all topics
    topics: dict[str, TopicAccess] = {}
    version: int = 0  # grows with every change of accounts, keys and rules

    @property
    def has_rules(self) -> bool:
        """Whether any rule may allow a caller that is not a superuser."""
        rules: list[Access | TopicAccess] = [self, *self.topics.values()]
        return any(each.enqueue_rule or each.manage_rule or each.work_rule for each in rules)
