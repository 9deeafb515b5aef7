"""Tubes and topics: one name for each other, both ways.

A tube that is a topic's name is that topic. Any other begins with `x--` as a topic, and each of its
characters that a topic cannot have is two: `.` is `-d`, `/` is `-s`, and so on; a hyphen is `--`.
"""

import re
from functools import lru_cache
from typing import Final

DEFAULT: Final = "default"
MOST_NAME: Final = 200
MARK: Final = "x--"
TUBE: Final = re.compile(rb"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199}")

_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]+")
_CODES: Final = {
    ".": "-d", "/": "-s", "+": "-p", ";": "-c", "$": "-m", "(": "-l", ")": "-r", "-": "--",
}  # fmt: skip
_CHARACTERS: Final = {code: character for character, code in _CODES.items()}


@lru_cache(1_000)
def topic_of(tube: str) -> str | None:
    """Return the topic of a tube; None if its name would be too long."""
    if _TOPIC.fullmatch(tube) and not tube.startswith(MARK):
        return tube
    topic = MARK + "".join(_CODES.get(character, character) for character in tube)
    return topic if len(topic) <= MOST_NAME else None


@lru_cache(1_000)
def tube_of(topic: str) -> str | None:
    """Return the tube of a topic; None if no tube has this topic."""
    if not topic.startswith(MARK):
        return None if topic.startswith("-") else topic
    tube = re.sub("-(.?)", lambda code: _CHARACTERS.get(code[0], "?"), topic.removeprefix(MARK))
    named = TUBE.fullmatch(tube.encode()) is not None
    return tube if named and topic_of(tube) == topic else None
