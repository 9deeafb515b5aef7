"""The verbs of accounts: users and superusers, their passwords and tokens."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from towpath.app.hashing import hashing
from towpath.errors import Invalid, NotFound
from towpath.model import accounts as model
from towpath.model import passwords
from towpath.model.accounts import Account, Collection, collection_of
from towpath.model.channels import checked_channel
from towpath.model.ids import uuid7
from towpath.model.passes import Pass
from towpath.operation import Operation
from towpath.store import accounts, logins, passes
from towpath.store.accounts import Changes, NewAccount
from towpath.store.logins import LoginCandidate

if TYPE_CHECKING:
    from towpath.app.app import App

MOST_AT_ONCE: Final = 1_000
MOST_OFFSET: Final = 2**62


class Accounts:
    """Users and superusers: their passwords, and the tokens that a login returns."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._lifetime = int(app.settings.token_lifetime * 10**6)

    async def acreate(
        self,
        collection: str,
        email: str,
        password: str,
        *,
        name: str = "",
        fields: Mapping[str, Any] | None = None,
        connection: object = None,
    ) -> Account:
        """Add an account to `users` or `_superusers`. AccountExists if the address is in use.

        Addresses are stored in lower case. Rules can use the account's `fields`.
        """
        new, hash = _new(collection, email, name, fields), _hash(password)
        return await self._app.arun(accounts.create(new, await hashing.arun(hash)), connection)

    async def acreate_first(self, email: str, password: str) -> Account:
        """Add the first superuser; InvalidState if there is one. One of several calls succeeds."""
        new, hash = _new(Collection.SUPERUSERS, email), _hash(password)
        return await self._app.arun(accounts.create(new, await hashing.arun(hash), first=True))

    async def aget(self, collection: str, id_or_email: str) -> Account:
        """Read an account by its id or its e-mail address."""
        return await self._app.arun(_get(collection, id_or_email))

    async def acount(self, collection: str) -> int:
        """Count the accounts of a collection."""
        return await self._app.arun(accounts.count(collection_of(collection)))

    async def aupdate(
        self,
        collection: str,
        id: str,
        *,
        email: str | None = None,
        password: str | None = None,
        name: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Account:
        """Change the given values; a field of None is removed. A new password ends all tokens."""
        key, changes = _key(collection, id), _changes(email, name, fields)
        hash = None if password is None else await hashing.arun(_hash(password))
        return await self._app.arun(accounts.update(*key, changes, hash))

    async def adelete(self, collection: str, id: str) -> None:
        """Delete an account, end its tokens and pause the subscriptions that it owns.

        Conflict if it is the last superuser.
        """
        await self._app.arun(accounts.delete(*_key(collection, id)))

    async def alogin(
        self, collection: str, email: str, password: str, *, client: str = ""
    ) -> tuple[Account, str]:
        """Return the account and a token.

        LoginRefused if the address or the password is wrong; TooManyLogins after too many failures
        with this address or from this client (its network address). A success resets the count.
        """
        key = collection_of(collection), _normalized(email)
        costs = logins.charges(*key, client)
        candidate = await self._app.arun(logins.attempt(*key, costs))
        account, rehashed = await hashing.arun(partial(_authenticated, candidate, password))
        if rehashed:
            account = await self._app.arun(logins.rehash(account, rehashed))
        return await self._app.arun(logins.succeed(account, costs, self._lifetime))

    async def atoken(self, account: Account) -> str:
        """Return a new token for an account."""
        return await self._app.arun(accounts.sign(account, self._lifetime))

    async def averify(self, token: str) -> Account:
        """Return the account of a token; InvalidToken if it is wrong, expired or revoked."""
        return await self._app.arun(accounts.verify(token))

    async def aexpiry(self, token: str) -> datetime:
        """Return when a token expires; InvalidToken if it is wrong, expired or revoked."""
        return await self._app.arun(accounts.expiry(token))

    async def arefresh(self, token: str) -> tuple[Account, str]:
        """Return the account of a token and a new token of its login; the old one stays valid."""
        return await self._app.arun(accounts.refresh(token, self._lifetime))

    async def arevoke(self, token: str) -> None:
        """Log out: end a token and all other tokens of its login."""
        await self._app.arun(accounts.revoke(token, self._lifetime))

    async def arevoke_all(self, account: Account) -> None:
        """End every token of an account."""
        await self._app.arun(accounts.end_tokens(*_key(account.collection, account.id)))

    async def alist(self, collection: str, *, limit: int = 100, offset: int = 0) -> list[Account]:
        """Read accounts, the oldest first."""
        return await self._app.arun(_list(collection, limit, offset))

    async def aissue_pass(self, token: str, channels: Sequence[str]) -> str:
        """Return a pass for a caller's token: it lets in once, to these channels, for a minute."""
        names = tuple(checked_channel(name) for name in channels)
        return await self._app.arun(passes.issue(token, names))

    async def aredeem_pass(self, text: str) -> Pass:
        """Spend a pass; InvalidToken if it is wrong, too old or used already."""
        return await self._app.arun(passes.redeem(text))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def create(
        self,
        collection: str,
        email: str,
        password: str,
        *,
        name: str = "",
        fields: Mapping[str, Any] | None = None,
        connection: object = None,
    ) -> Account:
        """Add an account to `users` or `_superusers`. AccountExists if the address is in use.

        Addresses are stored in lower case. Rules can use the account's `fields`.
        """
        new, hash = (_new(collection, email, name, fields), _hash(password))
        return self._app.run(accounts.create(new, hashing.run(hash)), connection)

    def create_first(self, email: str, password: str) -> Account:
        """Add the first superuser; InvalidState if there is one. One of several calls succeeds."""
        new, hash = (_new(Collection.SUPERUSERS, email), _hash(password))
        return self._app.run(accounts.create(new, hashing.run(hash), first=True))

    def get(self, collection: str, id_or_email: str) -> Account:
        """Read an account by its id or its e-mail address."""
        return self._app.run(_get(collection, id_or_email))

    def count(self, collection: str) -> int:
        """Count the accounts of a collection."""
        return self._app.run(accounts.count(collection_of(collection)))

    def update(
        self,
        collection: str,
        id: str,
        *,
        email: str | None = None,
        password: str | None = None,
        name: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Account:
        """Change the given values; a field of None is removed. A new password ends all tokens."""
        key, changes = (_key(collection, id), _changes(email, name, fields))
        hash = None if password is None else hashing.run(_hash(password))
        return self._app.run(accounts.update(*key, changes, hash))

    def delete(self, collection: str, id: str) -> None:
        """Delete an account, end its tokens and pause the subscriptions that it owns.

        Conflict if it is the last superuser.
        """
        self._app.run(accounts.delete(*_key(collection, id)))

    def login(
        self, collection: str, email: str, password: str, *, client: str = ""
    ) -> tuple[Account, str]:
        """Return the account and a token.

        LoginRefused if the address or the password is wrong; TooManyLogins after too many failures
        with this address or from this client (its network address). A success resets the count.
        """
        key = (collection_of(collection), _normalized(email))
        costs = logins.charges(*key, client)
        candidate = self._app.run(logins.attempt(*key, costs))
        account, rehashed = hashing.run(partial(_authenticated, candidate, password))
        if rehashed:
            account = self._app.run(logins.rehash(account, rehashed))
        return self._app.run(logins.succeed(account, costs, self._lifetime))

    def token(self, account: Account) -> str:
        """Return a new token for an account."""
        return self._app.run(accounts.sign(account, self._lifetime))

    def verify(self, token: str) -> Account:
        """Return the account of a token; InvalidToken if it is wrong, expired or revoked."""
        return self._app.run(accounts.verify(token))

    def expiry(self, token: str) -> datetime:
        """Return when a token expires; InvalidToken if it is wrong, expired or revoked."""
        return self._app.run(accounts.expiry(token))

    def refresh(self, token: str) -> tuple[Account, str]:
        """Return the account of a token and a new token of its login; the old one stays valid."""
        return self._app.run(accounts.refresh(token, self._lifetime))

    def revoke(self, token: str) -> None:
        """Log out: end a token and all other tokens of its login."""
        self._app.run(accounts.revoke(token, self._lifetime))

    def revoke_all(self, account: Account) -> None:
        """End every token of an account."""
        self._app.run(accounts.end_tokens(*_key(account.collection, account.id)))

    def list(self, collection: str, *, limit: int = 100, offset: int = 0) -> list[Account]:
        """Read accounts, the oldest first."""
        return self._app.run(_list(collection, limit, offset))

    def issue_pass(self, token: str, channels: Sequence[str]) -> str:
        """Return a pass for a caller's token: it lets in once, to these channels, for a minute."""
        names = tuple(checked_channel(name) for name in channels)
        return self._app.run(passes.issue(token, names))

    def redeem_pass(self, text: str) -> Pass:
        """Spend a pass; InvalidToken if it is wrong, too old or used already."""
        return self._app.run(passes.redeem(text))


def _new(
    collection: str, email: str, name: str = "", fields: Mapping[str, Any] | None = None
) -> NewAccount:
    return NewAccount(
        id=uuid7(),
        collection=collection_of(collection),
        email=model.email_of(email),
        name=model.name_of(name),
        fields=model.fields_of(fields),
    )


def _changes(email: str | None, name: str | None, fields: Mapping[str, Any] | None) -> Changes:
    if fields is not None:
        model.fields_of(fields)  # the store checks them again, joined with the existing fields
    return Changes(
        email=None if email is None else model.email_of(email),
        name=None if name is None else model.name_of(name),
        fields=None if fields is None else dict(fields),
    )


def _hash(password: str) -> Callable[[], str]:
    """Check a new password; return a function that hashes it."""
    return partial(passwords.hashed, passwords.checked(password))


def _normalized(email: str) -> str:
    """Return an e-mail address as it is stored; if it is not one, text that no account has."""
    try:
        return model.email_of(email)
    except Invalid:
        return ""


def _authenticated(
    candidate: LoginCandidate | None, password: str
) -> tuple[LoginCandidate, str | None]:
    """Check the password; return the account, and a new hash if its hash is outdated."""
    right = passwords.matches(None if candidate is None else candidate.password, password)
    if candidate is None or not right:
        raise logins.refused()
    outdated = passwords.is_outdated(candidate.password)
    return candidate, passwords.hashed(password) if outdated else None


def _get(collection: str, id_or_email: str) -> Operation[Account]:
    known = collection_of(collection)
    if isinstance(id_or_email, str) and "@" in id_or_email:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        return accounts.get_by_email(known, _normalized(id_or_email))
    return accounts.get(*_key(known, id_or_email))


def _key(collection: str, id: str) -> tuple[Collection, UUID]:
    known = collection_of(collection)
    try:
        return known, UUID(id)
    except (ValueError, AttributeError, TypeError):
        msg = f"there is no account {str(id)[:100]!r} in {known.value}"
        raise NotFound(msg) from None


def _list(collection: str, limit: int, offset: int) -> Operation[list[Account]]:
    for name, value, least, most in (
        ("limit", limit, 1, MOST_AT_ONCE),
        ("offset", offset, 0, MOST_OFFSET),
    ):
        if not isinstance(value, int) or not least <= value <= most:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            msg = f"{name} must be a number from {least} to {most}, not {value!r}"
            raise Invalid(msg)
    return accounts.list_accounts(collection_of(collection), limit, offset)
