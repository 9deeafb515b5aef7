"""Tokens that a login returns: signed, not encrypted. The database knows which are revoked."""

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
POCKETBASE_IDS: Final = {
    Collection.SUPERUSERS: "pbc_3142635823",
    Collection.USERS: "_pb_users_auth_",
}
"""The ids of these collections in PocketBase; its clients know a superuser's token by the first."""


Whole = Annotated[int, Meta(ge=0, le=2**40)]  # seconds; fits a column in microseconds too


class Claims(Struct, frozen=True):
    """The claims of a token. Instants are seconds since 1970."""

    sub: UUID
    col: Collection
    gen: Whole
    jti: UUID
    iat: Whole
    exp: Whole
    login: UUID | None = None  # missing in tokens of the previous version
    until: Whole = 0  # when the last token of this login so far expires

    @property
    def of_login(self) -> UUID:
        """The id of its login, which a refresh keeps."""
        return self.login or self.jti

    @property
    def login_expires(self) -> int:
        """When the last token of its login so far expires; that may be an earlier token."""
        return max(self.exp, self.until)


def signed(
    account: Account, secret: str, now: int, lifetime: int, before: Claims | None = None
) -> str:
    """Return a new token for an account; it begins a login, or continues that of `before`.

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
        # Only PocketBase's clients read these.
        "type": "auth",
        "id": account.id,
        "collectionId": POCKETBASE_IDS[account.collection],
        "collectionName": account.collection.value,
    }
    return str(pyjwt().encode(claims, secret, algorithm=ALGORITHM))


def read(token: str, secret: str, now: int) -> Claims:
    """Return the claims of a token that `signed` made; raise InvalidToken if it is not valid."""
    # PyJWT's own clock is not used: time comes from the database.
    claims = decoded(token, secret, (ALGORITHM,), {f"verify_{x}": False for x in _OURS})
    try:
        ours = msgspec.convert(claims, Claims)
    except msgspec.ValidationError as error:
        raise _refused("it is not a token of Towpath") from error
    if ours.exp * 10**6 <= now:
        raise _refused("it has expired; log in again")
    return ours


def decoded(
    token: str,
    key: Any,
    algorithms: tuple[str, ...],
    options: Mapping[str, Any],
    **checks: Any,
) -> dict[str, Any]:
    """Return the claims of a token; raise InvalidToken if its signature is wrong."""
    jwt = pyjwt()
    try:
        check_size(token)
        return dict(jwt.decode(token, key, list(algorithms), options=dict(options), **checks))
    except jwt.ExpiredSignatureError as error:
        raise _refused("it has expired; log in again") from error
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise _refused("its signature or its form is wrong") from error


def is_ours(token: str) -> bool:
    """Say whether a token has the form of those of `signed`; its signature is not checked."""
    try:
        check_size(token)
        claims = pyjwt().decode(token, options={"verify_signature": False})
    except (pyjwt().PyJWTError, InvalidToken, ValueError, TypeError, RecursionError):
        return False
    return "col" in claims and "gen" in claims


def check_size(token: str) -> None:
    """Refuse a token that is too long before it is parsed."""
    if not isinstance(token, str) or len(token) > MOST_TOKEN:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise _refused("it is too long")


def pyjwt() -> Any:
    """Return PyJWT, if it is installed."""
    try:
        import jwt  # noqa: PLC0415 - an extra that jobs do not need
    except ImportError as error:
        msg = "tokens need PyJWT: pip install 'towpath[server]'"
        raise ExtraMissing(msg) from error
    return jwt


_OURS: Final = ("exp", "iat", "nbf", "aud", "iss")


def _refused(why: str) -> InvalidToken:
    return InvalidToken(f"the token is not valid: {why}")
