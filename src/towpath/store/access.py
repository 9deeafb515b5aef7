"""Access: its rules, the secret of the tokens, and the version that tells caches to look again."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from towpath.errors import IncompatibleData
from towpath.model.access import Access
from towpath.operation import Changed, Mode, Operation, Steps, Wakeup
from towpath.statement import Statements, no_rows, rows

T = TypeVar("T")

WAKEUP: Final = Wakeup("access")
"""Rings when the version has grown."""


class Secret(NamedTuple):
    """The secret of our tokens, and the time at which it was read."""

    secret: str
    now: int


class AccessRow(NamedTuple):
    """The rules as they are stored."""

    settings: str
    version: int


class sql(Statements):
    """The statements of access.sql."""

    raise_version = no_rows()
    begin = no_rows()
    secret = rows(Secret)
    version = rows(int)
    get = rows(AccessRow)
    change = no_rows()


def changed(value: T) -> Changed[T]:
    """Return the result of an operation that has raised the version."""
    return Changed(value, others=[WAKEUP])


def raise_version() -> Steps[None]:
    """Have every cache look again. As the first statement, it also makes changes take turns."""
    yield sql.raise_version(secret=_new_secret())


def known_secret() -> Steps[Secret | None]:
    """Read the secret of our tokens, if there is one yet, and the time."""
    found = yield from sql.secret()
    return found[0] if found else None


def secret_and_now() -> Steps[Secret]:
    """Read the secret of our tokens, which is made once, and the time."""
    found = yield from known_secret()
    while found is None:
        yield sql.begin(secret=_new_secret())
        found = yield from known_secret()
    return found


def version() -> Operation[int]:
    """Read the version."""

    def steps() -> Steps[int]:
        found = yield from sql.version()
        return found[0] if found else 0

    return Operation("access_version", steps, Mode.READ, autocommit=True)


def get() -> Operation[Access]:
    """Read the rules."""
    return Operation("get_access", _get, Mode.READ, autocommit=True)


def change(new: Callable[[Access], Access]) -> Operation[Access]:
    """Change the rules; changes take turns."""

    def steps() -> Steps[Changed[Access]]:
        yield from raise_version()
        access = new((yield from _get()))
        stored: dict[str, Any] = asdict(access)
        del stored["version"]
        yield sql.change(settings=msgspec.json.encode(stored).decode())
        return changed(access)

    return Operation("set_access", steps)


def _get() -> Steps[Access]:
    found = yield from sql.get()
    if not found:
        return Access()
    [row] = found
    try:
        return replace(msgspec.json.decode(row.settings, type=Access), version=row.version)
    except msgspec.DecodeError as error:
        msg = f"the rules of access cannot be read: {error}"
        raise IncompatibleData(msg) from error


def _new_secret() -> str:
    return secrets.token_urlsafe(32)
