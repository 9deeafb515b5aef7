"""Reads bodies, queries and cookies of requests: strictly, and within bounds."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import cache
from typing import Any, Final, TypeVar, cast
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
        raise _invalid(error, decoder.type) from None
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


def _invalid(error: msgspec.ValidationError, kind: object) -> Refusal:
    """Return a refusal that names the field and what is wrong with it."""
    text, _, at = str(error).partition(" - at `$")
    where = at.strip("`.")
    if unknown := _UNKNOWN.match(text):
        known = () if where else getattr(kind, "__struct_encode_fields__", ())
        where = f"{where}.{unknown[1]}".strip(".")
        text = f"unknown field; known fields: {', '.join(known)}" if known else "unknown field"
    message = f"{where}: {text}" if where else text
    return Refusal(400, "invalid", message, details={"field": where or None})


_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)


def query_of(scope: Scope) -> list[tuple[str, str]]:
    """Return the query parameters."""
    query: bytes = scope["query_string"]
    if not query:
        return []
    try:
        return parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MOST_PARAMETERS,
        )
    except ValueError as error:
        raise Refusal(400, "invalid", f"the query cannot be read: {error}") from None


def read_query(pairs: Iterable[tuple[str, str]], kind: type[T]) -> T:
    """Convert the query parameters to their types; only one that is a list may be repeated."""
    described: Any = kind
    lists = _named(described, inspect.ListType)
    named: dict[str, str | list[str]] = {}
    for name, text in pairs:
        if name in lists:
            cast("list[str]", named.setdefault(name, [])).append(text)
            continue
        if name in named:
            raise Refusal(400, "invalid", "the query names a parameter twice")
        for wanted, form, example in FORMS:
            if name in _named(described, wanted) and not form.match(text):
                raise Refusal(400, "invalid", f"{name}: give {example}", details={"field": name})
        if text == "null" and name not in _named(described, inspect.StrType):
            # msgspec would take it for a parameter that is left out.
            raise Refusal(400, "invalid", f"{name}: null is no value", details={"field": name})
        named[name] = text
    try:
        return msgspec.convert(named, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(error, kind) from None


FORMS: Final = (
    (inspect.IntType, re.compile(r"-?[0-9]{1,20}$", re.ASCII), "a whole number"),
    (inspect.DateTimeType, re.compile(r"[0-9]{4}-", re.ASCII), "a time as 2026-01-31T12:00:00Z"),
)
"""How numbers and times are written; msgspec also takes 1e3 and null, and a number as a time."""


@cache
def _named(kind: Any, wanted: type[inspect.Type]) -> frozenset[str]:
    """Return the names of the parameters that may have a type."""
    described = inspect.type_info(kind)
    fields = described.fields if isinstance(described, inspect.StructType) else ()
    return frozenset(
        field.encode_name
        for field in fields
        if any(isinstance(each, wanted) for each in _kinds(field.type))
    )


def _kinds(described: inspect.Type) -> Iterable[inspect.Type]:
    if isinstance(described, inspect.Metadata):
        return _kinds(described.type)
    if isinstance(described, inspect.UnionType):
        return [kind for each in described.types for kind in _kinds(each)]
    return (described,)


def cookie(headers: Mapping[bytes, bytes], name: str) -> str | None:
    """Return a cookie."""
    # Not http.cookies: it takes seconds to unquote some hostile values.
    for part in str(headers.get(b"cookie", b""), "latin-1").split(";"):
        found, _, value = part.strip().partition("=")
        if found == name:
            return value
    return None
