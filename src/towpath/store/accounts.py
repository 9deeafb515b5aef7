"""Accounts: what is stored of them, and which of their tokens hold."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from towpath.errors import AccountExists, Conflict, InvalidState, InvalidToken, NotFound
from towpath.model import tokens
from towpath.model.accounts import Account, Collection, fields_of
from towpath.model.instants import as_datetime
from towpath.model.tokens import Claims
from towpath.operation import Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store import subscriptions
from towpath.store.access import WAKEUP, changed, known_secret, raise_version, secret_and_now
from towpath.store.rows import uuid_from
from towpath.store.sagas import SAGAS

PRUNE_AT_ONCE: Final = 1_000
REFRESH_TAKES: Final = 3_600_000_000  # microseconds, at the very most


class AccountRow(NamedTuple):
    """An account as it is stored, but for its password."""

    id: UUID | bytes | str
    collection: str
    email: str
    name: str
    fields: str
    generation: int
    created_at: int
    updated_at: int


class sql(Statements):
    """The statements of accounts.sql."""

    create = rows(UUID)
    get = rows(AccountRow)
    get_by_email = rows(AccountRow)
    list = rows(AccountRow)
    count = rows(int)
    change = no_rows()
    end_tokens = rows(UUID)
    delete = no_rows()
    of_token = rows(AccountRow)
    revoke = no_rows()
    prune_tokens = rows(str)


class NewAccount(Struct, frozen=True, kw_only=True):
    """An account to store, but for its password."""

    id: UUID
    collection: Collection
    email: str
    name: str
    fields: str


class Changes(Struct, frozen=True, kw_only=True):
    """What is to change of an account; None stays as it is."""

    email: str | None = None
    name: str | None = None
    fields: dict[str, Any] | None = None  # a field that is None is removed


def create(new: NewAccount, password: str, *, first: bool = False) -> Operation[Account]:
    """Store an account and the hash of its password; `first` only if its collection is empty."""

    def steps() -> Steps[Changed[Account]]:
        yield from raise_version()
        if first and (yield from _count(new.collection)):
            msg = "there is a superuser already: log in, or use `towpath superuser create`"
            raise InvalidState(msg)
        if not (yield from sql.create(**asdict(new), password=password)):
            raise _exists(new.email)
        return changed((yield from _get(new.collection, new.id)))

    def again() -> Steps[Changed[Account]]:
        stored = yield from sql.get(id=new.id, collection=new.collection)
        return changed(account_from(stored[0])) if stored else (yield from steps())

    return Operation("create_account", steps, retry=again)


def get(collection: Collection, id: UUID) -> Operation[Account]:
    """Read one account."""
    return Operation("get_account", lambda: _get(collection, id), Mode.READ, autocommit=True)


def get_by_email(collection: Collection, email: str) -> Operation[Account]:
    """Read the account of an e-mail address."""

    def steps() -> Steps[Account]:
        for row in (yield from sql.get_by_email(collection=collection, email=email)):
            return account_from(row)
        raise _missing(collection, email)

    return Operation("get_account_by_email", steps, Mode.READ, autocommit=True)


def list_accounts(collection: Collection, limit: int, offset: int) -> Operation[list[Account]]:
    """Read accounts, the oldest first."""

    def steps() -> Steps[list[Account]]:
        found = yield from sql.list(collection=collection, limit=limit, offset=offset)
        return [account_from(row) for row in found]

    return Operation("list_accounts", steps, Mode.SCAN, autocommit=True)


def count(collection: Collection) -> Operation[int]:
    """Count accounts."""
    return Operation("count_accounts", lambda: _count(collection), Mode.SCAN, autocommit=True)


def update(
    collection: Collection, id: UUID, changes: Changes, password: str | None = None
) -> Operation[Account]:
    """Change an account; the hash of a new password ends its tokens."""

    def steps() -> Steps[Account | Changed[Account]]:
        if password is None and not any((changes.email, changes.name is not None, changes.fields)):
            return (yield from _get(collection, id))
        yield from raise_version()
        if changes.email is not None:
            found = yield from sql.get_by_email(collection=collection, email=changes.email)
            if any(account_from(row).id != str(id) for row in found):
                raise _exists(changes.email)
        yield sql.change(
            collection=collection,
            id=id,
            password=password,
            email=changes.email,
            name=changes.name,
            fields=(yield from _merged(collection, id, changes.fields)),
        )
        if password is not None:
            yield sql.end_tokens(collection=collection, id=id)
        return changed((yield from _get(collection, id)))

    return Operation("update_account", steps)


def _merged(collection: Collection, id: UUID, fields: dict[str, Any] | None) -> Steps[str | None]:
    """Return all fields as they are then. The version is raised, so no change comes between."""
    if not fields:
        return None
    known = (yield from _get(collection, id)).fields | fields
    return fields_of({name: value for name, value in known.items() if value is not None})


def end_tokens(collection: Collection, id: UUID) -> Operation[None]:
    """End every token of an account."""

    def steps() -> Steps[Changed[None]]:
        yield from raise_version()
        if not (yield from sql.end_tokens(collection=collection, id=id)):
            raise _missing(collection, str(id))
        return changed(None)

    return Operation("end_tokens", steps)


def delete(collection: Collection, id: UUID) -> Operation[None]:
    """Forget an account, and with it its tokens; the last superuser stays.

    Its subscriptions of webhooks are paused: the account may have lost the right to their events.
    """

    def steps() -> Steps[Changed[None]]:
        yield from raise_version()
        yield from _get(collection, id)
        if collection == Collection.SUPERUSERS and (yield from _count(collection)) == 1:
            msg = "the last superuser cannot be deleted: create another one first"
            raise Conflict(msg)
        yield sql.delete(collection=collection, id=id)
        paused = yield from subscriptions.pause_of(str(id))
        return Changed(None, others=[WAKEUP, SAGAS] if paused else [WAKEUP])

    def again() -> Steps[Changed[None]]:
        if (yield from sql.get(collection=collection, id=id)):
            return (yield from steps())
        return Changed(None, others=[WAKEUP, SAGAS])

    return Operation("delete_account", steps, locks=True, retry=again)


def sign(account: Account, lifetime: int) -> Operation[str]:
    """Return a token for an account."""

    def steps() -> Steps[str]:
        return tokens.signed(account, *(yield from secret_and_now()), lifetime)

    return Operation("sign_token", steps)


def refresh(token: str, lifetime: int) -> Operation[tuple[Account, str]]:
    """Return the account of a token that holds, and a new token."""

    def steps() -> Steps[tuple[Account, str]]:
        account, claims = yield from _verified(token)
        known = yield from secret_and_now()
        return account, tokens.signed(account, *known, lifetime, claims)

    return Operation("refresh_token", steps, Mode.READ)


def verify(token: str) -> Operation[Account]:
    """Return the account of a token that holds."""

    def steps() -> Steps[Account]:
        return (yield from _verified(token))[0]

    return Operation("verify_token", steps, Mode.READ)


def expiry(token: str) -> Operation[datetime]:
    """Return when a token that holds expires."""

    def steps() -> Steps[datetime]:
        _, claims = yield from _verified(token)
        return as_datetime(claims.exp * 10**6)

    return Operation("token_expiry", steps, Mode.READ)


def revoke(token: str, lifetime: int) -> Operation[None]:
    """End the login of a token: this token, and all that were refreshed from the same login."""

    def steps() -> Steps[Changed[None]]:
        yield from raise_version()
        _, claims = yield from _verified(token)
        # A refresh that is under way may still sign a token of this login, for a whole lifetime.
        expires_at = claims.login_expires * 10**6 + lifetime + REFRESH_TAKES
        # Code of the version before looks for the token's own id only.
        for id in {claims.of_login, claims.jti}:
            yield sql.revoke(id=id, expires_at=expires_at)
        return changed(None)

    def again() -> Steps[Changed[None]]:
        with contextlib.suppress(InvalidToken):  # as it should be
            yield from steps()
        return changed(None)

    return Operation("revoke_token", steps, retry=again)


def prune_tokens() -> Operation[int]:
    """Forget ended logins whose tokens have all expired; return how many. No right changes."""

    def steps() -> Steps[int]:
        return len((yield from sql.prune_tokens(limit=PRUNE_AT_ONCE)))

    return Operation("prune_tokens", steps, autocommit=True)


def _verified(token: str) -> Steps[tuple[Account, Claims]]:
    tokens.check_size(token)
    found = yield from known_secret()
    if found is None:
        raise _ended()
    claims = tokens.read(token, *found)
    found_account = yield from sql.of_token(
        id=claims.sub,
        collection=claims.col,
        generation=claims.gen,
        token=claims.jti,
        login=claims.of_login,
    )
    if not found_account:
        raise _ended()
    return account_from(found_account[0]), claims


def _get(collection: Collection, id: UUID) -> Steps[Account]:
    for row in (yield from sql.get(collection=collection, id=id)):
        return account_from(row)
    raise _missing(collection, str(id))


def _count(collection: Collection) -> Steps[int]:
    [found] = yield from sql.count(collection=collection)
    return found


def account_from(row: AccountRow) -> Account:
    """Read a row of accounts."""
    return Account(
        id=str(uuid_from(row.id)),
        collection=Collection(row.collection),
        email=row.email,
        name=row.name,
        fields=msgspec.json.decode(row.fields),
        generation=row.generation,
        created_at=as_datetime(row.created_at),
        updated_at=as_datetime(row.updated_at),
    )


def _exists(email: str) -> AccountExists:
    return AccountExists(f"there is an account {email} already")


def _missing(collection: Collection, name: str) -> NotFound:
    return NotFound(f"there is no account {name} in {collection.value}")


def _ended() -> InvalidToken:
    return InvalidToken("the token is not valid: it was ended, or its account is gone")
