"""Payloads as they are stored: JSON; bytes as text if they are UTF-8, else as base64."""

import base64
import contextlib
import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from towpath.errors import InvalidPayload, PayloadTooLarge


class Encoding(StrEnum):
    """How a stored body is read."""

    JSON = "json"
    TEXT = "text"  # bytes that are UTF-8
    BASE64 = "base64"  # any other bytes


_JSON: Final = Encoding.JSON  # looked up once, as the attributes of an enum are slow
_TEXT: Final = Encoding.TEXT
_BASE64: Final = Encoding.BASE64
HIDDEN: Final = "•••"
_HIDDEN_VALUE: Final = f'"{HIDDEN}"'
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:\s*)?', re.DOTALL)
_MARK: Final = re.compile(r'[{}\[\]]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}\[\],:"]+', re.DOTALL)
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder()


def encode(payload: object, most: int) -> tuple[str, Encoding]:
    """Return the body to store and its encoding."""
    if isinstance(payload, (bytes, bytearray)):
        _check_size(len(payload), most)
        return _encode_bytes(payload)
    if isinstance(payload, msgspec.Raw):
        return _checked_json(bytes(payload), most), _JSON
    return encode_json(payload, most), _JSON


def _encode_bytes(raw: bytes | bytearray) -> tuple[str, Encoding]:
    if 0 not in raw:  # PostgreSQL cannot store NUL in text
        with contextlib.suppress(UnicodeDecodeError):
            return raw.decode(), _TEXT
    return base64.b64encode(raw).decode("ascii"), _BASE64


def encode_json(
    value: object, most: int, what: str = "payload", encoder: msgspec.json.Encoder = _encoder
) -> str:
    """Return a value as JSON text."""
    try:
        text = encoder.encode(value)
        # msgspec writes NaN and Infinity as null, so only a text with a null in it can hide one.
        if b"null" in text and not _finite(msgspec.to_builtins(value, enc_hook=encoder.enc_hook)):
            msg = "NaN and Infinity are not JSON; use None or text"
            raise InvalidPayload(msg)
        body = text.decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"the {what} is not JSON: {error}"
        raise InvalidPayload(msg) from error
    _check_size(len(text), most, what)
    return body


def _checked_json(text: bytes, most: int) -> str:
    """Return text that is JSON already; raise InvalidPayload if it is not."""
    try:
        _decoder.decode(text)
        body = text.decode()
    except (ValueError, RecursionError) as error:
        msg = f"the payload is not JSON: {error}"
        raise InvalidPayload(msg) from error
    _check_size(len(text), most)
    return body


def decode(body: str, encoding: str) -> Any:
    """Return the payload that a body stands for."""
    return _decoder.decode(body) if encoding == _JSON else raw_bytes(body, encoding)


def raw_bytes(body: str, encoding: str) -> bytes:
    """Return the bytes that a body stands for; for JSON, those of its text."""
    return base64.b64decode(body) if encoding == _BASE64 else body.encode()


def same(body: str, encoding: str, other: str, other_encoding: str) -> bool:
    """Say whether two bodies hold the same payload, even if their encodings differ."""
    if (encoding == _JSON) != (other_encoding == _JSON):
        return False
    return raw_bytes(body, encoding) == raw_bytes(other, other_encoding)


def redacted(body: str, names: str, *, strict: bool = True) -> str:
    """Return JSON with the values hidden of all fields whose names end with one of `names`.

    Case and punctuation of the names do not matter. All other text stays as it is stored, to the
    last digit. Text that is not JSON is hidden as a whole; without `strict` only if it begins as
    JSON does.
    """
    return _redaction(body, names, strict=strict)[0]


def count_hidden(body: str, names: str, *, strict: bool = True) -> int:
    """Return how many values `redacted` hides; 1 if it hides the whole text."""
    return _redaction(body, names, strict=strict)[1]


def _redaction(body: str, names: str, *, strict: bool) -> tuple[str, int]:
    ends = tuple(folded for name in names.split(",") if (folded := _folded(name)))
    if not ends:
        return body, 0
    try:
        _decoder.decode(body)
    except (ValueError, RecursionError):
        whole = strict or body.removeprefix("\ufeff").lstrip()[:1] in {"{", "["}
        return (HIDDEN, 1) if whole else (body, 0)
    parts: list[str] = []
    done = at = 0
    # In JSON a string before a colon is the name of a field, and nothing else is.
    while found := _STRING.search(body, at):
        at = found.end()
        if found[1] and _folded(_decoder.decode(found[0][: -len(found[1])])).endswith(ends):
            parts += (body[done:at], _HIDDEN_VALUE)
            at = done = _end_of_value(body, at)
    if not parts:
        return body, 0
    return "".join((*parts, body[done:])), len(parts) // 2


def _end_of_value(body: str, at: int) -> int:
    """Return where the value ends that begins here."""
    depth = 0
    while found := _MARK.search(body, at):
        mark, at = found[0], found.end()
        if mark in "{[":
            depth += 1
        elif mark in "]}":
            depth -= 1
        if not depth:
            return at
    return len(body)


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def clean_text(text: str, most: int) -> str:
    """Return text that every database can store: no NUL, no lone surrogates, not too long."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _finite(value: object) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case Mapping():
            return all(map(_finite, cast("Mapping[str, object]", value).values()))
        case list():
            return all(map(_finite, cast("list[object]", value)))
        case _:
            return True


def _check_size(size: int, most: int, what: str = "payload") -> None:
    if size > most:
        msg = (
            f"the {what} has {size:,} bytes; at most {most:,} are allowed. Store it elsewhere and "
            f"pass a reference, or raise `max_{what}`"
        )
        raise PayloadTooLarge(msg)
