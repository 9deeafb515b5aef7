"""Parses bytes into commands as beanstalkd does, without I/O and with bounded buffers."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from towpath.server.beanstalkd.tubes import TUBE, topic_of

MOST_LINE: Final = 224  # bytes, with the line end
MOST_U32: Final = 2**32 - 1
MOST_I32: Final = 2**31 - 1
MOST_U64: Final = 2**64 - 1
END: Final = b"\r\n"

BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"
EXPECTED_CRLF: Final = b"EXPECTED_CRLF\r\n"
JOB_TOO_BIG: Final = b"JOB_TOO_BIG\r\n"


class ClientCommand(Struct, frozen=True):
    """A command that can be run."""

    verb: str
    numbers: tuple[int, ...] = ()
    tube: str = ""
    body: bytes = b""


class BadCommand(Struct, frozen=True):
    """A command that cannot be run, with its reply."""

    reply: bytes
    verb: str = ""  # set if `stats` counts the command all the same


Read = ClientCommand | BadCommand
BAD: Final = BadCommand(BAD_FORMAT)


class Parser:
    """Reads commands from the bytes that have arrived.

    Beyond what it is fed it keeps at most one line and the body of one `put`.
    """

    def __init__(self, most_body: int) -> None:
        self._most_body = most_body
        self._buffer = bytearray()
        self._put: ClientCommand | None = None  # its body has not arrived yet
        self._size = 0  # of that body
        self._skip = 0  # bytes left of a body that is too big
        self._in_long_line = False
        self._pushed: list[Read] = []

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add bytes to the buffer."""
        self._buffer += data

    def push_back(self, read: Read) -> None:
        """Return a command to the parser, to be read again."""
        self._pushed.append(read)

    def next(self) -> Read | None:
        """Read the next command; None if it has not arrived completely."""
        if self._pushed:
            return self._pushed.pop()
        if not self._buffer:
            return None
        if self._put is not None:
            return self._read_body(self._put)
        if self._skip:
            return self._skip_body()
        return self._skip_line() if self._in_long_line else self._read_line()

    def _read_line(self) -> Read | None:
        buffer = self._buffer
        end = buffer.find(END, 0, MOST_LINE)
        if end >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 2]
            return self._parse(line)
        if len(buffer) < MOST_LINE:
            return None
        self._in_long_line = True
        return self._skip_line()

    def _parse(self, line: bytes) -> Read | None:
        if b"\0" in line:
            return BAD
        word, space, rest = line.partition(b" ")
        if not space:
            return _WITHOUT_ARGUMENTS.get(word) or _by_prefix(line)
        if word == b"put":
            return self._parse_put(rest)
        parse = _WITH_ARGUMENTS.get(word)
        return parse(rest) if parse else _by_prefix(line)

    def _parse_put(self, rest: bytes) -> Read | None:
        found = _FOUR.fullmatch(rest)
        if not found:
            return BAD
        priority, delay, ttr, size = map(int, found.groups())
        if max(priority, delay, ttr, size) > MOST_U32:
            return BAD
        if size > self._most_body:
            self._skip = size + 2
            return self._skip_body()
        self._put = ClientCommand("put", (priority, delay, ttr))
        self._size = size
        return self._read_body(self._put)

    def _read_body(self, put: ClientCommand) -> Read | None:
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

    def _skip_body(self) -> Read | None:
        size = min(self._skip, len(self._buffer))
        del self._buffer[:size]
        self._skip -= size
        return None if self._skip else BadCommand(JOB_TOO_BIG, "put")

    def _skip_line(self) -> Read | None:
        end = self._buffer.find(END)
        if end >= 0:
            del self._buffer[: end + 2]
            self._in_long_line = False
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
    found = _LEADING.match(rest)  # beanstalkd ignores what follows the number
    timeout = int(found[1]) if found else MOST_U64
    return ClientCommand("reserve-with-timeout", (timeout,)) if timeout <= MOST_I32 else BAD


def _kick(rest: bytes) -> Read:
    found = _SIGNED.match(rest)
    if not found or int(found[2]) > MOST_U64:
        return BAD
    bound = int(found[1] + found[2]) % (MOST_U32 + 1)  # cut to 32 bits, as in C
    return ClientCommand("kick", (bound,))


def _pause(rest: bytes) -> Read:
    found = _PAUSE.fullmatch(rest)
    if not found or int(found[2]) > MOST_U32:
        return BAD
    return _named("pause-tube", found[1], int(found[2]))


def _by_prefix(line: bytes) -> Read:
    """Parse a line that only begins like a command."""
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

_WITHOUT_ARGUMENTS: Final = {
    verb.encode(): ClientCommand(verb)
    for verb in (
        "peek-ready", "peek-delayed", "peek-buried", "reserve", "stats",
        "list-tubes-watched", "list-tube-used", "list-tubes", "quit",
    )
}  # fmt: skip
_PREFIXES: Final = tuple(_WITHOUT_ARGUMENTS)
_WITH_ARGUMENTS: Final[Mapping[bytes, Callable[[bytes], Read]]] = {
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
