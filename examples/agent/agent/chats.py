"""The rows of the chats. Towpath keeps its jobs and events in the same database."""

import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from time import time
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

URL: Final = os.environ.get("DATABASE_URL", "sqlite:///agent.db")  # or postgresql://…
FILE: Final = "sqlite:///"


class Connection(Protocol):
    """What a connection of sqlite3 and one of psycopg have in common."""

    def execute(self, query: Any, values: Sequence[Any] = (), /) -> Iterable[Any]: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Turn(NamedTuple):
    """A question, and its answer once that is complete."""

    id: str  # also that of the job, whose stream is the answer while it is written
    question: str
    answer: str | None


def connect() -> Connection:
    if URL.startswith(FILE):
        return sqlite3.connect(URL.removeprefix(FILE), timeout=30)
    import psycopg  # noqa: PLC0415 - a file of SQLite needs nothing

    return psycopg.connect(URL)


@contextmanager
def transaction() -> Generator[Connection]:
    with closing(connect()) as db:  # without a commit, the close rolls back
        yield db
        db.commit()


def run(db: Connection, statement: str, *values: Any) -> Iterable[Any]:
    """Run a statement, in which `?` stands for a value on both databases."""
    return db.execute(statement if URL.startswith(FILE) else statement.replace("?", "%s"), values)


def prepare() -> None:
    with transaction() as db:
        run(
            db,
            """create table if not exists turn (
                id text primary key, chat text not null, asked_at double precision not null,
                question text not null, answer text)""",
        )
        run(db, "create index if not exists turns_of_a_chat on turn (chat, asked_at)")


def turns(chat: str) -> list[Turn]:
    """Return what was asked in a chat, oldest first."""
    chosen = "select id, question, answer from turn where chat = ? order by asked_at, id"
    with closing(connect()) as db:
        return [Turn(*row) for row in run(db, chosen, chat)]


def add(db: Connection, chat: str, turn: UUID, question: str) -> None:
    """Add a question; one that is sent again is there already."""
    adding = (
        "insert into turn (id, chat, asked_at, question) values (?, ?, ?, ?) on conflict do nothing"
    )
    run(db, adding, str(turn), chat, time(), question)


def keep(db: Connection, turn: str, answer: str) -> None:
    run(db, "update turn set answer = ? where id = ?", answer, turn)
