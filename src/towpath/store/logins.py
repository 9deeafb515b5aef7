"""Logins: charged before the password is looked at, so that who guesses must wait.

Three accounts are kept of failures: of an e-mail address from one client, which is tight; of one
client; and of an e-mail address from anywhere, which is so loose that a stranger alone does not
lock its owner out.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict

from towpath.errors import LoginRefused, TooManyLogins
from towpath.model import tokens
from towpath.model.accounts import Account, Collection
from towpath.operation import Operation, Steps
from towpath.statement import load
from towpath.store.access import raise_version, secret_and_now, wakes
from towpath.store.accounts import account_from
from towpath.store.rows import uuid_from

sql: Final = load(__name__)

PRUNE_AT_ONCE: Final = 1_000

_SECOND: Final = 10**6
_RATES: Final = {  # tries at once, and the microseconds after which there is one more
    "e-mail and client": (5, 12 * _SECOND),
    "client": (30, 2 * _SECOND),
    "e-mail": (100, _SECOND),
}


class Charge(Struct, frozen=True):
    """What a login costs under one key."""

    key: str
    pace: int
    room: int
    forgiven: bool  # by a success; else only what that one has cost is given back


class Candidate(Struct, frozen=True):
    """The account that somebody wants to log in to."""

    id: UUID
    password: str  # its hash


def charges(collection: Collection, email: str, client: str) -> list[Charge]:
    """Return what a login costs; keys are hashed, for anybody may say anything."""
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


def attempt(collection: Collection, email: str, costs: list[Charge]) -> Operation[Candidate | None]:
    """Pay for a login, and find whose it would be."""

    def steps() -> Steps[Candidate | None]:
        paid = {key for (key,) in (yield sql["charge"]([asdict(each) for each in costs]))}
        unpaid = [asdict(each) for each in costs if each.key not in paid]
        if unpaid:
            rows = yield sql["owed"](unpaid)
            raise _too_many(max(tat - limit for limit, tat in rows))
        for id, password in (yield sql["password"](collection=collection, email=email)):
            return Candidate(uuid_from(id), password)
        return None

    return Operation("attempt_login", steps)


def succeed(who: Candidate, costs: list[Charge], lifetime: int) -> Operation[tuple[Account, str]]:
    """Forgive what has failed before, and return a token; unless the password has just changed."""

    def steps() -> Steps[tuple[Account, str]]:
        for row in (yield sql["account"](id=who.id, password=who.password)):
            yield sql["hold"]([asdict(each) for each in costs])
            yield sql["forgive"]([asdict(each) for each in costs if each.forgiven])
            yield sql["refund"]([asdict(each) for each in costs if not each.forgiven])
            account = account_from(row)
            return account, tokens.signed(account, *(yield from secret_and_now()), lifetime)
        raise refused()

    return Operation("succeed_in_login", steps)


def rehash(who: Candidate, password: str) -> Operation[Candidate]:
    """Store the same password under the parameters of today."""

    def steps() -> Steps[Candidate]:
        yield from raise_version()
        yield sql["rehash"](id=who.id, was=who.password, password=password)
        return Candidate(who.id, password)

    return Operation("rehash_password", steps, wakes=wakes)


def prune() -> Operation[int]:
    """Forget attempts that are paid for; return how many."""

    def steps() -> Steps[int]:
        return len((yield sql["prune_attempts"](limit=PRUNE_AT_ONCE)))

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
