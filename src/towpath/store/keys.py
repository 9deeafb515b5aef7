"""API keys: create, verify, list, revoke."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import InvalidToken, NotFound
from towpath.model.instants import as_datetime
from towpath.model.keys import ApiKey, KeyScope
from towpath.operation import Changed, Mode, Operation, Rerun, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store.access import changed, raise_version
from towpath.store.rows import uuid_from

USED_EVERY: Final = 60 * 10**6  # microseconds between two notes of a key's use


class KeyRow(NamedTuple):
    """A key as it is stored, but for its hash."""

    id: UUID | bytes | str
    name: str
    prefix: str
    scopes: str
    topics: str
    channels: str
    created_at: int
    expires_at: int | None
    used_at: int | None


class sql(Statements):
    """The statements of keys.sql."""

    create = no_rows()
    get = rows(KeyRow)
    verify = rows(KeyRow)
    list = rows(KeyRow)
    revoke = rows(UUID)
    used = no_rows()


class NewKey(Struct, frozen=True, kw_only=True):
    """A key to store."""

    id: UUID
    name: str
    prefix: str
    hash: str
    scopes: tuple[KeyScope, ...]
    topics: tuple[str, ...]
    channels: tuple[str, ...]
    lifetime: int | None


def create(new: NewKey) -> Operation[ApiKey]:
    """Store a key."""

    def steps() -> Steps[Changed[ApiKey]]:
        yield from raise_version()
        yield sql.create(**msgspec.structs.asdict(new))
        [row] = yield from sql.get(id=new.id)
        return changed(_key(row))

    return Operation("create_key", steps, retry=Rerun.NEVER)


def verify(hash: str) -> Operation[ApiKey]:
    """Read the key with this hash, unless it has expired."""

    def steps() -> Steps[ApiKey]:
        for row in (yield from sql.verify(hash=hash)):
            return _key(row)
        msg = "the API key is not valid: it is unknown, revoked or expired"
        raise InvalidToken(msg)

    return Operation("verify_key", steps, Mode.READ, autocommit=True)


def list_keys() -> Operation[list[ApiKey]]:
    """Read every key, the oldest first."""

    def steps() -> Steps[list[ApiKey]]:
        return [_key(row) for row in (yield from sql.list())]

    return Operation("list_keys", steps, Mode.SCAN, autocommit=True)


def revoke(id: UUID) -> Operation[None]:
    """Forget a key: a request that presents it is refused."""

    def steps() -> Steps[Changed[None]]:
        yield from raise_version()
        if not (yield from sql.revoke(id=id)):
            msg = f"there is no API key {id}"
            raise NotFound(msg)
        return changed(None)

    def again() -> Steps[Changed[None]]:
        yield from raise_version()
        yield sql.revoke(id=id)
        return changed(None)

    return Operation("revoke_key", steps, retry=again)


def used(ids: Sequence[UUID]) -> Operation[None]:
    """Note that keys were used, of each at most once a minute.

    The version stays, since no right changes.
    """

    def steps() -> Steps[None]:
        yield sql.used([{"id": id} for id in sorted(ids)], rest=USED_EVERY)

    return Operation("used_keys", steps)


def _key(row: KeyRow) -> ApiKey:
    return ApiKey(
        id=str(uuid_from(row.id)),
        name=row.name,
        prefix=row.prefix,
        scopes=msgspec.json.decode(row.scopes, type=tuple[KeyScope, ...]),
        topics=msgspec.json.decode(row.topics, type=tuple[str, ...]),
        channels=msgspec.json.decode(row.channels, type=tuple[str, ...]),
        created_at=as_datetime(row.created_at),
        expires_at=None if row.expires_at is None else as_datetime(row.expires_at),
        last_used_at=None if row.used_at is None else as_datetime(row.used_at),
    )
