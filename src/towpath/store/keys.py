"""API keys: create, verify, list, revoke."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import InvalidToken, NotFound
from towpath.model.instants import as_datetime
from towpath.model.keys import ApiKey, KeyScope
from towpath.operation import Mode, Operation, Rerun, Row, Steps
from towpath.statement import load
from towpath.store.access import raise_version, wakes
from towpath.store.rows import uuid_from

sql: Final = load(__name__)

USED_EVERY: Final = 60 * 10**6  # microseconds between two notes of a key's use


class NewKey(Struct, frozen=True, kw_only=True):
    """A key to store."""

    id: UUID
    name: str
    prefix: str
    hash: str
    scopes: tuple[KeyScope, ...]
    topics: tuple[str, ...]
    lifetime: int | None


def create(new: NewKey) -> Operation[ApiKey]:
    """Store a key."""

    def steps() -> Steps[ApiKey]:
        yield from raise_version()
        yield sql["create"](**msgspec.structs.asdict(new))
        [row] = yield sql["get"](id=new.id)
        return _key(row)

    return Operation("create_key", steps, wakes=wakes, retry=Rerun.NEVER)


def verify(hash: str) -> Operation[ApiKey]:
    """Read the key with this hash, unless it has expired."""

    def steps() -> Steps[ApiKey]:
        for row in (yield sql["verify"](hash=hash)):
            return _key(row)
        msg = "the API key is not valid: it is unknown, revoked or expired"
        raise InvalidToken(msg)

    return Operation("verify_key", steps, Mode.READ, autocommit=True)


def list_keys() -> Operation[list[ApiKey]]:
    """Read every key, the oldest first."""

    def steps() -> Steps[list[ApiKey]]:
        return [_key(row) for row in (yield sql["list"]())]

    return Operation("list_keys", steps, Mode.SCAN, autocommit=True)


def revoke(id: UUID) -> Operation[None]:
    """Forget a key: whoever presents it is refused."""

    def steps() -> Steps[None]:
        yield from raise_version()
        if not (yield sql["revoke"](id=id)):
            msg = f"there is no API key {id}"
            raise NotFound(msg)

    def again() -> Steps[None]:
        yield from raise_version()
        yield sql["revoke"](id=id)

    return Operation("revoke_key", steps, wakes=wakes, retry=again)


def used(ids: Sequence[UUID]) -> Operation[None]:
    """Note that keys were used, of each at most once a minute.

    The version stays: nobody's rights have changed.
    """

    def steps() -> Steps[None]:
        yield sql["used"]([{"id": id} for id in sorted(ids)], rest=USED_EVERY)

    return Operation("used_keys", steps)


def _key(row: Row) -> ApiKey:
    id, name, prefix, scopes, topics, created_at, expires_at, used_at = row
    return ApiKey(
        id=str(uuid_from(id)),
        name=name,
        prefix=prefix,
        scopes=msgspec.json.decode(scopes, type=tuple[KeyScope, ...]),
        topics=msgspec.json.decode(topics, type=tuple[str, ...]),
        created_at=as_datetime(created_at),
        expires_at=None if expires_at is None else as_datetime(expires_at),
        last_used_at=None if used_at is None else as_datetime(used_at),
    )
