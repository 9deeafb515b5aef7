"""Passwords: argon2id, with the parameters of RFC 9106 for little memory (64 MiB)."""

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Final

from towpath.errors import ExtraMissing, Invalid

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST: Final = 8
LONGEST: Final = 1_000


def checked(password: str) -> str:
    """Return a new password, if it can be one."""
    if not isinstance(password, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = "a password is text"
        raise Invalid(msg)
    if not SHORTEST <= len(password) <= LONGEST:
        msg = f"a password has {SHORTEST} to {LONGEST:,} characters"
        raise Invalid(msg)
    if _typed(password) is None:
        msg = "the password holds a character that is none"
        raise Invalid(msg)
    return password


def hashed(password: str) -> str:
    """Return what is stored of a password. Takes a while, and 64 MiB."""
    return _hasher().hash(_typed(password) or b"")


def matches(stored: str | None, password: str) -> bool:
    """Say whether this is the password. Takes as long where there is no account, thus no hash."""
    nobodys = _nobodys()
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - an extra

    typed = _typed(password)
    try:
        _hasher().verify(nobodys if stored is None or typed is None else stored, typed or b"")
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None and typed is not None


def is_outdated(stored: str) -> bool:
    """Say whether a hash was made with other parameters than those of today."""
    return _hasher().check_needs_rehash(stored)


@cache
def _hasher() -> "PasswordHasher":
    try:
        from argon2 import PasswordHasher  # noqa: PLC0415 - an extra that jobs do without
    except ImportError as error:
        msg = "passwords need argon2-cffi: pip install 'towpath[server]'"
        raise ExtraMissing(msg) from error
    return PasswordHasher()


@cache
def _nobodys() -> str:
    return _hasher().hash(b"nobody")


def _typed(password: str) -> bytes | None:
    """Return the same bytes for what looks the same, on whatever keyboard it was typed."""
    if not isinstance(password, str) or len(password) > LONGEST:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        return None
    try:
        return unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
