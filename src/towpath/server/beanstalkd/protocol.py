"""From bytes to commands, without I/O and within bounds, as beanstalkd reads them."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from towpath.server.beanstalkd.tubes import TUBE, topic_of

MOST_LINE: Final = 224  # bytes, with its end
MOST_U32: Final = 2**32 - 1
MOST_I32: Final = 2**31 - 1
MOST_U64: Final = 2**64 - 1
END: Final = b"\r\n"

BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"
EXPECTED_CRLF: Final = b"EXPECTED_CRLF\r\n"
JOB_TOO_BIG: Final = b"JOB_TOO_BIG\r\n"


class ClientCommand(Struct, frozen=True):
    """What a client asks for."""

    verb: str
    numbers: tuple[int, ...] = ()
    tube: str = ""
    body: bytes = b""


class BadCommand(Struct, frozen=True):
    """What a client is told that asked for nothing that can be done."""

    reply: bytes
    verb: str = ""  # of a command that counts all the same


Read = ClientCommand | BadCommand
BAD: Final = BadCommand(BAD_FORMAT)


class Parser:
    """Reads commands from what has come so far.

    It keeps no more than a line and the body of one `put` beyond what it is fed.
    """

    def __init__(self, most_body: int) -> None:
        self._most_body = most_body
        self._buffer = bytearray()
        self._put: ClientCommand | None = None  # whose body is to come
        self._size = 0  # of that body
        self._skip = 0  # bytes of a body that is too big
        self._endless = False  # within a line that is too long
        self._pushed: list[Read] = []

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        self._buffer += data

    def push_back(self, read: Read) -> None:
        """Take back what was read last, to be read again."""
        self._pushed.append(read)

    def next(self) -> Read | None:
        """Read the next command; None if it has not come whole."""
        if self._pushed:
            return self._pushed.pop()
        if not self._buffer:
            return None
        if self._put is not None:
            return self._with_body(self._put)
        if self._skip:
            return self._skipped()
        return self._discarded() if self._endless else self._line()

    def _line(self) -> Read | None:
        buffer = self._buffer
        end = buffer.find(END, 0, MOST_LINE)
        if end >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 2]
            return self._read(line)
        if len(buffer) < MOST_LINE:
            return None
        self._endless = True
        return self._discarded()

    def _read(self, line: bytes) -> Read | None:
        if b"\0" in line:
            return BAD
        word, space, rest = line.partition(b" ")
        if not space:
            return _ALONE.get(word) or _by_prefix(line)
        if word == b"put":
            return self._header(rest)
        read = _WITH.get(word)
        return read(rest) if read else _by_prefix(line)

    def _header(self, rest: bytes) -> Read | None:
        found = _FOUR.fullmatch(rest)
        if not found:
            return BAD
        priority, delay, ttr, size = map(int, found.groups())
        if max(priority, delay, ttr, size) > MOST_U32:
            return BAD
        if size > self._most_body:
            self._skip = size + 2
            return self._skipped()
        self._put = ClientCommand("put", (priority, delay, ttr))
        self._size = size
        return self._with_body(self._put)

    def _with_body(self, put: ClientCommand) -> Read | None:
        size, buffer = self._size, self._buffer
        if len(buffer) < size + 2:
            return None
        body = bytes(buffer[:size])
        ended = buffer.startswith(END, size)
        del buffer[: size + 2]
        self._put = None
        return (
            ClientCommand("put", put.numbers, body=body)
            if ended
            else BadCommand(EXPECTED_CRLF, "put")
        )

    def _skipped(self) -> Read | None:
        gone = min(self._skip, len(self._buffer))
        del self._buffer[:gone]
        self._skip -= gone
        return None if self._skip else BadCommand(JOB_TOO_BIG, "put")

    def _discarded(self) -> Read | None:
        end = self._buffer.find(END)
        if end >= 0:
            del self._buffer[: end + 2]
            self._endless = False
            return BAD
        kept = 1 if self._buffer.endswith(b"\r") else 0
        del self._buffer[: len(self._buffer) - kept]
        return None


def _numbers(verb: str, pattern: "re.Pattern[bytes]", *most: int) -> Callable[[bytes], Read]:
    def read(rest: bytes) -> Read:
        found = pattern.fullmatch(rest)
        numbers = tuple(map(int, found.groups())) if found else ()
        fit = found and all(map(int.__le__, numbers, most))
        return ClientCommand(verb, numbers) if fit else BAD

    return read


def _tube(verb: str) -> Callable[[bytes], Read]:
    def read(rest: bytes) -> Read:
        return _named(verb, rest)

    return read


def _named(verb: str, name: bytes, *numbers: int) -> Read:
    tube = name.decode("latin-1")
    if not TUBE.fullmatch(name) or topic_of(tube) is None:
        return BAD
    return ClientCommand(verb, numbers, tube)


def _reserve(rest: bytes) -> Read:
    found = _LEADING.match(rest)  # what follows the number is not looked at
    timeout = int(found[1]) if found else MOST_U64
    return ClientCommand("reserve-with-timeout", (timeout,)) if timeout <= MOST_I32 else BAD


def _kick(rest: bytes) -> Read:
    found = _SIGNED.match(rest)
    if not found or int(found[2]) > MOST_U64:
        return BAD
    return ClientCommand(
        "kick", (int(found[1] + found[2]) % (MOST_U32 + 1),)
    )  # as C makes it 32 bits


def _pause(rest: bytes) -> Read:
    found = _PAUSE.fullmatch(rest)
    if not found or int(found[2]) > MOST_U32:
        return BAD
    return _named("pause-tube", found[1], int(found[2]))


def _by_prefix(line: bytes) -> Read:
    """Read what only begins like a command."""
    if line.startswith(b"quit"):
        return ClientCommand("quit")
    if line.startswith(b"pause-tube"):
        return _pause(line.removeprefix(b"pause-tube"))
    return BAD if line.startswith(_PREFIXES) else BadCommand(UNKNOWN_COMMAND)


_ONE: Final = re.compile(rb" *(\d+)")
_TWO: Final = re.compile(rb" *(\d+) +(\d+)")
_THREE: Final = re.compile(rb" *(\d+) +(\d+) +(\d+)")
_FOUR: Final = re.compile(rb" *(\d+) +(\d+) +(\d+) +(\d+)")
_LEADING: Final = re.compile(rb" *(\d+)")
_SIGNED: Final = re.compile(rb"\s*([+-]?)(\d+)")
_PAUSE: Final = re.compile(rb" *([A-Za-z0-9+/;.$_()-]+) +(\d+)")

_ALONE: Final = {
    verb.encode(): ClientCommand(verb)
    for verb in (
        "peek-ready", "peek-delayed", "peek-buried", "reserve", "stats",
        "list-tubes-watched", "list-tube-used", "list-tubes", "quit",
    )
}  # fmt: skip
_PREFIXES: Final = tuple(_ALONE)
_WITH: Final[Mapping[bytes, Callable[[bytes], Read]]] = {
    **{
        verb.encode(): _numbers(verb, _ONE, MOST_U64)
        for verb in ("peek", "reserve-job", "delete", "touch", "kick-job", "stats-job")
    },
    **{verb.encode(): _tube(verb) for verb in ("use", "watch", "ignore", "stats-tube")},
    b"bury": _numbers("bury", _TWO, MOST_U64, MOST_U32),
    b"release": _numbers("release", _THREE, MOST_U64, MOST_U32, MOST_U32),
    b"reserve-with-timeout": _reserve,
    b"kick": _kick,
    b"pause-tube": _pause,
}
