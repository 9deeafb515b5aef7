"""API keys: secrets of programs, with scopes instead of rules."""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from towpath.errors import Invalid

PREFIX: Final = "tow_"
SHOWN: Final = 8  # characters of a secret by which people tell keys apart
MOST_SECRET: Final = 200


class KeyScope(StrEnum):
    """What a key may do."""

    ENQUEUE = "enqueue"
    MANAGE = "manage"
    WORK = "work"
    METRICS = "metrics"


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key, but for its secret, which nobody can read any more."""

    id: str
    name: str
    prefix: str  # how its secret begins
    scopes: tuple[KeyScope, ...]
    topics: tuple[str, ...]  # to which it is bound; none: all
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None  # to the minute


def new_secret() -> str:
    """Return a secret of 32 random bytes."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    """Return what is stored of a secret: 32 random bytes are not guessed, a quick hash will do."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def scopes_of(names: Iterable[str]) -> tuple[KeyScope, ...]:
    """Read the names of scopes, once each; there is at least one."""
    names = (names,) if isinstance(names, str) else tuple(names)
    try:
        found = tuple(dict.fromkeys(KeyScope(name) for name in names))
    except ValueError as error:
        msg = f"{error}: scopes are {', '.join(KeyScope)}"
        raise Invalid(msg) from error
    if not found:
        msg = f"name at least one scope out of {', '.join(KeyScope)}"
        raise Invalid(msg)
    return found
