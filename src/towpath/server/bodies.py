"""Reads bodies, queries and cookies of requests: strictly, and within bounds."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from towpath.server.errors import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")

MOST_BUFFERED: Final = 128 * 2**20  # bytes, of all bodies that are being read
PATIENCE: Final = 30.0  # seconds for the rest of a body
LONG: Final = 2**16  # bytes; a longer body is checked in a thread
MOST_PARAMETERS: Final = 100
TURN: Final = 0.01  # seconds


class Turns:
    """Lets the event loop serve other requests while one request takes long."""

    def __init__(self) -> None:
        self._end = time.monotonic() + TURN

    async def next(self) -> None:
        """Yield to the event loop if this request has run for long enough."""
        if time.monotonic() > self._end:
            await asyncio.sleep(0)
            self._end = time.monotonic() + TURN


class Bodies:
    """Reads bodies; bounds the memory that all requests use while their bodies arrive."""

    def __init__(self) -> None:
        self.patience = PATIENCE
        self._buffered = 0

    async def read(self, receive: Receive, headers: Mapping[bytes, bytes], most: int) -> bytes:
        """Read a body of at most `most` bytes."""
        length = headers.get(b"content-length", b"0")
        if len(length) > len(str(most)) or not length.isdigit() or int(length) > most:
            raise _too_large(most)
        message = await receive()
        first: bytes = message.get("body", b"")
        if not message.get("more_body") and message["type"] == "http.request":
            return first
        chunks, size = [first], len(first)
        self._buffered += size
        try:
            async with asyncio.timeout(self.patience):
                while message.get("more_body"):
                    if size > most:
                        raise _too_large(most)
                    if self._buffered > MOST_BUFFERED:
                        raise Refusal(
                            503, "overloaded", "too many large requests at once; try again later",
                            headers={"retry-after": "1"},
                        )  # fmt: skip
                    message = await receive()
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    self._buffered += len(chunks[-1])
        except TimeoutError:
            raise Refusal(
                408, "too_slow", f"the body did not arrive within {self.patience:g} s",
                headers={"connection": "close"},
            ) from None  # fmt: skip
        finally:
            self._buffered -= size
        if message["type"] == "http.disconnect":
            raise Refusal(400, "incomplete", "the connection ended before the whole body arrived")
        if size > most:
            raise _too_large(most)
        return b"".join(chunks)


def _too_large(most: int) -> Refusal:
    return Refusal(413, "body_too_large", f"the body is too large; the limit is {most:,} bytes")


async def decoded(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Decode a body; refuse it with the reason if it is not valid."""
    try:
        # msgspec silently takes the last of two equal names.
        if len(body) > LONG:
            await asyncio.to_thread(_refuse_duplicates, body)
        else:
            _refuse_duplicates(body)
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "bad_json", f"the body is not JSON: {_reason(error)}") from None


def _refuse_duplicates(body: bytes) -> None:
    _strict.decode(body.decode())


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) == len(pairs):
        return
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            msg = f"an object has two values for {name[:100]!r}"
            raise ValueError(msg)
        seen.add(name)


_strict: Final = json.JSONDecoder(object_pairs_hook=_unique)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(error)


def _invalid(error: msgspec.ValidationError) -> Refusal:
    """Return a refusal that names the field and what is wrong with it."""
    text, _, at = str(error).partition(" - at `$")
    where = at.strip("`.")
    if unknown := _UNKNOWN.match(text):
        where = f"{where}.{unknown[1]}".strip(".")
        text = "unknown field"
    message = f"{where}: {text}" if where else text
    return Refusal(400, "invalid", message, details={"field": where or None})


_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)


def query_of(scope: Scope) -> dict[str, str]:
    """Return the query parameters; refuse a name that occurs twice."""
    query: bytes = scope["query_string"]
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MOST_PARAMETERS,
        )
    except ValueError as error:
        raise Refusal(400, "invalid", f"the query cannot be read: {error}") from None
    named = dict(pairs)
    if len(named) != len(pairs):
        raise Refusal(400, "invalid", "the query names a parameter twice")
    return named


def read_query(named: dict[str, str], kind: type[T]) -> T:
    """Convert the query parameters to their types."""
    described: Any = kind
    for name in named.keys() & _numbers(described):
        # msgspec also accepts 1e3, 1.0 and, for an optional one, null.
        if not _NUMBER.fullmatch(named[name]):
            message = f"{name}: give a whole number"
            raise Refusal(400, "invalid", message, details={"field": name})
    try:
        return msgspec.convert(named, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None


_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")


@cache
def _numbers(kind: Any) -> frozenset[str]:
    """Return the names of the parameters whose type is int."""
    described = inspect.type_info(kind)
    fields = described.fields if isinstance(described, inspect.StructType) else ()
    return frozenset(
        field.encode_name
        for field in fields
        if any(isinstance(each, inspect.IntType) for each in _kinds(field.type))
    )


def _kinds(described: inspect.Type) -> Iterable[inspect.Type]:
    return described.types if isinstance(described, inspect.UnionType) else (described,)


def cookie(headers: Mapping[bytes, bytes], name: str) -> str | None:
    """Return a cookie."""
    # Not http.cookies: it takes seconds to unquote some hostile values.
    for part in str(headers.get(b"cookie", b""), "latin-1").split(";"):
        found, _, value = part.strip().partition("=")
        if found == name:
            return value
    return None
