"""Who asks: nobody, a user, a superuser, or a key.

Whom a token stands for is remembered until anything about accounts, keys or access changes, on
whatever process: app.access.acurrent() notices.
"""

import time
from typing import Any, Final, Literal

from msgspec import Struct, field

from towpath import App
from towpath.errors import InvalidToken
from towpath.model.access import Access
from towpath.model.accounts import Account, Collection
from towpath.model.keys import PREFIX
from towpath.server.errors import Refusal
from towpath.server.requests import Scope, cookie, header

COOKIE: Final = "towpath_auth"
MOST_REMEMBERED: Final = 10_000
REMEMBERED: Final = 1.0  # seconds; then a token may have expired
SAFE: Final = {"GET", "HEAD", "OPTIONS"}
NOT_LOGGED_IN: Final = {"id": "", "collectionId": "", "collectionName": "", "email": ""}


class Caller(Struct, frozen=True):
    """Who asks, and what they are known to be allowed."""

    kind: Literal["nobody", "user", "superuser", "key"] = "nobody"
    name: str = ""  # tells callers apart
    auth: dict[str, Any] = field(default_factory=NOT_LOGGED_IN.copy)  # @request.auth of rules
    scopes: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()  # of a key; none: all


NOBODY: Final = Caller()


class Callers:
    """Finds out who asks."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known: dict[str, tuple[Caller, float]] = {}  # and until when
        self._version = -1

    async def of(self, scope: Scope, access: Access) -> Caller:
        """Return who sent a request."""
        if access.version != self._version:
            self._known.clear()
            self._version = access.version
        token = token_of(scope)
        if token is not None:
            return await self._bearer(token)
        token = cookie(scope, COOKIE)
        if token is None:
            return NOBODY
        try:
            caller = await self._bearer(token)
        except InvalidToken:
            return NOBODY  # a page cannot take this cookie away
        _refuse_foreign_pages(scope)
        return caller

    async def _bearer(self, token: str) -> Caller:
        known = self._known.get(token)
        if known and time.monotonic() < known[1]:
            return known[0]
        caller = await self._verified(token)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[token] = (caller, time.monotonic() + REMEMBERED)
        return caller

    async def _verified(self, token: str) -> Caller:
        if token.startswith(PREFIX):
            key = await self._app.keys.averify(token)
            return Caller(
                kind="key",
                name=f"key {key.id}",
                scopes=frozenset(key.scopes),
                topics=frozenset(key.topics),
            )
        account = await self._app.accounts.averify(token)
        is_user = account.collection is Collection.USERS
        return Caller(
            kind="user" if is_user else "superuser",
            name=f"{account.collection} {account.id}",
            auth=record_of(account),
        )


def token_of(scope: Scope) -> str | None:
    """Return the token of the Authorization header; PocketBase's clients send it bare."""
    text = header(scope, b"authorization")
    if not text:
        return None
    kind, _, token = text.partition(" ")
    return (token if kind.lower() == "bearer" else text).strip()


def record_of(account: Account) -> dict[str, Any]:
    """Return an account as PocketBase shows a record."""
    return {
        **account.fields,
        "id": account.id,
        "collectionId": account.collection.value,
        "collectionName": account.collection.value,
        "email": account.email,
        "name": account.name,
        "created": account.created_at,
        "updated": account.updated_at,
    }


def _refuse_foreign_pages(scope: Scope) -> None:
    """Refuse what another site has a browser send along with our cookie."""
    if scope["method"] in SAFE:
        return
    site = header(scope, b"sec-fetch-site")
    if site is not None:
        ours = site == "same-origin"
    else:
        origin, host = header(scope, b"origin"), header(scope, b"host")
        ours = origin is not None and host is not None and origin.partition("://")[2] == host
    if not ours:
        raise Refusal(
            403, "csrf_refused", "with a cookie, only pages of this very site may change anything"
        )
