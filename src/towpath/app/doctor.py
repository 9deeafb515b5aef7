"""Checks of a database, of its workers and upkeep, and of its channels. They change nothing."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from towpath.app.checkup import (
    NAMED,
    Check,
    Verdict,
    ok,
    problem,
    remedies_for,
    some,
    warning,
)
from towpath.app.connect import Database, sqlite_path, without_password
from towpath.app.upkeep import PRUNE_EVERY
from towpath.app.webhook_doctor import WebhookDoctor
from towpath.database.clock import machine_clock
from towpath.database.sqlite import lockable, may
from towpath.database.turns import lock_file
from towpath.errors import TowpathError
from towpath.model.instants import as_timedelta, spoken
from towpath.model.sessions import Session
from towpath.model.stats import TopicStats
from towpath.operation import Operation
from towpath.settings import Settings
from towpath.store import doctor as facts
from towpath.store import retention, schema, sessions, stats, webhook_facts
from towpath.store.doctor import Late, PutOff, Transaction, Troubled
from towpath.store.subscriptions import ROUTER
from towpath.store.trimming import Kept

T = TypeVar("T")

OLDEST: Final = {"postgres": (14,), "sqlite": (3, 35)}  # versions that work
SKEW: Final = 2_000_000  # microseconds between two clocks that are reported
LOCK_PATIENCE: Final = 1.0  # seconds to wait for a write lock
LITTLE_DISK: Final = 2**30  # bytes
NO_DISK: Final = 100 * 2**20
MOST_COUNTED: Final = 100_000  # jobs of each state
MOST_LATE: Final = 1_000  # jobs of a topic that are counted
LOOKED_AT: Final = 100  # topics, and jobs of each line of a topic
START_UPKEEP: Final = "start a worker, or call app.upkeep.start() in a long-running process"
DURABLE: Final = {"on", "local", "remote_write", "remote_apply"}


class Doctor:
    """Checks a database; each check may rely on those before it."""

    def __init__(self, database: Database, url: str, settings: Settings, patience: int) -> None:
        self._database = database
        self._url = url
        self._file = sqlite_path(url) if database.dialect == "sqlite" else None
        self._settings = settings
        self._patience = patience
        self._now = 0  # the database's clock

    def checks(self) -> Iterator[Check]:
        """Run all checks; a check that raises an error is a problem."""
        first = list(self._tried("database", self._server))
        yield from first
        if any(check.verdict is Verdict.PROBLEM for check in first):
            return
        yield from self._tried("clock", self._clock)
        yield from self._tried("transactions", self._transactions)
        if self._file:
            yield from self._tried("disk", lambda: self._disk(self._file or Path()))
        tables = list(self._tried("schema", self._schema))
        yield from tables
        if any(check.verdict is Verdict.PROBLEM for check in tables):
            return
        if role := self._run(webhook_facts.restricted_role(self._settings.schema)):
            limits = f"this login is {role}, which may not look further"
            yield ok("rights", f"{limits}; check the rest as the owner of the tables")
            return
        yield from self._tried("rights", self._rights)
        yield from self._tried("tasks", self._tasks)
        yield from self._tried("workers", self._workers)
        yield from self._tried("upkeep", self._upkeep)
        yield from self._tried("channels", self._channels)
        yield from self._tried("consumers", self._consumers)
        webhooks = WebhookDoctor(self._run, self._patience, self._settings.schema)
        yield from self._tried("webhooks", webhooks.checks)

    def _tried(self, name: str, checks: Callable[[], Iterable[Check]]) -> Iterator[Check]:
        try:
            yield from checks()
        except (TowpathError, OSError) as error:
            yield problem(name, " ".join(str(error).split()))

    def _run(self, operation: Operation[T]) -> T:
        return self._database.run(operation)

    @cached_property
    def _topics(self) -> list[TopicStats]:
        """The topics, counted once for all checks and within bounds, as open pages ask often."""
        return self._run(stats.by_topic(most=MOST_COUNTED))

    def _server(self) -> Iterator[Check]:
        server = self._run(facts.server())
        postgres = self._database.dialect == "postgres"
        kind = "PostgreSQL" if postgres else "SQLite"
        oldest = OLDEST["postgres" if postgres else "sqlite"]
        message = f"{without_password(self._url)}, {kind} {server.version}"
        if tuple(map(int, re.findall(r"\d+", server.version))) < oldest:
            wanted = ".".join(map(str, oldest))
            yield problem("database", f"{message} is too old", f"upgrade it to {wanted} or newer")
        elif server.standby:
            yield problem("database", f"{message}, a standby", "connect to the primary")
        else:
            yield ok("database", message)
        yield self._durability(server, postgres=postgres)

    def _durability(self, server: facts.DatabaseFacts, *, postgres: bool) -> Check:
        lossy = "a power failure may lose the last commits"
        if postgres and server.log != "on":
            risk = "a power failure may destroy the database: fsync is off"
            return warning("durability", risk, "set fsync = on")
        if postgres and server.commits not in DURABLE:
            risk = f"{lossy}: synchronous_commit is {server.commits}"
            return warning("durability", risk, "set synchronous_commit = on for this role")
        if self._file and server.log != "wal":
            risk = f"readers and writers block each other: journal_mode is {server.log}"
            return warning("durability", risk, "move the file to a local disk")
        if self._file and server.commits != "full":
            return warning("durability", f"{lossy}: durability is normal", "set durability = full")
        if not postgres and not self._file:
            lost = "all jobs are lost when the process ends"
            return warning("durability", lost, "use a file: sqlite:///app.db")
        return ok("durability", "a commit with these settings survives a power failure")

    def _clock(self) -> Iterator[Check]:
        before = machine_clock()
        self._now = self._run(retention.clock())
        # The least possible difference, as the database read its clock at some time in between.
        skew = max(before - self._now, self._now - machine_clock(), 0)
        if skew < SKEW:
            yield ok("clock", "the database and this machine agree")
            return
        way = "behind" if self._now < before else "ahead of"
        message = f"the database's clock is {spoken(as_timedelta(skew))} {way} this machine's"
        yield warning("clock", message, "jobs use the database's clock; set both by NTP")

    def _transactions(self) -> Iterator[Check]:
        if self._file:
            if lockable(self._file, LOCK_PATIENCE):
                yield ok("transactions", "a write lock was acquired within a second")
            else:
                message = "another process holds the write lock, and no other process can write"
                files = f"{self._file} {self._file}-turn"
                advice = f"end its transaction or the process; `lsof {files}` shows which it is"
                yield problem("transactions", message, advice)
            return
        old = self._run(facts.transactions(self._patience))
        hidden = sum(each.state is None for each in old)
        for each in [each for each in old if each.state][:NAMED]:
            yield _old(each)
        if not any(each.state for each in old):
            yield ok("transactions", f"no transaction is open for {self._waited}")
        if hidden:
            message = f"{hidden} connections of other roles cannot be inspected"
            yield warning("transactions", message, "grant pg_read_all_stats to this role")

    def _disk(self, file: Path) -> Iterator[Check]:
        disk = os.statvfs(file.parent)
        free = disk.f_bavail * disk.f_frsize
        message = f"{free / 2**30:.1f} GiB are free"
        if free < NO_DISK:
            yield problem("disk", message, "free some space; soon no job can be stored")
        elif free < LITTLE_DISK:
            yield warning("disk", message, "free some space")
        else:
            yield ok("disk", message)

    def _schema(self) -> Iterator[Check]:
        applied = self._run(schema.applied())
        if applied is None:
            yield problem("schema", "Towpath's tables do not exist", "run `towpath migrate`")
        elif applied.oldest > schema.VERSION:
            message = (
                f"version {applied.version} requires code of version {applied.oldest} or newer; "
                f"this code has {schema.VERSION}"
            )
            yield problem("schema", message, "upgrade Towpath in this process")
        elif applied.version < schema.VERSION:
            message = f"version {applied.version}; this code requires version {schema.VERSION}"
            yield problem("schema", message, "run `towpath migrate`")
        else:
            newer = ", newer than this code, which can still use it"
            message = f"version {applied.version}"
            yield ok("schema", message + newer * (applied.version > schema.VERSION))

    def _rights(self) -> Iterator[Check]:
        files = (*self._files(), self._file.parent, lock_file(self._file)) if self._file else ()
        if closed := [str(file) for file in files if file.exists() and not may(file, os.W_OK)]:
            message = f"this user may not write {some(closed)}"
            yield problem("rights", message, "run as the owner of the files, or change their mode")
        elif denied := self._run(facts.denied_tables()):
            message = f"this role may not read and write {some(denied)}"
            yield problem("rights", message, "grant select, insert, update, delete on them")
        elif risks := list(self._open_to_all()):
            message = "; ".join(
                f"every user of this machine may {risk} {some(files)}" for risk, files in risks
            )
            shown = " ".join(file for _, files in risks for file in files)
            yield warning("rights", message, f"run `chmod o-rwx {shown}`")
        else:
            yield ok("rights", "all tables can be read and written")

    def _open_to_all(self) -> Iterator[tuple[str, list[str]]]:
        """Yield what every user of this machine may do, and with which of SQLite's files."""
        if not self._file:
            return
        if shown := [str(file) for file in self._files() if file.stat().st_mode & stat.S_IROTH]:
            yield "read password hashes and payloads in", shown
        turn, everybody_writes = lock_file(self._file), self._file.stat().st_mode & stat.S_IWOTH
        # A lock needs the right to read or to write, and each that writes the database needs it.
        if turn.exists() and turn.stat().st_mode & stat.S_IRWXO and not everybody_writes:
            yield "keep all processes from writing, by a lock on", [str(turn)]

    def _files(self) -> list[Path]:
        """Return SQLite's files that hold data."""
        if not self._file:
            return []
        real = self._file.resolve()  # the log is beside the file, not beside a link to it
        files = [Path(f"{real}{end}") for end in ("", "-wal", "-shm")]
        return [file for file in files if file.exists()]

    def _workers(self) -> Iterator[Check]:
        live = [each for each in self._run(sessions.list_sessions()) if not self._is_silent(each)]
        served = {topic for each in live for topic in each.topics}
        late = [
            each
            for each in self._topics
            if not each.paused and self._wait_of(each) > self._patience
        ]
        # A worker without a session may serve a topic too: then the topic has a leased job.
        idle = [each for each in late if each.topic not in served and not each.reserved]
        behind = [each for each in late if each not in idle]
        if idle:
            message = f"no worker serves {some(map(self._backlog, idle))}"
            topics = [each.topic for each in idle]
            yield problem(
                "workers",
                message,
                "start a worker for the topic, or pause it",
                code="no_worker",
                about=topics,
                remedies=remedies_for(topics, "Pause {}", "/api/topics/{}/pause"),
            )
        if behind:
            message = f"workers fall behind on {some(map(self._backlog, behind))}"
            yield warning(
                "workers",
                message,
                "start more workers, or raise their concurrency",
                code="behind",
                about=[each.topic for each in behind],
            )
        if not late:
            yield ok("workers", f"{len(live)} live, no ready job has waited {self._waited}")

    def _tasks(self) -> Iterator[Check]:
        waiting = [each for each in self._topics if each.delayed or each.ready]
        topics = [each.topic for each in waiting[:LOOKED_AT]]
        if put_off := self._run(facts.put_off(topics, LOOKED_AT)):
            message = f"jobs wait for a worker that can run them: {some(map(_put_off, put_off))}"
            advice = (
                "start workers with the code that enqueues these jobs, or cancel the jobs; each "
                "fails an hour after a worker first gave it back"
            )
            about = [each.topic for each in put_off]
            yield warning("tasks", message, advice, code="unknown_tasks", about=about)
        else:
            yield ok("tasks", "no job waits for a worker that knows its task and its arguments")

    def _upkeep(self) -> Iterator[Check]:
        advice = START_UPKEEP
        overdue = self._run(facts.overdue(self._patience))
        ended = self._run(facts.ended_leases(self._patience))
        unfired = self._run(facts.late_schedules(self._patience))
        silent = [each for each in self._run(sessions.list_sessions()) if self._is_silent(each)]
        if overdue:
            message = f"delayed jobs are due but not ready: {some(map(_late, overdue))}"
            about = [each.topic for each in overdue]
            yield problem("upkeep", message, advice, code="overdue_jobs", about=about)
        if ended:
            message = f"leases have ended but are not taken back: {some(map(_late, ended))}"
            about = [each.topic for each in ended]
            yield problem("upkeep", message, advice, code="ended_leases", about=about)
        if unfired:
            which = (f"{each.topic} (late by {spoken(each.by)})" for each in unfired)
            message = f"schedules did not fire: {some(which)}"
            about = [each.topic for each in unfired]
            yield problem("upkeep", message, advice, code="late_schedules", about=about)
        if silent:
            names = (f"{each.worker} ({spoken(each.silent)})" for each in silent)
            message = f"workers are silent but not declared dead: {some(names)}"
            about = [each.worker for each in silent]
            yield problem("upkeep", message, advice, code="silent_workers", about=about)
        if spent := self._run(facts.spent_tokens(PRUNE_EVERY + self._patience)):
            message = f"{spent[0].jobs} spent passes and revoked tokens have expired but are left"
            yield warning("upkeep", message, advice)
        if not (overdue or ended or unfired or silent or spent):
            yield ok("upkeep", "no due work is late")

    def _channels(self) -> Iterator[Check]:
        unplaced = self._run(facts.unplaced(self._patience))
        undeleted = self._run(facts.undeleted(self._patience))
        over = self._run(facts.over_limits(Kept.of(self._settings)))
        overdue = self._run(facts.overdue_lifetimes(self._patience))
        streams = self._run(facts.open_streams(self._patience))
        if unplaced:
            message = f"published events have no place yet: {some(map(_late, unplaced))}"
            yield problem("channels", message, START_UPKEEP)
        if undeleted:
            message = f"{undeleted[0].jobs} deleted channels still have rows"
            yield warning("channels", message, START_UPKEEP)
        if over:
            message = f"channels keep more than they may: {some(over)}"
            yield warning("channels", message, START_UPKEEP)
        if overdue:
            which = (f"{each.topic} (by {spoken(each.by)})" for each in overdue)
            yield warning("channels", f"channels outlive their time: {some(which)}", START_UPKEEP)
        if streams:
            message = f"{streams[0].jobs} streams are open though their jobs have ended"
            yield problem("channels", message, START_UPKEEP)
        if not (unplaced or undeleted or over or overdue or streams):
            yield ok("channels", "all events have their places, and no channel is over its limits")

    def _consumers(self) -> Iterator[Check]:
        troubled = self._run(facts.troubled_consumers(self._patience, Kept.of(self._settings)))
        # The router of webhooks never expires; whether it is behind is a check of its own.
        found = [each for each in troubled if each.name != ROUTER or each.is_overtaken]
        expired = [each for each in found if each.is_expired]
        overtaken = [each for each in found if each.is_overtaken and not each.is_expired]
        behind = [each for each in found if not (each.is_overtaken or each.is_expired)]
        if expired:
            names = (f"{_consumer(each)} (silent for {spoken(each.silent)})" for each in expired)
            message = f"consumers have expired: {some(names)}"
            advice = "start their readers, or run `towpath events forget CHANNEL CONSUMER`"
            yield warning("consumers", message, advice)
        if overtaken:
            message = f"consumers have missed events: {some(map(_consumer, overtaken))}"
            advice = "keep events longer, and run `towpath events move CHANNEL CONSUMER start`"
            yield warning("consumers", message, advice)
        if behind:
            names = (f"{_consumer(each)} ({each.lag} events)" for each in behind)
            message = f"consumers fall behind: {some(names)}"
            yield warning("consumers", message, "start their readers, or make them faster")
        if not found:
            yield ok("consumers", f"no event waits {self._waited} for a consumer")

    def _is_silent(self, session: Session) -> bool:
        # Upkeep takes a while to notice that a session is silent.
        allowed = self._settings.dead_after + self._patience / 1e6
        return session.silent.total_seconds() > allowed

    def _wait_of(self, topic: TopicStats) -> int:
        return self._now - int(topic.oldest_at.timestamp() * 1e6) if topic.oldest_at else 0

    def _backlog(self, topic: TopicStats) -> str:
        waits = spoken(as_timedelta(self._wait_of(topic)))
        number = str(topic.ready) if topic.exact else f"at least {topic.ready}"
        return f"{topic.topic} ({number} ready, the oldest for {waits})"

    @property
    def _waited(self) -> str:
        return f"longer than {spoken(as_timedelta(self._patience))}"


def _old(transaction: Transaction) -> Check:
    age = spoken(transaction.age) if transaction.age else "?"
    if transaction.pid is None:
        message = f"{transaction.application!r} has been prepared for {age} and is not committed"
        return warning("transactions", message, "run `commit prepared` or `rollback prepared`")
    client = f"{transaction.user}, {transaction.application or 'no application_name'}"
    message = f"open for {age}: process {transaction.pid} ({client}), {transaction.state}"
    query = " ".join((transaction.query or "").split())
    return warning(
        "transactions",
        f"{message}: {query}",
        f"end it, or run `select pg_terminate_backend({transaction.pid})`; it slows down reserve",
    )


def _consumer(troubled: Troubled) -> str:
    return f"{troubled.channel} {troubled.name}"


def _late(late: Late) -> str:
    # Only a count with this bound ends at it; others go on.
    number = f"{late.jobs:,} or more" if late.jobs == MOST_LATE else f"{late.jobs:,}"
    return f"{late.topic} ({number}, by {spoken(late.by)})"


def _put_off(found: PutOff) -> str:
    number = f"{found.jobs} or more" if found.jobs >= LOOKED_AT else str(found.jobs)
    return f"{found.topic} ({number}; job {found.first}: {found.error})"
