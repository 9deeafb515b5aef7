"""Sealed text: secrets and custom headers of subscriptions, under a key that no database holds.

A sealed text is `1.<id of the key>.<nonce and ciphertext>`, by AES-256-GCM. The number of the
subscription is associated data, so the text opens for no other subscription.
"""

import base64
import binascii
import hashlib
import secrets
from typing import Any, Final

from towpath.errors import ExtraMissing, Invalid, KeyMissing, SealBroken

VARIABLE: Final = "TOWPATH_WEBHOOK_KEY"
KEY_BYTES: Final = 32
_NONCE: Final = 12  # bytes
_VERSION: Final = "1"


class SealingKeys:
    """Keys that seal and open. The first one seals; all of them open."""

    def __init__(self, text: str) -> None:
        """Read keys as base64, separated by commas; raise Invalid, which does not repeat them."""
        parts = filter(None, map(str.strip, text.split(",")))
        self._keys = {_id_of(key): key for key in map(_key, parts)}

    def __repr__(self) -> str:
        """Return the ids of the keys, never the keys."""
        return f"SealingKeys({', '.join(self._keys)})"

    def seal(self, text: str, subscription: int) -> str:
        """Return a text that only these keys open, and only for this subscription."""
        if not self._keys:
            msg = f"{VARIABLE} is not set; put a key into it that `towpath webhooks key` makes"
            raise KeyMissing(msg)
        id, key = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE)
        ciphertext = _cipher(key).encrypt(nonce, text.encode(), _bound(id, subscription))
        return f"{_VERSION}.{id}.{base64.b64encode(nonce + ciphertext).decode('ascii')}"

    def open(self, sealed: str, subscription: int) -> str:
        """Return the text; KeyMissing if its key is not here, SealBroken if it was changed."""
        version, _, rest = sealed.partition(".")
        id, _, encoded = rest.partition(".")
        if version != _VERSION:
            raise _broken(subscription)
        key = self._keys.get(id)
        if key is None:
            msg = (
                f"the key {id[:8]!r} has sealed the secrets of subscription {subscription} and is "
                f"not in {VARIABLE}; add it behind a comma"
            )
            raise KeyMissing(msg)
        cipher = _cipher(key)
        try:
            both = base64.b64decode(encoded, validate=True)
            text: bytes = cipher.decrypt(both[:_NONCE], both[_NONCE:], _bound(id, subscription))
        except Exception as error:  # of several packages; each means the same
            raise _broken(subscription) from error
        return text.decode()

    def is_current(self, sealed: str) -> bool:
        """Say whether the first key has sealed a text; if not, it is worth sealing it again."""
        return sealed.split(".")[1:2] == list(self._keys)[:1]


def new_key() -> str:
    """Return a new key for TOWPATH_WEBHOOK_KEY."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        msg = f"{VARIABLE} is not the base64 of {KEY_BYTES} bytes; `towpath webhooks key` makes one"
        raise Invalid(msg)
    return key


def _id_of(key: bytes) -> str:
    """Return an id that says nothing of the key."""
    return hashlib.sha256(b"towpath webhook key\0" + key).hexdigest()[:8]


def _bound(id: str, subscription: int) -> bytes:
    return f"towpath.{_VERSION}.{id}.{subscription}".encode()


def _broken(subscription: int) -> SealBroken:
    msg = f"the sealed secrets of subscription {subscription} were changed; rotate its secret"
    return SealBroken(msg)


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = "webhooks need the package cryptography: pip install 'towpath[webhooks]'"
        raise ExtraMissing(msg) from error
    return AESGCM(key)
