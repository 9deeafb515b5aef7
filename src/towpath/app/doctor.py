"""What is wrong with a database, and with how its jobs are served. Looking changes nothing."""

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from towpath.app.connect import Database, sqlite_path, without_password
from towpath.database.clock import machine_clock
from towpath.database.sqlite import lockable, may
from towpath.database.turns import lock_file
from towpath.errors import TowpathError
from towpath.model.instants import as_timedelta, spoken
from towpath.model.sessions import Session
from towpath.model.stats import TopicStats
from towpath.operation import Operation
from towpath.settings import Settings
from towpath.store import doctor as asked
from towpath.store import retention, schema, sessions, stats
from towpath.store.doctor import Late, Transaction

T = TypeVar("T")

OLDEST: Final = {"postgres": (14,), "sqlite": (3, 35)}  # versions that work
SKEW: Final = 2_000_000  # microseconds between two clocks that are worth a word
LOCK_PATIENCE: Final = 1.0  # seconds in which a write lock should be had
LITTLE_DISK: Final = 2**30  # bytes
NO_DISK: Final = 100 * 2**20
NAMED: Final = 3  # of many, the others are counted
DURABLE: Final = {"on", "local", "remote_write", "remote_apply"}


class Verdict(StrEnum):
    """How something is."""

    OK = "ok"
    WARNING = "warning"  # it works, and may not for long or not as promised
    PROBLEM = "problem"  # it does not work


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    message: str
    advice: str | None = None  # what to do about it


class Doctor:
    """Looks at a database, in an order in which each check may rely on those before."""

    def __init__(self, database: Database, url: str, settings: Settings, patience: int) -> None:
        self._database = database
        self._url = url
        self._file = sqlite_path(url) if database.dialect == "sqlite" else None
        self._settings = settings
        self._patience = patience
        self._now = 0  # the database's clock

    def checks(self) -> Iterator[Check]:
        """Look at everything; what cannot be looked at is a problem."""
        found = list(self._tried("database", self._server))
        yield from found
        if any(check.verdict is Verdict.PROBLEM for check in found):
            return
        yield from self._tried("clock", self._clock)
        yield from self._tried("transactions", self._transactions)
        if self._file:
            yield from self._tried("disk", lambda: self._disk(self._file or Path()))
        found = list(self._tried("schema", self._schema))
        yield from found
        if any(check.verdict is Verdict.PROBLEM for check in found):
            return
        yield from self._tried("rights", self._rights)
        yield from self._tried("workers", self._workers)
        yield from self._tried("upkeep", self._upkeep)

    def _tried(self, name: str, look: Callable[[], Iterable[Check]]) -> Iterator[Check]:
        try:
            yield from look()
        except (TowpathError, OSError) as error:
            yield problem(name, " ".join(str(error).split()))

    def _ask(self, operation: Operation[T]) -> T:
        return self._database.run(operation)

    # ------------------------------------------------------------ the database itself

    def _server(self) -> Iterator[Check]:
        server = self._ask(asked.server())
        postgres = self._database.dialect == "postgres"
        kind = "PostgreSQL" if postgres else "SQLite"
        oldest = OLDEST["postgres" if postgres else "sqlite"]
        said = f"{without_password(self._url)}, {kind} {server.version}"
        if tuple(map(int, re.findall(r"\d+", server.version))) < oldest:
            wanted = ".".join(map(str, oldest))
            yield problem("database", f"{said} is too old", f"upgrade it to {wanted} or newer")
        elif server.standby:
            yield problem("database", f"{said}, a standby", "connect to the primary")
        else:
            yield ok("database", said)
        yield self._durability(server, postgres=postgres)

    def _durability(self, server: asked.DatabaseFacts, *, postgres: bool) -> Check:
        lossy = "a power failure may take the last commits"
        if postgres and server.log != "on":
            risk = "a power failure may destroy the database: fsync is off"
            return warning("durability", risk, "set fsync = on")
        if postgres and server.commits not in DURABLE:
            risk = f"{lossy}: synchronous_commit is {server.commits}"
            return warning("durability", risk, "set synchronous_commit = on for this role")
        if self._file and server.log != "wal":
            risk = f"readers and writers wait for each other: journal_mode is {server.log}"
            return warning("durability", risk, "move the file to a local disk")
        if self._file and server.commits != "full":
            return warning("durability", f"{lossy}: durability is normal", "set durability = full")
        if not postgres and not self._file:
            return warning("durability", "everything is lost with the process", "name a file")
        return ok("durability", "what is committed with these settings survives a power failure")

    def _clock(self) -> Iterator[Check]:
        before = machine_clock()
        self._now = self._ask(retention.clock())
        # By so much at least, wherever in the meantime the database has looked at its clock.
        skew = max(before - self._now, self._now - machine_clock(), 0)
        if skew < SKEW:
            yield ok("clock", "the database and this machine agree")
            return
        way = "behind" if self._now < before else "ahead of"
        said = f"the database's clock is {spoken(as_timedelta(skew))} {way} this machine's"
        yield warning("clock", said, "jobs go by the database's: set both by NTP")

    def _transactions(self) -> Iterator[Check]:
        if self._file:
            if lockable(self._file, LOCK_PATIENCE):
                yield ok("transactions", "a write lock was had within a second")
            else:
                said = "another process holds the write lock, and no other process can write"
                advice = (
                    f"end its transaction, or it: `lsof {self._file} {self._file}-turn` shows it"
                )
                yield problem("transactions", said, advice)
            return
        found = self._ask(asked.transactions(self._patience))
        hidden = sum(each.state is None for each in found)
        for each in [each for each in found if each.state][:NAMED]:
            yield _old(each)
        if not any(each.state for each in found):
            yield ok("transactions", f"none is open for {self._waited}")
        if hidden:
            said = f"{hidden} connections of other roles cannot be looked at"
            yield warning("transactions", said, "grant pg_read_all_stats to this role")

    def _disk(self, file: Path) -> Iterator[Check]:
        free = shutil.disk_usage(file.parent).free
        said = f"{free / 2**30:.1f} GiB are free"
        if free < NO_DISK:
            yield problem("disk", said, "free some space: soon nothing can be stored")
        elif free < LITTLE_DISK:
            yield warning("disk", said, "free some space")
        else:
            yield ok("disk", said)

    # ------------------------------------------------------------ our tables

    def _schema(self) -> Iterator[Check]:
        found = self._ask(schema.applied())
        if found is None:
            yield problem("schema", "our tables are not there", "run `towpath migrate`")
        elif found.oldest > schema.VERSION:
            said = f"version {found.version} needs code of {found.oldest}; this is {schema.VERSION}"
            yield problem("schema", said, "upgrade this Towpath")
        elif found.version < schema.VERSION:
            said = f"version {found.version}; this Towpath knows {schema.VERSION}"
            yield problem("schema", said, "run `towpath migrate`")
        else:
            newer = " and can still be used by this Towpath"
            said = f"version {found.version}"
            yield ok("schema", said + newer * (found.version > schema.VERSION))

    def _rights(self) -> Iterator[Check]:
        files = (*self._files(), self._file.parent, lock_file(self._file)) if self._file else ()
        if closed := [str(file) for file in files if file.exists() and not may(file, os.W_OK)]:
            said = f"this user may not write {some(closed)}"
            yield problem("rights", said, "run it as their owner, or change their rights")
        elif denied := self._ask(asked.denied_tables()):
            said = f"this role may not read and write {some(denied)}"
            yield problem("rights", said, "grant select, insert, update, delete on them")
        elif shown := [str(file) for file in self._files() if file.stat().st_mode & stat.S_IROTH]:
            said = (
                f"every user of this machine may read password hashes and payloads in {some(shown)}"
            )
            yield warning("rights", said, f"run `chmod o-rwx {' '.join(shown)}`")
        else:
            yield ok("rights", "every table may be read and written")

    def _files(self) -> list[Path]:
        """Return the files of SQLite that hold data."""
        if not self._file:
            return []
        real = self._file.resolve()  # its log lies beside it, not beside a link to it
        files = [Path(f"{real}{end}") for end in ("", "-wal", "-shm")]
        return [file for file in files if file.exists()]

    # ------------------------------------------------------------ how jobs are served

    def _workers(self) -> Iterator[Check]:
        everybody = self._ask(sessions.list_sessions())
        live = [each for each in everybody if not self._is_silent(each)]
        served = {topic for each in live for topic in each.topics}
        late = [
            each
            for each in self._ask(stats.by_topic())
            if not each.paused and self._wait_of(each) > self._patience
        ]
        # Somebody without a session may serve it too: then it holds a lease now and then.
        idle = [each for each in late if each.topic not in served and not each.reserved]
        behind = [each for each in late if each not in idle]
        if idle:
            said = f"nobody works on {some(map(self._said_of, idle))}"
            yield problem("workers", said, "start a worker for it, or pause it")
        if behind:
            said = f"workers fall behind on {some(map(self._said_of, behind))}"
            yield warning("workers", said, "start more, or raise their concurrency")
        if not late:
            yield ok("workers", f"{len(live)} live, no ready job waits for {self._waited}")

    def _upkeep(self) -> Iterator[Check]:
        advice = "start a worker, or call app.upkeep.start() in a process that stays"
        overdue = self._ask(asked.overdue(self._patience))
        ended = self._ask(asked.ended_leases(self._patience))
        unfired = self._ask(asked.late_schedules(self._patience))
        silent = [each for each in self._ask(sessions.list_sessions()) if self._is_silent(each)]
        if overdue:
            yield problem("upkeep", f"due and not made ready: {some(map(_late, overdue))}", advice)
        if ended:
            yield problem("upkeep", f"leases not taken back: {some(map(_late, ended))}", advice)
        if unfired:
            which = (f"{each.topic} (late by {spoken(each.by)})" for each in unfired)
            yield problem("upkeep", f"schedules that did not fire: {some(which)}", advice)
        if silent:
            names = (f"{each.worker} ({spoken(each.silent)})" for each in silent)
            yield problem("upkeep", f"silent workers not called dead: {some(names)}", advice)
        if not (overdue or ended or unfired or silent):
            yield ok("upkeep", "what is due is done in time")

    def _is_silent(self, session: Session) -> bool:
        # Upkeep needs a while to see that a session is silent, so not at once.
        allowed = self._settings.dead_after + self._patience / 1e6
        return session.silent.total_seconds() > allowed

    def _wait_of(self, topic: TopicStats) -> int:
        return self._now - int(topic.oldest_at.timestamp() * 1e6) if topic.oldest_at else 0

    def _said_of(self, topic: TopicStats) -> str:
        waits = spoken(as_timedelta(self._wait_of(topic)))
        return f"{topic.topic} ({topic.ready} ready, the oldest for {waits})"

    @property
    def _waited(self) -> str:
        return f"longer than {spoken(as_timedelta(self._patience))}"


def ok(name: str, message: str) -> Check:
    """Return that something is well."""
    return Check(name=name, verdict=Verdict.OK, message=message)


def warning(name: str, message: str, advice: str) -> Check:
    """Return that something may not go well for long, or not as promised."""
    return Check(name=name, verdict=Verdict.WARNING, message=message, advice=advice)


def problem(name: str, message: str, advice: str | None = None) -> Check:
    """Return that something does not work; an error brings its own advice."""
    return Check(name=name, verdict=Verdict.PROBLEM, message=message, advice=advice)


def some(things: Iterable[str]) -> str:
    """Name the first few."""
    names = list(things)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _old(transaction: Transaction) -> Check:
    age = spoken(transaction.age) if transaction.age else "?"
    if transaction.pid is None:
        said = f"{transaction.application!r} is prepared for {age} and not committed"
        return warning("transactions", said, "commit prepared or rollback prepared it")
    who = f"{transaction.user}, {transaction.application or 'no application_name'}"
    said = f"open for {age}: process {transaction.pid} ({who}), {transaction.state}"
    query = " ".join((transaction.query or "").split())
    return warning(
        "transactions",
        f"{said}: {query}",
        f"end it, or `select pg_terminate_backend({transaction.pid})`: reserving slows down",
    )


def _late(late: Late) -> str:
    return f"{late.topic} ({late.jobs}, by {spoken(late.by)})"
