"""Tokens: what a login hands out. Signed, not secret; whether one has been ended is stored."""

from collections.abc import Mapping
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from towpath.errors import ExtraMissing, InvalidToken
from towpath.model.accounts import Account, Collection
from towpath.model.ids import uuid7

ALGORITHM: Final = "HS256"
MOST_TOKEN: Final = 8 * 1024  # characters


Whole = Annotated[int, Meta(ge=0, le=2**40)]  # fits a column, as microseconds too


class Claims(Struct, frozen=True):
    """What a token says. Instants are seconds since 1970."""

    sub: UUID
    col: Collection
    gen: Whole
    jti: UUID
    iat: Whole
    exp: Whole
    login: UUID | None = None  # tokens of the version before do not name theirs
    until: Whole = 0  # when the last of its login's tokens so far expires

    @property
    def of_login(self) -> UUID:
        """The login that it stems from, however often it was refreshed."""
        return self.login or self.jti

    @property
    def login_expires(self) -> int:
        """When the last token of its login so far expires; one before may live longer than this."""
        return max(self.exp, self.until)


def signed(
    account: Account, secret: str, now: int, lifetime: int, before: Claims | None = None
) -> str:
    """Return a new token for an account: one that begins a login, or follows another.

    Instants and durations are microseconds.
    """
    id = uuid7()
    expires = (now + lifetime) // 10**6
    claims = {
        "sub": account.id,
        "col": account.collection.value,
        "gen": account.generation,
        "jti": str(id),
        "login": str(before.of_login if before else id),
        "iat": now // 10**6,
        "exp": expires,
        "until": max(expires, before.login_expires if before else 0),
    }
    return str(pyjwt().encode(claims, secret, algorithm=ALGORITHM))


def read(token: str, secret: str, now: int) -> Claims:
    """Return what a token of ours says, unless it was tampered with or has expired."""
    # Not by PyJWT's own clock: time is the database's.
    claims = decoded(token, secret, (ALGORITHM,), {f"verify_{x}": False for x in _OURS})
    try:
        found = msgspec.convert(claims, Claims)
    except msgspec.ValidationError as error:
        raise _refused("it is not one of ours") from error
    if found.exp * 10**6 <= now:
        raise _refused("it has expired: log in again")
    return found


def decoded(
    token: str,
    key: Any,
    algorithms: tuple[str, ...],
    options: Mapping[str, Any],
    **checks: Any,
) -> dict[str, Any]:
    """Return the claims of a token whose signature is right."""
    jwt = pyjwt()
    try:
        check_size(token)
        return dict(jwt.decode(token, key, list(algorithms), options=dict(options), **checks))
    except jwt.ExpiredSignatureError as error:
        raise _refused("it has expired: log in again") from error
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise _refused("its signature or its form is wrong") from error


def is_ours(token: str) -> bool:
    """Say whether a token claims to be one of ours, whoever has signed it."""
    try:
        check_size(token)
        claims = pyjwt().decode(token, options={"verify_signature": False})
    except (pyjwt().PyJWTError, InvalidToken, ValueError, TypeError, RecursionError):
        return False
    return "col" in claims and "gen" in claims


def check_size(token: str) -> None:
    """Refuse what is no token before anybody reads it."""
    if not isinstance(token, str) or len(token) > MOST_TOKEN:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise _refused("it is too long to be one")


def pyjwt() -> Any:
    """Return PyJWT, if it is installed."""
    try:
        import jwt  # noqa: PLC0415 - an extra that jobs do without
    except ImportError as error:
        msg = "tokens need PyJWT: pip install 'towpath[server]'"
        raise ExtraMissing(msg) from error
    return jwt


_OURS: Final = ("exp", "iat", "nbf", "aud", "iss")


def _refused(why: str) -> InvalidToken:
    return InvalidToken(f"the token is not valid: {why}")
