"""Topic names."""

import re
from collections.abc import Iterable
from typing import Final

from towpath.errors import InvalidTopic, TopicRequired

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")


def checked(topic: str) -> str:
    """Return the topic; raise InvalidTopic if it is not a valid name."""
    if not topic:
        msg = "a topic is required"
        raise TopicRequired(msg)
    if not isinstance(topic, str) or not _NAME.fullmatch(topic):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"{topic!r} is not a valid topic; use 1 to 200 letters, digits, underscores, hyphens"
        if topic == "<lambda>":
            msg = "a lambda has no name; pass `topic=` to the task"
        raise InvalidTopic(msg)
    return topic


def all_checked(topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics in order without duplicates; raise TopicRequired if there is none."""
    if isinstance(topics, str):
        topics = (topics,)
    distinct = tuple(dict.fromkeys(checked(topic) for topic in topics))
    if not distinct:
        msg = "name at least one topic"
        raise TopicRequired(msg)
    return distinct
