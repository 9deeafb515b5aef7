"""Logins: each attempt is charged before the password is checked, so that guessing is slow.

Three buckets are charged: an e-mail address from one client, which is tight; one client; and an
e-mail address from anywhere, which is so loose that a stranger alone does not lock its owner out.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict

from towpath.errors import LoginRefused, TooManyLogins
from towpath.model import tokens
from towpath.model.accounts import Account, Collection
from towpath.operation import Changed, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store.access import changed, raise_version, secret_and_now
from towpath.store.accounts import AccountRow, account_from
from towpath.store.rows import uuid_from

PRUNE_AT_ONCE: Final = 1_000

_SECOND: Final = 10**6
_RATES: Final = {  # tries at once, and the microseconds after which there is one more
    "e-mail and client": (5, 12 * _SECOND),
    "client": (30, 2 * _SECOND),
    "e-mail": (100, _SECOND),
}


class PasswordRow(NamedTuple):
    """An account's id and the hash of its password."""

    id: UUID | bytes | str
    password: str


class Debt(NamedTuple):
    """Up to when one more attempt could be charged, and up to when attempts are charged."""

    limit: int
    tat: int


class sql(Statements):
    """The statements of logins.sql."""

    password = rows(PasswordRow)
    account = rows(AccountRow)
    rehash = no_rows()
    charge = rows(str)
    owed = rows(Debt)
    hold = no_rows()
    forgive = no_rows()
    refund = no_rows()
    prune_attempts = rows(str)


class Charge(Struct, frozen=True):
    """What a login costs under one key."""

    key: str
    pace: int
    room: int
    forgiven: bool  # by a success; else only the cost of the successful attempt is given back


class LoginCandidate(Struct, frozen=True):
    """The account that a login is for."""

    id: UUID
    password: str  # its hash


def charges(collection: Collection, email: str, client: str) -> list[Charge]:
    """Return what a login costs; keys are hashed, since they hold whatever a request says."""
    said: dict[str, tuple[str, ...]] = {"e-mail": (collection, email)}
    if client:
        said |= {"client": (client,), "e-mail and client": (collection, email, client)}
    return sorted(
        (
            Charge(_hashed(kind, *words), pace, tries * pace, forgiven=kind != "client")
            for kind, words in said.items()
            for tries, pace in (_RATES[kind],)
        ),
        key=lambda charge: charge.key,
    )


def attempt(
    collection: Collection, email: str, costs: list[Charge]
) -> Operation[LoginCandidate | None]:
    """Charge a login, and find the account that it is for."""

    def steps() -> Steps[LoginCandidate | None]:
        paid = set((yield from sql.charge([asdict(each) for each in costs])))
        unpaid = [asdict(each) for each in costs if each.key not in paid]
        if unpaid:
            debts = yield from sql.owed(unpaid)
            raise _too_many(max(debt.tat - debt.limit for debt in debts))
        for row in (yield from sql.password(collection=collection, email=email)):
            return LoginCandidate(uuid_from(row.id), row.password)
        return None

    return Operation("attempt_login", steps)


def succeed(
    candidate: LoginCandidate, costs: list[Charge], lifetime: int
) -> Operation[tuple[Account, str]]:
    """Forgive what has failed before, and return a token; unless the password has just changed."""

    def steps() -> Steps[tuple[Account, str]]:
        for row in (yield from sql.account(id=candidate.id, password=candidate.password)):
            yield sql.hold([asdict(each) for each in costs])
            yield sql.forgive([asdict(each) for each in costs if each.forgiven])
            yield sql.refund([asdict(each) for each in costs if not each.forgiven])
            account = account_from(row)
            return account, tokens.signed(account, *(yield from secret_and_now()), lifetime)
        raise refused()

    return Operation("succeed_in_login", steps)


def rehash(candidate: LoginCandidate, password: str) -> Operation[LoginCandidate]:
    """Store the same password under the parameters of today."""

    def steps() -> Steps[Changed[LoginCandidate]]:
        yield from raise_version()
        yield sql.rehash(id=candidate.id, was=candidate.password, password=password)
        return changed(LoginCandidate(candidate.id, password))

    return Operation("rehash_password", steps)


def prune() -> Operation[int]:
    """Forget attempts that are paid for; return how many."""

    def steps() -> Steps[int]:
        return len((yield from sql.prune_attempts(limit=PRUNE_AT_ONCE)))

    return Operation("prune_logins", steps, autocommit=True)


def refused() -> LoginRefused:
    """Return the one refusal, whatever was wrong."""
    return LoginRefused("failed to log in: there is no such account, or the password is another")


def _too_many(owed: int) -> TooManyLogins:
    seconds = max(1, math.ceil(owed / _SECOND))
    return TooManyLogins(f"too many logins have failed: try again in {seconds} s", seconds)


def _hashed(*words: str) -> str:
    text = "\0".join(f"{len(word)}:{word}" for word in words)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
