"""API keys for programs, which have scopes instead of access rules."""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from towpath.errors import Invalid

PREFIX: Final = "tow_"
SHOWN: Final = 8  # characters of a secret that are kept to tell keys apart
MOST_SECRET: Final = 200


class KeyScope(StrEnum):
    """What a key may do."""

    ENQUEUE = "enqueue"
    MANAGE = "manage"
    WORK = "work"
    METRICS = "metrics"
    PUBLISH = "publish"  # to channels
    SUBSCRIBE = "subscribe"
    WEBHOOKS = "webhooks"  # subscriptions, and what is delivered to them


class ApiKey(Struct, frozen=True, kw_only=True):
    """An API key without its secret, of which only a hash is stored."""

    id: str
    name: str
    prefix: str  # how its secret begins
    scopes: tuple[KeyScope, ...]
    topics: tuple[str, ...]  # the only topics it may use; empty: all topics
    channels: tuple[str, ...]  # how the names of its channels begin; empty: all channels
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None  # exact to a minute


def new_secret() -> str:
    """Return a secret of 32 random bytes."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    """Return the hash that is stored; a fast one is enough, as a secret has 32 random bytes."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def scopes_of(names: Iterable[str]) -> tuple[KeyScope, ...]:
    """Return the scopes of these names without duplicates; raise Invalid if there is none."""
    names = (names,) if isinstance(names, str) else tuple(names)
    try:
        scopes = tuple(dict.fromkeys(KeyScope(name) for name in names))
    except ValueError as error:
        msg = f"{error}; known scopes: {', '.join(KeyScope)}"
        raise Invalid(msg) from error
    if not scopes:
        msg = f"name at least one scope; known scopes: {', '.join(KeyScope)}"
        raise Invalid(msg)
    return scopes
