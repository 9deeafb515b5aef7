"""Publishers: on our own connections, and in transactions of their own by each kind of driver.

Django is set up only in a process of its own, as others of this suite set it up differently.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from threading import Thread
from typing import Any, NamedTuple

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests.faults.chance import dice
from towpath import App, NewEvent

CHANNELS = ("a", "b", "c")


class Sent(NamedTuple):
    """What one call or one transaction publishes: the same payload in all of its channels."""

    channels: Sequence[str]
    payload: list[int]  # writer, number
    commits: bool = True
    pause: float = 0.0  # before the end of the transaction
    rest: float = 0.0  # after it: on SQLite others can write only then


def transactions(writer: int, number: int, channels: Sequence[str]) -> Iterator[Sent]:
    """Return what a caller publishes: to 1 to 3 channels in any order, and a fifth rolled back."""
    chance = dice(writer)
    for n in range(number):
        some = chance.sample(channels, chance.randint(1, 3))
        commits, pause = chance.random() > 0.2, chance.random() / 50
        yield Sent(some, [writer, n], commits, pause, rest=10 * pause)


def calls(writer: int, number: int, channels: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Return what a writer of ours publishes."""
    chance: Random = dice(writer)
    for n in range(number):
        yield chance.choice(channels), [writer, n]


class Blocking:
    """A caller with a connection that commits and rolls back by itself."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def publish(self, app: App, sent: Sent) -> None:
        for channel in sent.channels:
            app.events.publish(channel, sent.payload, connection=self.connection)
        time.sleep(sent.pause)
        if sent.commits:
            self.connection.commit()
        else:
            self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


def by_driver(url: str) -> Blocking:
    """Connect with psycopg, or with the standard library."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return Blocking(sqlite3.connect(path, check_same_thread=False, timeout=60))
    return Blocking(psycopg.connect(url))


def by_sqlalchemy(url: str) -> Blocking:
    options = {"timeout": 60} if url.startswith("sqlite") else {}
    through = url.replace("postgresql:", "postgresql+psycopg:")
    return Blocking(
        sqlalchemy.create_engine(through, poolclass=NullPool, connect_args=options).connect()
    )


class Async:
    """A caller in an event loop: asyncpg, or SQLAlchemy with aiosqlite."""

    async def open(self, url: str) -> None:
        self.connection: Any
        if url.startswith("sqlite"):
            through = url.replace("sqlite:", "sqlite+aiosqlite:")
            engine = create_async_engine(through, poolclass=NullPool, connect_args={"timeout": 60})
            self.connection = await engine.connect()
        else:
            self.connection = await asyncpg.connect(url)

    async def publish(self, app: App, sent: Sent) -> None:
        is_asyncpg = isinstance(self.connection, asyncpg.Connection)
        begun = self.connection.transaction() if is_asyncpg else self.connection.begin()
        await begun.start()
        for channel in sent.channels:
            await app.events.apublish(channel, sent.payload, connection=self.connection)
        await asyncio.sleep(sent.pause)
        await (begun.commit() if sent.commits else begun.rollback())

    async def close(self) -> None:
        await self.connection.close()


class ByDjango:
    """A caller with a connection of Django."""

    def __init__(self, url: str) -> None:
        from django.db import connections, transaction  # noqa: PLC0415 - only where it is used

        from tests.integrations.conftest import as_django_says  # noqa: PLC0415 - sets Django up

        given = as_django_says(url)
        if url.startswith("sqlite"):
            given["OPTIONS"] = {"timeout": 60}
        connections.settings = connections.configure_settings({"default": given})
        self._connection = connections["default"]
        self._transaction = transaction

    def publish(self, app: App, sent: Sent) -> None:
        with self._transaction.atomic():
            for channel in sent.channels:
                app.events.publish(channel, sent.payload, connection=self._connection)
            time.sleep(sent.pause)
            self._transaction.set_rollback(not sent.commits)


def publish_for_good(app: App, tell: Callable[..., None], writers: list[int]) -> None:
    """Publish until killed: by our own connection, and by Django's; tell what is committed."""
    own, django = writers
    app.migrate()
    caller = ByDjango(app.url)

    def call() -> None:
        for channel, payload in calls(own, 10**6, CHANNELS):
            app.events.publish_many(channel, [NewEvent(payload)])
            tell(channel, *payload)

    Thread(target=call, daemon=True).start()
    for sent in transactions(django, 10**6, CHANNELS):
        caller.publish(app, sent)
        if sent.commits:
            for channel in sent.channels:
                tell(channel, *sent.payload)
        time.sleep(sent.rest)
