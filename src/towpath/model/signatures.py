"""Signatures of webhooks, as Standard Webhooks defines them: made by us, verified by receivers."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from towpath.errors import Invalid, InvalidPayload, InvalidSecret, InvalidSignature
from towpath.model.instants import as_datetime

PREFIX: Final = "whsec_"
LEAST_SECRET: Final = 24  # bytes
MOST_SECRET: Final = 64
NEW_SECRET: Final = 32
TOLERANCE: Final = 300  # seconds, before and after the receiver's own time
_VERSION: Final = "v1"
_TIMESTAMP: Final = re.compile(r"[0-9]{1,11}")


class Received(Struct, frozen=True):
    """A webhook whose signature is right."""

    id: str  # the same in every attempt: tell repetitions by it
    at: datetime  # when this attempt was sent
    body: bytes  # as it was signed

    @property
    def payload(self) -> Any:
        """The body as JSON; raise InvalidPayload if it is something else."""
        try:
            return msgspec.json.decode(self.body)
        except (ValueError, RecursionError) as error:
            msg = "the body of the webhook is not JSON; read `body`"
            raise InvalidPayload(msg) from error


def new_secret() -> str:
    """Return a secret of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(NEW_SECRET)).decode("ascii")


def key_of(secret: str) -> bytes:
    """Return the key that a secret stands for; raise InvalidSecret, which does not repeat it."""
    if not isinstance(secret, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"a webhook's secret is text such as whsec_…, not {type(secret).__name__}"
        raise InvalidSecret(msg)
    text = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not LEAST_SECRET <= len(key) <= MOST_SECRET:
        msg = (
            f"a webhook's secret is {PREFIX} and the base64 of {LEAST_SECRET} to {MOST_SECRET} "
            "bytes; this one is something else"
        )
        raise InvalidSecret(msg)
    return key


def signature(id: str, at: int, body: bytes, keys: Sequence[bytes]) -> str:
    """Return the header `webhook-signature`: one signature for each key, in their order."""
    return " ".join(_signature(id, str(at), body, key) for key in keys)


def _signature(id: str, at: str, body: bytes, key: bytes) -> str:
    signed = b".".join((id.encode(), at.encode(), body))
    digest = hmac.digest(key, signed, hashlib.sha256)
    return f"{_VERSION},{base64.b64encode(digest).decode('ascii')}"


def verified(
    headers: Mapping[str, str], body: bytes, given: str | Sequence[str], now: float
) -> Received:
    """Return the webhook if one of the secrets has signed it, lately; else InvalidSignature."""
    if not isinstance(body, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"pass the body as the bytes that arrived, not {type(body).__name__}"
        raise Invalid(msg)
    keys = [key_of(each) for each in ([given] if isinstance(given, str) else given)]
    found = {name.lower(): value for name, value in headers.items()}
    id, at = found.get("webhook-id", ""), found.get("webhook-timestamp", "")
    # With a dot in the id the signed text could be split in two ways.
    if not id or "." in id or not _well_formed(id):
        raise _refused("the header webhook-id is missing or malformed")
    if not _TIMESTAMP.fullmatch(at):
        raise _refused("the header webhook-timestamp is missing or not a number")
    if abs(now - int(at)) > TOLERANCE:
        raise _refused("the header webhook-timestamp is more than five minutes away from now")
    # Bytes, as text that is not ASCII cannot be compared in constant time.
    tokens = [each.encode(errors="replace") for each in found.get("webhook-signature", "").split()]
    for key in keys:
        wanted = _signature(id, at, body, key).encode()
        if any(hmac.compare_digest(token, wanted) for token in tokens):
            return Received(id, as_datetime(int(at) * 10**6), body)
    raise _refused("no signature of webhook-signature is right")


def _well_formed(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _refused(reason: str) -> InvalidSignature:
    return InvalidSignature(f"the webhook was not accepted: {reason}")
