"""Topic names."""

import re
from collections.abc import Iterable
from typing import Final

from towpath.errors import InvalidTopic, TopicRequired

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")


def checked(topic: str) -> str:
    """Return the topic if its name is one."""
    if not topic:
        msg = "a topic is required"
        raise TopicRequired(msg)
    if not isinstance(topic, str) or not _NAME.fullmatch(topic):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"{topic!r} is not a topic: use 1 to 200 letters, digits, underscores or hyphens"
        if topic == "<lambda>":
            msg = "a lambda has no name: give the task a topic"
        raise InvalidTopic(msg)
    return topic


def all_checked(topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics once each, in order; there is at least one."""
    if isinstance(topics, str):
        topics = (topics,)
    found = tuple(dict.fromkeys(checked(topic) for topic in topics))
    if not found:
        msg = "name at least one topic"
        raise TopicRequired(msg)
    return found
