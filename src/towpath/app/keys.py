"""The verbs of API keys."""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from towpath.errors import InvalidToken, NotFound
from towpath.model.accounts import name_of
from towpath.model.channels import checked_channel
from towpath.model.ids import uuid7
from towpath.model.instants import Duration, microseconds
from towpath.model.keys import MOST_SECRET, SHOWN, ApiKey, hashed, new_secret, scopes_of
from towpath.model.topics import checked
from towpath.store import keys
from towpath.store.keys import NewKey

if TYPE_CHECKING:
    from towpath.app.app import App


class Keys:
    """API keys for programs: each has scopes, and may be bound to topics."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def acreate(
        self,
        name: str,
        *,
        scopes: Iterable[str],
        topics: Iterable[str] = (),
        channels: Iterable[str] = (),
        expires_in: Duration | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key. Only this call returns its secret.

        The scopes are enqueue, manage, work, publish, subscribe, webhooks and metrics. Without
        topics the key is for all topics, without channels for all channels; a channel is given by
        its name or by how its name begins.
        """
        secret = new_secret()
        new = _new(
            name, secret, scopes=scopes, topics=topics, channels=channels, expires_in=expires_in
        )
        return await self._app.arun(keys.create(new)), secret

    async def averify(self, secret: str) -> ApiKey:
        """Return the key of a secret; InvalidToken if it is unknown, revoked or expired."""
        return await self._app.arun(keys.verify(_hash(secret)))

    async def aused(self, ids: Iterable[str]) -> None:
        """Record that keys were used, each at most once a minute."""
        await self._app.arun(keys.used([_id(id) for id in ids]))

    async def arevoke(self, id: str) -> None:
        """Revoke a key; it stops working at once."""
        await self._app.arun(keys.revoke(_id(id)))

    async def alist(self) -> list[ApiKey]:
        """Read every key, the oldest first."""
        return await self._app.arun(keys.list_keys())

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def create(
        self,
        name: str,
        *,
        scopes: Iterable[str],
        topics: Iterable[str] = (),
        channels: Iterable[str] = (),
        expires_in: Duration | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key. Only this call returns its secret.

        The scopes are enqueue, manage, work, publish, subscribe, webhooks and metrics. Without
        topics the key is for all topics, without channels for all channels; a channel is given by
        its name or by how its name begins.
        """
        secret = new_secret()
        new = _new(
            name, secret, scopes=scopes, topics=topics, channels=channels, expires_in=expires_in
        )
        return (self._app.run(keys.create(new)), secret)

    def verify(self, secret: str) -> ApiKey:
        """Return the key of a secret; InvalidToken if it is unknown, revoked or expired."""
        return self._app.run(keys.verify(_hash(secret)))

    def used(self, ids: Iterable[str]) -> None:
        """Record that keys were used, each at most once a minute."""
        self._app.run(keys.used([_id(id) for id in ids]))

    def revoke(self, id: str) -> None:
        """Revoke a key; it stops working at once."""
        self._app.run(keys.revoke(_id(id)))

    def list(self) -> list[ApiKey]:
        """Read every key, the oldest first."""
        return self._app.run(keys.list_keys())


def _new(
    name: str,
    secret: str,
    *,
    scopes: Iterable[str],
    topics: Iterable[str],
    channels: Iterable[str],
    expires_in: Duration | None,
) -> NewKey:
    topics = (topics,) if isinstance(topics, str) else topics
    channels = (channels,) if isinstance(channels, str) else channels
    return NewKey(
        id=uuid7(),
        name=name_of(name),
        prefix=secret[:SHOWN],
        hash=hashed(secret),
        scopes=scopes_of(scopes),
        topics=tuple(dict.fromkeys(checked(topic) for topic in topics)),
        channels=tuple(dict.fromkeys(checked_channel(channel) for channel in channels)),
        lifetime=None if expires_in is None else microseconds(expires_in, "expires_in"),
    )


def _hash(secret: str) -> str:
    if not isinstance(secret, str) or len(secret) > MOST_SECRET:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"the API key is not valid: it must be text of at most {MOST_SECRET} characters"
        raise InvalidToken(msg)
    return hashed(secret)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except (ValueError, AttributeError, TypeError):
        msg = f"there is no API key {str(text)[:100]!r}; use an id that `towpath keys` lists"
        raise NotFound(msg) from None
