"""Who asks: nobody, a user, a superuser, or a key.

Whom a token stands for is remembered until anything about accounts, keys or access changes, on
whatever process: app.access.current() notices.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct, field

from towpath import App
from towpath.app.external import External
from towpath.errors import InvalidToken
from towpath.model.access import Access
from towpath.model.accounts import Account, Collection
from towpath.model.keys import PREFIX, ApiKey
from towpath.model.tokens import is_ours
from towpath.server.bodies import Scope, cookie
from towpath.server.errors import Refusal

Headers = Mapping[bytes, bytes]

COOKIE: Final = "towpath_auth"
EXTERNAL: Final = "external"  # the collection of those whom others let in
NOTED_EVERY: Final = 60.0  # seconds
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


class Authentication:
    """Finds out who asks."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._external = External(app.settings)
        self._known: dict[bytes, tuple[Caller, float]] = {}  # and until when
        self._version = -1
        self._noted: dict[str, float] = {}  # when the use of a key was noted

    def known(self, headers: Headers, access: Access) -> Caller | None:
        """Return who sent a request, if that is known already."""
        if access.version == self._version:
            known = self._known.get(headers.get(b"authorization", b""))
            if known and time.monotonic() < known[1]:
                return known[0]
        return None

    async def of(self, scope: Scope, headers: Headers, access: Access) -> Caller:
        """Return who sent a request."""
        if access.version != self._version:
            self._known.clear()
            self._version = access.version
        token = token_of(headers)
        if token is not None:
            return await self._remembered(headers[b"authorization"], token)
        token = cookie(headers, COOKIE)
        if token is None:
            return NOBODY
        try:
            caller = await self._remembered(b"\0" + token.encode(), token)
        except InvalidToken:
            return NOBODY  # a page cannot take this cookie away
        refuse_foreign_pages(scope["method"], headers)
        return caller

    async def _remembered(self, said: bytes, token: str) -> Caller:
        known = self._known.get(said)
        if known and time.monotonic() < known[1]:
            return known[0]
        version = self._version
        caller = await self._verified(token)
        # Padded, as nobody does who is not after our memory; or what has changed meanwhile may have
        # ended this very token.
        is_plain = len(said) <= len(token) + len("Bearer ")
        if is_plain and version == self._version:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[said] = (caller, time.monotonic() + REMEMBERED)
        return caller

    async def _verified(self, token: str) -> Caller:
        if token.startswith(PREFIX):
            key = await self._app.keys.averify(token)
            await self._note_use(key)
            return Caller(
                kind="key",
                name=f"key {key.id}",
                scopes=frozenset(key.scopes),
                topics=frozenset(key.topics),
            )
        try:
            account = await self._app.accounts.averify(token)
        except InvalidToken:
            if not self._external.is_set_up or is_ours(token):
                raise
            return await self._foreigner(token)
        is_user = account.collection is Collection.USERS
        return Caller(
            kind="user" if is_user else "superuser",
            name=f"{account.collection} {account.id}",
            auth=record_of(account),
        )

    async def _foreigner(self, token: str) -> Caller:
        """Return whom a token names that was signed elsewhere: nobody of ours, whatever it says."""
        account = await self._external.averify(token)
        place = {"collectionId": EXTERNAL, "collectionName": EXTERNAL}
        return Caller(kind="user", name=f"{EXTERNAL} {account.id}", auth=record_of(account) | place)

    async def _note_use(self, key: ApiKey) -> None:
        """Note that a key was used: once a minute, so never in the way of many requests."""
        now = time.monotonic()
        if now - self._noted.get(key.id, -NOTED_EVERY) >= NOTED_EVERY:
            self._noted[key.id] = now
            await self._app.keys.aused([key.id])


def token_of(headers: Headers) -> str | None:
    """Return the token of the Authorization header; PocketBase's clients send it bare."""
    text = str(headers.get(b"authorization", b""), "latin-1")
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


def refuse_foreign_pages(method: str, headers: Headers) -> None:
    """Refuse what another site has a browser send along with our cookie."""
    if method in SAFE:
        return
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        ours = site == b"same-origin"
    else:
        origin, host = headers.get(b"origin"), headers.get(b"host")
        ours = origin is not None and host is not None and origin.partition(b"://")[2] == host
    if not ours:
        raise Refusal(
            403, "csrf_refused", "with a cookie, only pages of this very site may change anything"
        )
