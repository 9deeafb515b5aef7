"""Who may do what over HTTP: the rules, and those of single topics."""

from typing import Final

from msgspec import Struct

JOB_FIELDS: Final = frozenset({
    "id", "seq", "topic", "status", "state", "priority", "key", "payload", "encoding", "headers",
    "ttr", "timeout", "retention", "maxRetries", "maxCrashes", "createdAt", "runAt", "expiresAt",
    "epoch", "retries", "crashes", "timeouts", "releases", "buries", "kicks", "reservedAt", "until",
    "cancelRequested", "finishedAt", "durationMs", "result", "lastError", "progress",
    "progressMessage",
})  # fmt: skip
"""What rules may ask of a job: the names under which HTTP shows it."""


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
