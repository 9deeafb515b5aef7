"""Passes: a caller's credential in a URL, sealed, for one attach to some channels within a minute.

A browser's EventSource and WebSocket send no Authorization header. A pass may show up in logs of
proxies: nothing can be read from it, and after its use it is worth nothing.
"""

import base64
import hashlib
import os
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import ExtraMissing, InvalidToken

LIFETIME: Final = 60 * 10**6  # microseconds
MOST_PASS: Final = 16 * 1024  # characters
_NONCE: Final = 12  # bytes


class Pass(Struct, frozen=True):
    """What a pass holds."""

    id: UUID
    token: str  # of the caller
    channels: tuple[str, ...]
    expires_at: int


def sealed(content: Pass, secret: str) -> str:
    """Return a pass as text that only a holder of the secret can read or make."""
    nonce = os.urandom(_NONCE)
    text = _cipher(secret).encrypt(nonce, msgspec.json.encode(content), None)
    return base64.urlsafe_b64encode(nonce + text).decode().rstrip("=")


def opened(text: str, secret: str, now: int) -> Pass:
    """Return what a pass holds; raise InvalidToken if it is not one, or too old."""
    if len(text) > MOST_PASS:
        raise refused()
    try:
        raw = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        found = _cipher(secret).decrypt(raw[:_NONCE], raw[_NONCE:], None)
        content = msgspec.json.decode(found, type=Pass)
    except Exception as error:  # of several packages; each means the same
        raise refused() from error
    if content.expires_at <= now:
        raise refused()
    return content


def refused() -> InvalidToken:
    """Return the refusal of a pass; it does not say why."""
    return InvalidToken("the pass is wrong, too old or used already; get a new one")


def _cipher(secret: str) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = "passes need cryptography: pip install 'towpath[server]'"
        raise ExtraMissing(msg) from error
    return AESGCM(hashlib.sha256(b"towpath pass\0" + secret.encode()).digest())
