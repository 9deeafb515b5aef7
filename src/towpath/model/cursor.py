"""Cursors: positions in a channel, as text that sorts as the positions do.

A cursor means that everything up to and including its event is done. It names the channel by its
number, which is never given twice: a cursor of a channel that was deleted fits no later one. The
era changes when a backup is restored, after which numbers may be given again.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

from towpath.errors import InvalidCursor

_TEXT: Final = re.compile(r"(\d{4})(\d{12})_(\d{16})", re.ASCII)
_BEGINNING: Final = "-1"


class Cursor(NamedTuple):
    """A position in a channel."""

    era: int
    channel: int
    seq: int  # the number of the last event that is done

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Return the cursor that is written so; raise InvalidCursor if it is none."""
        if text == _BEGINNING:
            return cls(0, 0, 0)
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            msg = f"{text!r} is not a cursor; pass one that an event or a page has told"
            raise InvalidCursor(msg)
        return cls(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"{self.era:04d}{self.channel:012d}_{self.seq:016d}"


START: Final = Cursor(0, 0, 0)
"""Before the first event of any channel."""


def writer(era: int, channel: int) -> Callable[[int], str]:
    """Return what writes the cursors of a channel by their numbers: a page has many."""
    return f"{era:04d}{channel:012d}_{{:016d}}".format
