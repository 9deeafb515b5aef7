"""Authentication: whether a request comes from an anonymous caller, a user, a superuser or a key.

The caller of a token is cached until accounts, keys or access rules change, in any process:
`app.access.current()` notices the change.
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
EXTERNAL: Final = "external"  # the collection of users with a token of another issuer
NOTE_USE_EVERY: Final = 60.0  # seconds
MOST_CACHED: Final = 10_000
CACHED_FOR: Final = 1.0  # seconds; a token may expire meanwhile
SAFE: Final = {"GET", "HEAD", "OPTIONS"}
NOT_LOGGED_IN: Final = {"id": "", "collectionId": "", "collectionName": "", "email": ""}


class Caller(Struct, frozen=True):
    """The sender of a request."""

    kind: Literal["anonymous", "user", "superuser", "key"] = "anonymous"
    name: str = ""  # unique to the account or key
    auth: dict[str, Any] = field(default_factory=NOT_LOGGED_IN.copy)  # @request.auth of rules
    scopes: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()  # of a key; empty: all topics
    channels: tuple[str, ...] = ()  # of a key: how their names begin; empty: all channels


ANONYMOUS: Final = Caller()


class Authentication:
    """Finds the caller of a request by its token or cookie."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._external = External(app.settings)
        self._cache: dict[bytes, tuple[Caller, float]] = {}  # callers, and until when they hold
        self._version = -1
        self._noted: dict[str, float] = {}  # when the use of a key was last stored

    def cached(self, headers: Headers, access: Access) -> Caller | None:
        """Return the caller if its Authorization header is in the cache."""
        if access.version == self._version:
            found = self._cache.get(headers.get(b"authorization", b""))
            if found and time.monotonic() < found[1]:
                return found[0]
        return None

    async def of(self, scope: Scope, headers: Headers, access: Access) -> Caller:
        """Return the caller of a request."""
        if access.version != self._version:
            self._cache.clear()
            self._version = access.version
        token = token_of(headers)
        if token is not None:
            return await self._cached_or_verified(headers[b"authorization"], token)
        token = cookie(headers, COOKIE)
        if token is None:
            return ANONYMOUS
        try:
            caller = await self._cached_or_verified(b"\0" + token.encode(), token)
        except InvalidToken:
            return ANONYMOUS  # not an error: scripts cannot delete this cookie
        refuse_cross_site(scope["method"], headers)
        return caller

    async def _cached_or_verified(self, credential: bytes, token: str) -> Caller:
        found = self._cache.get(credential)
        if found and time.monotonic() < found[1]:
            return found[0]
        version = self._version
        caller = await self._verified(token)
        # Padded headers would flood the cache. A token that was verified before the access version
        # changed may have been revoked by that change.
        is_plain = len(credential) <= len(token) + len("Bearer ")
        if is_plain and version == self._version:
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            self._cache[credential] = (caller, time.monotonic() + CACHED_FOR)
        return caller

    async def _verified(self, token: str) -> Caller:
        if token.startswith(PREFIX):
            key = await self._app.keys.averify(token)
            await self._note_use(key)
            return caller_of_key(key)
        try:
            account = await self._app.accounts.averify(token)
        except InvalidToken:
            if not self._external.is_set_up or is_ours(token):
                raise
            return await self._external_user(token)
        return caller_of(account)

    async def _external_user(self, token: str) -> Caller:
        """Return the user of another issuer's token; it is never one of our own accounts."""
        account = await self._external.averify(token)
        origin = {"collectionId": EXTERNAL, "collectionName": EXTERNAL}
        auth = record_of(account) | origin
        return Caller(kind="user", name=f"{EXTERNAL} {account.id}", auth=auth)

    async def _note_use(self, key: ApiKey) -> None:
        """Store that a key was used, at most once a minute: each time costs a write."""
        now = time.monotonic()
        if now - self._noted.get(key.id, -NOTE_USE_EVERY) >= NOTE_USE_EVERY:
            self._noted[key.id] = now
            await self._app.keys.aused([key.id])


def caller_of(account: Account) -> Caller:
    """Return the caller that an account of ours is."""
    is_user = account.collection is Collection.USERS
    return Caller(
        kind="user" if is_user else "superuser",
        name=f"{account.collection} {account.id}",
        auth=record_of(account),
    )


def caller_of_key(key: ApiKey) -> Caller:
    """Return the caller that a key is."""
    return Caller(
        kind="key",
        name=f"key {key.id}",
        scopes=frozenset(key.scopes),
        topics=frozenset(key.topics),
        channels=key.channels,
    )


def token_of(headers: Headers) -> str | None:
    """Return the token of the Authorization header; PocketBase's clients leave out `Bearer`."""
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


def refuse_cross_site(method: str, headers: Headers) -> None:
    """Refuse a change that a page of another site sends with our cookie."""
    if method in SAFE:
        return
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        is_same = site == b"same-origin"
    else:
        origin, host = headers.get(b"origin"), headers.get(b"host")
        is_same = origin is not None and host is not None and origin.partition(b"://")[2] == host
    if not is_same:
        message = "with a cookie, only pages of the same origin may change anything; send a token"
        raise Refusal(403, "csrf_refused", message)
