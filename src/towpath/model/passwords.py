"""Passwords: argon2id with the low-memory parameters of RFC 9106 (64 MiB)."""

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Final

from towpath.errors import ExtraMissing, Invalid

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST: Final = 8
LONGEST: Final = 1_000


def checked(password: str) -> str:
    """Return a new password; raise Invalid if it cannot be used."""
    if not isinstance(password, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"the password must be text, not {type(password).__name__}"
        raise Invalid(msg)
    if not SHORTEST <= len(password) <= LONGEST:
        msg = f"the password must have {SHORTEST} to {LONGEST:,} characters"
        raise Invalid(msg)
    if _typed(password) is None:
        msg = "the password contains a lone surrogate, which is not a character"
        raise Invalid(msg)
    return password


def hashed(password: str) -> str:
    """Return the hash of a password. Takes tens of milliseconds and 64 MiB."""
    return _hasher().hash(_typed(password) or b"")


def matches(stored: str | None, password: str) -> bool:
    """Say whether this is the password. Takes as long if there is no account, thus no hash."""
    unknown = _hash_of_unknown()
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - an extra

    typed = _typed(password)
    try:
        _hasher().verify(unknown if stored is None or typed is None else stored, typed or b"")
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None and typed is not None


def is_outdated(stored: str) -> bool:
    """Say whether a hash was made with parameters that are no longer used."""
    return _hasher().check_needs_rehash(stored)


@cache
def _hasher() -> "PasswordHasher":
    try:
        from argon2 import PasswordHasher  # noqa: PLC0415 - an extra that jobs do not need
    except ImportError as error:
        msg = "passwords need argon2-cffi: pip install 'towpath[server]'"
        raise ExtraMissing(msg) from error
    return PasswordHasher()


@cache
def _hash_of_unknown() -> str:
    """Return a hash to verify against if an account does not exist."""
    return _hasher().hash(b"unknown")


def _typed(password: str) -> bytes | None:
    """Return the bytes to hash, normalized so that every keyboard gives the same bytes."""
    if not isinstance(password, str) or len(password) > LONGEST:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        return None
    try:
        return unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
