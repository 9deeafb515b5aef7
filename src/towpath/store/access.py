"""Access: its rules, the secret of the tokens, and the version that tells caches to look again."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from towpath.errors import IncompatibleData
from towpath.model.access import Access
from towpath.operation import Mode, Operation, Steps
from towpath.statement import load

sql: Final = load(__name__)

WAKEUP: Final = "@access"
"""What rings when the version has grown: no topic can have this name."""


def wakes(_: object) -> list[str]:
    """Name what an operation that raises the version wakes."""
    return [WAKEUP]


def raise_version() -> Steps[None]:
    """Have every cache look again. Said first, it also makes changes take turns."""
    yield sql["raise_version"](secret=_new_secret())


def known_secret() -> Steps[tuple[str, int] | None]:
    """Read the secret of our tokens, if there is one yet, and the time."""
    for secret, now in (yield sql["secret"]()):
        return str(secret), int(now)
    return None


def secret_and_now() -> Steps[tuple[str, int]]:
    """Read the secret of our tokens, which is made once, and the time."""
    found = yield from known_secret()
    while found is None:
        yield sql["begin"](secret=_new_secret())
        found = yield from known_secret()
    return found


def version() -> Operation[int]:
    """Read the version."""

    def steps() -> Steps[int]:
        rows = yield sql["version"]()
        return int(rows[0][0]) if rows else 0

    return Operation("access_version", steps, Mode.READ, autocommit=True)


def get() -> Operation[Access]:
    """Read the rules."""
    return Operation("get_access", _get, Mode.READ, autocommit=True)


def change(changed: Callable[[Access], Access]) -> Operation[Access]:
    """Change the rules; nobody else does at the same time."""

    def steps() -> Steps[Access]:
        yield from raise_version()
        found = changed((yield from _get()))
        stored: dict[str, Any] = asdict(found)
        del stored["version"]
        yield sql["change"](settings=msgspec.json.encode(stored).decode())
        return found

    return Operation("set_access", steps, wakes=wakes)


def _get() -> Steps[Access]:
    rows = yield sql["get"]()
    if not rows:
        return Access()
    [[settings, version]] = rows
    try:
        return replace(msgspec.json.decode(settings, type=Access), version=int(version))
    except msgspec.DecodeError as error:
        msg = f"the rules of access cannot be read: {error}"
        raise IncompatibleData(msg) from error


def _new_secret() -> str:
    return secrets.token_urlsafe(32)
