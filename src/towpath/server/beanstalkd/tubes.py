"""Converts between the names of tubes and of topics, without loss.

A tube whose name is a valid topic is that topic. The topic of any other tube begins with `x--`, and
each character that a topic cannot have becomes two: `.` is `-d`, `/` is `-s`, and `-` is `--`. The
topic of replays of webhooks has no tube: it belongs to Towpath.
"""

import re
from functools import lru_cache
from typing import Final

from towpath.model.subscriptions import REPLAY

DEFAULT: Final = "default"
MOST_NAME: Final = 200
PREFIX: Final = "x--"
TUBE: Final = re.compile(rb"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199}")

_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]+")
_CODES: Final = {
    ".": "-d", "/": "-s", "+": "-p", ";": "-c", "$": "-m", "(": "-l", ")": "-r", "-": "--",
}  # fmt: skip
_CHARACTERS: Final = {code: character for character, code in _CODES.items()}


@lru_cache(1_000)
def topic_of(tube: str) -> str | None:
    """Return the topic of a tube; None if it has none, or its name would be too long."""
    if tube == REPLAY:
        return None
    if _TOPIC.fullmatch(tube) and not tube.startswith(PREFIX):
        return tube
    topic = PREFIX + "".join(_CODES.get(character, character) for character in tube)
    return topic if len(topic) <= MOST_NAME else None


@lru_cache(1_000)
def tube_of(topic: str) -> str | None:
    """Return the tube of a topic; None if no tube has this topic."""
    if not topic.startswith(PREFIX):
        return None if topic.startswith("-") or topic == REPLAY else topic
    tube = re.sub("-(.?)", lambda code: _CHARACTERS.get(code[0], "?"), topic.removeprefix(PREFIX))
    named = TUBE.fullmatch(tube.encode()) is not None
    return tube if named and topic_of(tube) == topic else None
