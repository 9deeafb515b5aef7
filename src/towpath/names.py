"""Names of options that are not known: the error suggests the name that is meant."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

OTHER_QUEUES: Final[Mapping[str, str]] = {
    "countdown": "delay",
    "defer_by": "delay",
    "eta": "run_at",
    "defer_until": "run_at",
    "queue": "topic",
    "queue_name": "topic",
    "queues": "topics",
    "retries": "max_retries",
    "max_attempts": "max_retries",
    "max_tries": "max_retries",
    "retry_backoff": "backoff",
    "expires": "expires_after",
    "time_limit": "timeout",
    "soft_time_limit": "timeout",
    "job_timeout": "timeout",
    "task_id": "id",
    "job_id": "id",
    "rate_limit": "limit",
    "result_ttl": "retention",
    "threads": "concurrency",
}
"""Options of other queues, and ours."""

NOT_NEEDED: Final[Mapping[str, str]] = {
    "acks_late": "a job is done only when its task has ended",
}


def about_unknown(unknown: AbstractSet[str], known: AbstractSet[str], kind: str) -> str:
    """Return the message about unknown names of a kind, such as option or setting."""
    named = ", ".join(f"`{name}`{hint(name, known)}" for name in sorted(unknown))
    plural = "s" if len(unknown) > 1 else ""
    return f"unknown {kind}{plural} {named}; known {kind}s: {', '.join(sorted(known))}"


def hint(name: str, known: AbstractSet[str]) -> str:
    """Return in parentheses which name is meant; empty if none is near."""
    if name in NOT_NEEDED:
        return f" (not needed: {NOT_NEEDED[name]})"
    ours = OTHER_QUEUES.get(name)
    if ours:
        return f" (use `{ours}`)" if ours in known else f" (it is `{ours}` here, but not an option)"
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and seldom needed

    near = get_close_matches(name, known, 1)
    return f" (did you mean `{near[0]}`?)" if near else ""
