"""Databases that are not as they should be: each is a named error that says what to do."""

import asyncio
import contextlib
import inspect
import os
import pwd
import re
import resource
import socket
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import msgspec
import psycopg
import pytest

from tests.conftest import eventually
from tests.faults.sizes import many
from tests.servers import PostgresServer
from towpath import App, State, Status, UnreadableJob, errors
from towpath.errors import (
    AppClosed,
    DatabaseBusy,
    DatabaseDenied,
    DatabaseReadOnly,
    DatabaseUnavailable,
    IncompatibleData,
    InvalidUrl,
    NotADatabase,
    SchemaMissing,
    SchemaTooNew,
    TowpathError,
)
from towpath.operation import Mode, Operation
from towpath.statement import Statement

pytestmark = pytest.mark.both_colours

SECRET = "hunter2"


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request) -> str:
    """The kind of database; no other process can spoil one in memory."""
    return request.param


@pytest.fixture(scope="session")
def postgres(own_postgres) -> PostgresServer:
    """A server whose roles and rules of access a test may change."""
    return own_postgres


@pytest.fixture
def open_app(colour) -> Iterator:
    """Open apps anywhere, in both colours; they are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda url, **settings: colour(stack.enter_context(App(url, **settings)))


@contextlib.contextmanager
def refused(error: type[TowpathError], *advice: str) -> Iterator[None]:
    """Expect just this error, before a caller gives up, with its advice and without a password."""
    started = time.monotonic()
    with pytest.raises(error) as caught:
        yield
    assert time.monotonic() - started < 10
    assert type(caught.value) is error
    for words in advice:
        assert words in str(caught.value)
    assert SECRET not in "".join(map(str, chain(caught.value)))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Return an error and what it came from."""
    while error is not None:
        yield error
        error = error.__cause__


# ---------------------------------------------------------------- where there is none


@pytest.mark.parametrize(
    "url",
    [
        "towpath.db",
        "/srv/towpath.db",
        "redis://localhost",
        f"mysql://me:{SECRET}@host/db",
        f"postgresql+psycopg://me:{SECRET}@host/db?unknown=1",
        f"mysql+psycopg://me:{SECRET}@host/db",
        "sqlite:",
        "sqlite:///",
        "sqlite://towpath.db",
        "sqlite:///towpath.db?mode=ro",
        f"sqlite://me:{SECRET}@host/towpath.db",
        "postgresql://host/db?unknown=1",
        f"postgresql://host/db?password={SECRET}&unknown=1",
        f"postgresql://me:{SECRET}%ZZ@host/db",
        f"postgresql://me:{SECRET}/@host/db",
        f"postgresql://me:1/{SECRET}@host/db",
        f"postgresql://me:{SECRET}/db",
        f"postgresql://me:{SECRET}:host/db",
        f"postgresql://me@host:port/db?sslpassword={SECRET}",
        f"postgresql://me@host:port/db?Password={SECRET}",
        f"postgresql://host:port/db?user=me&pass%77ord={SECRET}",
        f"postgres//me:{SECRET}@host/db",
        f"host=db user=me password={SECRET} dbname=db",
        f"sqlite:///towpath.db?key={SECRET}",
        "postgresql://host:port/db",
        "postgresql://[::1/db",
    ],
)
def test_a_url_that_we_cannot_read_is_refused_before_anything_is_opened(url):
    with refused(InvalidUrl, "use "):
        App(url)


def test_a_server_that_is_not_there_is_unavailable(open_app):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"postgresql://me:{SECRET}@127.0.0.1:{unused.getsockname()[1]}/db"
        app = open_app(url, connect_timeout=0.3)

        with refused(DatabaseUnavailable, "try again later"):
            app.jobs.enqueue("mail")


def test_a_database_that_does_not_exist_is_said_to_be_so_at_once(open_app, postgres):
    app = open_app(postgres.url("nowhere"))

    with refused(DatabaseUnavailable, '"nowhere" does not exist', "create it"):
        app.jobs.enqueue("mail")


def test_a_missing_directory_is_said_to_be_so(open_app, tmp_path):
    app = open_app(f"sqlite:///{tmp_path}/missing/towpath.db")

    with refused(DatabaseUnavailable, f"{tmp_path}/missing", "create it"):
        app.jobs.enqueue("mail")

    (tmp_path / "missing").mkdir()
    app.jobs.enqueue("mail")


def test_a_directory_is_not_a_database(open_app, tmp_path):
    with refused(NotADatabase, "directory", "name a file"):
        open_app(f"sqlite:///{tmp_path}").jobs.enqueue("mail")


@pytest.mark.parametrize("content", [b"Dear diary, " * 200, b"SQLite format 3\0" + b"\xff" * 4080])
def test_a_file_that_is_something_else_is_left_as_it_is(open_app, tmp_path, content):
    path = tmp_path / "diary.txt"
    path.write_bytes(content)

    with refused(NotADatabase, "diary.txt", "use another path"):
        open_app(f"sqlite:///{path}").jobs.enqueue("mail")

    assert path.read_bytes() == content


# ---------------------------------------------------------------- where we may not


@pytest.fixture(scope="module")
def role(postgres) -> Iterator[str]:
    """A role that needs a password and may create nothing."""
    name = f"poor_{os.getpid()}"
    rules = postgres.directory / "data" / "pg_hba.conf"
    before = rules.read_text()
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"create role {name} login password '{SECRET}'")
        rules.write_text(f"host all {name} 127.0.0.1/32 scram-sha-256\n{before}")
        connection.execute("select pg_reload_conf()")
        yield name
        rules.write_text(before)
        connection.execute("select pg_reload_conf()")
        connection.execute(f"drop owned by {name}; drop role {name}")


@pytest.fixture
def poor(role, postgres) -> str:
    """The URL of that role, with its password."""
    return postgres.url(user=f"{role}:{SECRET}")


@pytest.fixture
def grant(postgres, postgres_schema, role):
    """Grant the role something, as the owner of the database."""

    def grant(*rights: str) -> None:
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            for right in rights:
                connection.execute(f"grant {right} to {role}".replace("SCHEMA", postgres_schema))

    return grant


@pytest.mark.parametrize("password", ["", ":wrong"])
def test_a_wrong_password_is_denied_at_once(open_app, postgres, role, password):
    with refused(DatabaseDenied, "check user, password and permissions"):
        open_app(postgres.url(user=role + password)).jobs.enqueue("mail")


def test_an_unknown_role_is_denied_at_once(open_app, postgres):
    with refused(DatabaseDenied, "nobody-knows", "check user, password and permissions"):
        open_app(postgres.url(user="nobody-knows")).jobs.enqueue("mail")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_role_that_may_not_create_our_tables_is_told_who_should(open_app, make_app, poor, grant):
    rich = make_app()
    app = open_app(poor, schema=rich.settings.schema)
    with refused(SchemaMissing, "towpath migrate", "grant"):
        app.jobs.enqueue("mail")

    rich.migrate()
    with refused(DatabaseDenied, "permission denied", "check user, password and permissions"):
        app.jobs.enqueue("mail")

    grant(
        "usage on schema SCHEMA",
        "select, insert, update, delete on all tables in schema SCHEMA",
    )
    job = app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)
    assert app.jobs.get(job).state is State.COMPLETED


@pytest.mark.usefixtures("untouched")
def test_such_a_role_may_have_a_schema_of_its_own(open_app, poor, postgres, role, postgres_schema):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"create schema {postgres_schema} authorization {role}")
    app = open_app(poor, schema=postgres_schema)

    assert app.jobs.get(app.jobs.enqueue("mail")).state is State.READY


@pytest.mark.usefixtures("untouched")
def test_a_lent_transaction_of_such_a_role_stays_usable(poor, postgres_schema):
    """US1-5"""
    with App(poor, schema=postgres_schema) as app, psycopg.connect(poor) as connection:
        with refused(SchemaMissing, "towpath migrate"):
            app.jobs.enqueue("mail", connection=connection)

        assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.usefixtures("untouched")
def test_where_migration_is_switched_off_nothing_is_created(make_app, colour):
    app = colour(make_app(migrate=False))
    with refused(SchemaMissing, "towpath migrate"):
        app.jobs.enqueue("mail")

    make_app().migrate()
    app.jobs.enqueue("mail")


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Do without root's right to write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """A directory that everybody can enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("directory_mode", [0o777, 0o555])
@pytest.mark.parametrize("used_before", [True, False])
def test_a_file_that_may_not_be_written_is_read_only(
    shared_directory, colour, directory_mode, used_before
):
    path = shared_directory / "towpath.db"
    if used_before:
        with App(f"sqlite:///{path}") as before:
            before.jobs.enqueue("mail", "before")
        Path(f"{path}-turn").chmod(0o666)
    else:
        sqlite3.connect(path).execute("create table theirs (a)").connection.close()
    path.chmod(0o444)
    shared_directory.chmod(directory_mode)

    read_only = refused(DatabaseReadOnly, str(path), "file permissions")
    with App(f"sqlite:///{path}") as app, as_nobody(), read_only:
        colour(app).jobs.enqueue("mail", "now")

    shared_directory.chmod(0o755)
    path.chmod(0o644)
    with App(f"sqlite:///{path}") as after:
        assert [job.payload for job in after.jobs.list()] == ["before"] * used_before


def test_a_file_that_may_be_written_again_is_written_without_a_restart(shared_directory, colour):
    path = shared_directory / "towpath.db"
    shared_directory.chmod(0o777)
    sqlite3.connect(path).close()
    path.chmod(0o666)
    with App(f"sqlite:///{path}") as before, App(f"sqlite:///{path}") as app:
        before.jobs.enqueue("mail", "before")  # its log may be written, and stays while it is open
        path.chmod(0o444)
        with as_nobody():
            for _ in range(2):
                with refused(DatabaseReadOnly, str(path), "file permissions"):
                    colour(app).jobs.enqueue("mail", "refused")
            assert len(colour(app).jobs.list()) == 1

        path.chmod(0o666)
        with as_nobody():
            colour(app).jobs.enqueue("mail", "after")
            assert [job.payload for job in colour(app).jobs.list()] == ["after", "before"]


def test_a_file_that_was_overwritten_and_put_back_is_written_without_a_restart(tmp_path, colour):
    path = tmp_path / "towpath.db"
    with App(f"sqlite:///{path}") as app:
        app.jobs.enqueue("mail", "before")
        assert len(app.jobs.list()) == 1
        with contextlib.closing(sqlite3.connect(path)) as other:  # so that all is read again
            other.execute("create table theirs (a)")
            other.execute("pragma wal_checkpoint(truncate)")
        whole = path.read_bytes()
        path.write_bytes(os.urandom(len(whole)))
        for _ in range(2):
            with refused(NotADatabase, str(path)):
                colour(app).jobs.enqueue("mail", "refused")
            with refused(NotADatabase, str(path)):
                colour(app).jobs.list()

        path.write_bytes(whole)
        colour(app).jobs.enqueue("mail", "after")
        assert [job.payload for job in colour(app).jobs.list()] == ["after", "before"]


def test_after_an_error_of_the_disk_the_file_is_opened_again(tmp_path, colour):
    """The kernel refuses to make a file longer than this."""
    path = tmp_path / "towpath.db"
    with App(f"sqlite:///{path}") as app:
        app.jobs.enqueue("mail", "before")
        failed = app._database._writer._connection
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
            with refused(DatabaseUnavailable, str(path), "disk I/O error"):
                colour(app).jobs.enqueue("mail", "refused")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        colour(app).jobs.enqueue("mail", "after")
        assert app._database._writer._connection is not failed
        assert [job.payload for job in colour(app).jobs.list()] == ["after", "before"]


def test_a_file_that_may_not_even_be_read_is_denied(shared_directory, colour):
    path = shared_directory / "towpath.db"
    with App(f"sqlite:///{path}") as before:
        before.migrate()
    path.chmod(0o600 if os.geteuid() == 0 else 0)

    with App(f"sqlite:///{path}") as app, as_nobody(), refused(DatabaseDenied, str(path), "rights"):
        colour(app).jobs.enqueue("mail")


def test_files_of_somebody_else_are_denied_and_the_doctor_says_so(shared_directory, colour):
    path = shared_directory / "towpath.db"
    with App(f"sqlite:///{path}") as before:
        before.jobs.enqueue("mail")
    turn = Path(f"{path}-turn")
    turn.chmod(0o444)
    shared_directory.chmod(0o777)
    path.chmod(0o666)

    with App(f"sqlite:///{path}") as app, as_nobody():
        with refused(DatabaseDenied, str(turn), "permissions"):
            colour(app).jobs.enqueue("mail")
        [rights] = [check for check in app.doctor() if check.name == "rights"]
    assert (rights.verdict, rights.message) == ("problem", f"this user may not write {turn}")


def test_a_directory_in_which_no_file_may_be_made_is_denied(shared_directory, colour):
    path = shared_directory / "towpath.db"
    shared_directory.chmod(0o555)

    with App(f"sqlite:///{path}") as app, as_nobody(), refused(DatabaseDenied, str(path), "rights"):
        colour(app).jobs.enqueue("mail")


def test_a_file_that_is_none_of_the_databases_is_not_called_the_database(make_app, colour):
    """Such as a file of our own that the user of this process may not read."""
    app = colour(make_app())
    app.migrate()

    def steps():
        yield Statement("nothing", {"any": "select 1"})()
        raise PermissionError(13, "Permission denied", "/somewhere/else.sql")

    for mode in (Mode.WRITE, Mode.READ):
        with pytest.raises(PermissionError, match=r"/somewhere/else\.sql"):
            app.run(Operation("read_a_file", steps, mode))


@pytest.fixture
def read_only(poor, postgres, role) -> Iterator[str]:
    """The URL of a role that may create and write, were its transactions not read-only."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"alter role {role} set default_transaction_read_only = on")
        connection.execute(f"grant create on database postgres to {role}")
        yield poor
        connection.execute(f"alter role {role} reset default_transaction_read_only")
        connection.execute(f"revoke create on database postgres from {role}")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_standby_or_read_only_server_is_read_only(open_app, make_app, read_only, grant):
    rich = make_app()
    app = open_app(read_only, schema=rich.settings.schema)
    with refused(DatabaseReadOnly, "connect to the primary"):
        app.jobs.enqueue("mail")

    before = rich.jobs.enqueue("mail", "before")
    grant("usage on schema SCHEMA", "all on all tables in schema SCHEMA")
    with refused(DatabaseReadOnly, "connect to the primary"):
        app.jobs.enqueue("mail", "now")
    assert app.jobs.list() == [before]


# ---------------------------------------------------------------- where others have locks


@pytest.fixture(params=["a new file", "a file of ours"])
def lockable(request, tmp_path) -> Path:
    """A SQLite file that another program can lock."""
    path = tmp_path / "towpath.db"
    if request.param == "a file of ours":
        with App(f"sqlite:///{path}") as app:
            app.migrate()
    return path


@pytest.fixture(params=["immediate", "exclusive"])
def locked(request, lockable):
    """Have another program write, and not stop."""

    @contextlib.contextmanager
    def locked() -> Iterator[None]:
        with contextlib.closing(sqlite3.connect(lockable, check_same_thread=False)) as connection:
            connection.execute(f"begin {request.param}")
            yield

    return locked


def test_a_file_that_somebody_else_keeps_locked_is_busy(open_app, lockable, locked):
    app = open_app(f"sqlite:///{lockable}", busy_timeout=0.3)
    with locked():
        started = time.monotonic()
        with refused(DatabaseBusy, str(lockable), "busy_timeout"):
            app.jobs.enqueue("mail", 1)
        assert time.monotonic() - started >= 0.3

    app.jobs.enqueue("mail", 2)
    assert [job.payload for job in app.jobs.list()] == [2]


def test_a_file_that_is_unlocked_in_time_was_worth_the_wait(open_app, lockable, locked):
    app = open_app(f"sqlite:///{lockable}", busy_timeout=10)
    with ThreadPoolExecutor(1) as pool:
        with locked():
            waiting = pool.submit(app.jobs.enqueue, "mail", 1)
            time.sleep(0.2)  # nothing can be waited for: the point is that nothing happens
            assert not waiting.done()
        waiting.result()

    assert [job.payload for job in app.jobs.list()] == [1]


def test_those_who_open_a_new_database_at_once_do_not_refuse_each_other(make_app, colour):
    """Each as if in a process of its own."""
    apps = [make_app(lanes=1) for _ in range(16)]
    together = Barrier(len(apps))

    def enqueue(app):
        together.wait()
        return colour(app).jobs.enqueue("mail")

    with ThreadPoolExecutor(len(apps)) as pool:
        jobs = list(pool.map(enqueue, apps))

    assert len({job.seq for job in jobs}) == len(apps)


def test_those_who_open_a_new_database_to_read_do_not_refuse_each_other(open_app, tmp_path):
    """Found by CI: now and then a reader came while another made the file a WAL file."""
    readers = 10
    together = Barrier(readers)

    def read(app):
        together.wait()
        return app.jobs.list()

    with ThreadPoolExecutor(readers) as pool:
        for turn in range(many(20)):
            app = open_app(f"sqlite:///{tmp_path}/{turn}.db")
            assert list(pool.map(read, [app] * readers)) == [[]] * readers


def test_a_locked_file_does_not_block_the_event_loop(lockable, locked):
    async def longest_pause() -> float:
        longest, before = 0.0, time.monotonic()
        async with App(f"sqlite:///{lockable}", busy_timeout=3) as app:
            call = asyncio.create_task(app.jobs.aenqueue("mail"))
            while not call.done():
                await asyncio.sleep(0.01)
                longest, before = max(longest, time.monotonic() - before), time.monotonic()
            with refused(DatabaseBusy):
                await call
        return longest

    with locked():
        assert asyncio.run(longest_pause()) < 2  # a blocked loop would pause for the whole timeout


# ---------------------------------------------------------------- where others were before


@pytest.fixture
def sql(place, kind):
    """Run a statement on the database, behind the app's back."""
    url, needed = place

    def run(text: str, *params: object) -> None:
        if kind == "sqlite":
            with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
                connection.execute(text.replace("towpath.", "towpath_"), params)
                connection.commit()
        else:
            with psycopg.connect(url) as connection:
                text = text.replace("towpath.", f"{needed['schema']}.").replace("?", "%s")
                connection.execute(text.encode(), params)

    return run


VERBS = {
    "enqueue": lambda app: app.jobs.enqueue("mail", 2),
    "enqueue_many": lambda app: app.jobs.enqueue_many("mail", [2, 3]),
    "reserve": lambda app: app.jobs.reserve("mail"),
    "wait": lambda app: app.jobs.reserve("mail", timeout=5),
    "list": lambda app: app.jobs.list(),
    "peek": lambda app: app.jobs.peek("mail"),
    "stats": lambda app: app.jobs.stats(),
    "kick": lambda app: app.jobs.kick("mail"),
    "purge": lambda app: app.jobs.purge("mail"),
    "pause": lambda app: app.topics.pause("mail"),
    "topics": lambda app: app.topics.list(),
    "session": lambda app: app.sessions.start(),
    "put": lambda app: app.queue("mail").put(b""),
}


def test_tables_of_a_newer_version_are_neither_read_nor_written(make_app, colour, sql):
    """MS-11"""
    make_app().jobs.enqueue("mail", 1)
    sql("insert into towpath.migration (version, oldest, applied_at) values (99, 99, 0)")
    app = colour(make_app())
    for verb in VERBS.values():
        with refused(SchemaTooNew, "99", "upgrade this process"):
            verb(app)

    sql("delete from towpath.migration where version = 99")
    assert [job.payload for job in app.jobs.list()] == [1]


def test_tables_of_a_newer_version_that_still_knows_us_are_fine(make_app, colour, sql):
    """MS-11"""
    make_app().migrate()
    sql("insert into towpath.migration (version, oldest, applied_at) values (99, 1, 0)")
    app = colour(make_app())
    app.jobs.enqueue("mail", 1)

    assert len(app.jobs.reserve("mail")) == 1


@pytest.fixture(
    params=[
        ("options", '{"max_retries": "many"}', "options"),
        ("options", "not even JSON", "options"),
        ("encoding", "zstd", "zstd"),
    ],
    ids=lambda change: change[1],
)
def spoil(request, sql):
    """Change a stored job so that this version cannot read it; returns a word of the error."""
    column, value, word = request.param

    def spoil(job) -> str:
        sql(f"update towpath.job set {column} = ? where seq = ?", value, job.seq)  # noqa: S608 - our own
        return word

    return spoil


def test_a_stored_job_that_cannot_be_read_is_buried_and_spoils_no_other(make_app, colour, spoil):
    """MS-11"""
    app = colour(make_app())
    jobs = app.jobs.enqueue_many("mail", range(5))
    words = {job: spoil(job) for job in (jobs[0], jobs[1], jobs[3])}

    [lease] = app.jobs.reserve("mail")
    assert lease.job.id == jobs[2].id
    assert [lease.job.id for lease in app.jobs.reserve("mail", limit=10)] == [jobs[4].id]
    eventually(lambda: app.jobs.stats().buried == 3)  # no caller waits for that
    for job, word in words.items():
        [failure] = app.jobs.failures(job)
        assert word in failure.error
        assert str(job.id) in failure.error


def test_a_stored_job_that_cannot_be_read_is_never_half_read(make_app, colour, spoil):
    """MS-11"""
    app = colour(make_app())
    job = app.jobs.enqueue("mail")
    app.jobs.enqueue("post")
    word = spoil(job)

    for look in (
        lambda: app.jobs.get(job),
        lambda: app.jobs.peek("mail"),
        lambda: app.jobs.cancel(job),
        lambda: app.jobs.reprioritise(job, 1),
        lambda: app.jobs.enqueue("mail", id=job.id),
    ):
        with refused(IncompatibleData, str(job.id), word, "upgrade", "delete"):
            look()


def test_a_list_shows_where_a_job_lies_that_cannot_be_read(make_app, colour, spoil):
    """MS-11"""
    app = colour(make_app())
    app.jobs.enqueue("mail", "older")
    job = app.jobs.enqueue("mail", "spoilt", key="k", priority=7, delay=60, max_retries=5)
    app.jobs.enqueue("mail", "newer")
    word = spoil(job)

    newer, spoilt, older = app.jobs.list(topic="mail")

    assert (newer.payload, older.payload) == ("newer", "older")
    assert isinstance(spoilt, UnreadableJob)
    assert (spoilt.id, spoilt.seq, spoilt.topic) == (job.id, job.seq, "mail")
    assert (spoilt.state, spoilt.status) == (State.DELAYED, Status.PENDING)
    assert (spoilt.priority, spoilt.key, spoilt.run_at) == (7, "k", job.run_at)
    for look in (lambda: spoilt.payload, lambda: spoilt.options):
        with refused(IncompatibleData, str(job.id), word, "upgrade", "delete"):
            look()
    assert "options" not in msgspec.json.decode(msgspec.json.encode(spoilt))
    app.jobs.delete(spoilt)
    assert app.jobs.list(before=newer) == [older]


def test_a_job_that_cannot_be_read_is_explained(make_app, colour, spoil):
    """MS-11"""
    app = colour(make_app())
    failed, delayed, ready = app.jobs.enqueue_many("mail", range(3))
    [lease] = app.jobs.reserve("mail")
    app.jobs.bury(lease, error="no")
    app.jobs.reschedule(delayed, delay=60)
    words = {job: spoil(job) for job in (failed, delayed, ready)}

    for job, word in words.items():
        assert isinstance(app.jobs.find(job), UnreadableJob)
        [reason, *others] = app.jobs.why(job)
        assert reason.code == "unreadable"
        assert word in reason.message
        assert others
        assert len(app.jobs.tries(job)) == (job is failed)


def test_a_stored_job_that_cannot_be_read_can_be_deleted(make_app, colour, spoil):
    """MS-11"""
    app = colour(make_app())
    jobs = app.jobs.enqueue_many("mail", range(3))
    for job in jobs[:2]:
        spoil(job)

    app.jobs.delete(jobs[0])
    assert app.jobs.purge("mail") == 2
    assert app.jobs.list() == []


# ---------------------------------------------------------------- where we have closed


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("used", [True, False])
def test_a_closed_app_says_so(make_app, colour, verb, used):
    app = make_app()
    if used:
        colour(app).jobs.enqueue("mail", 1)
    app.close()
    app.close()  # twice does no harm

    with refused(AppClosed, "make a new one"):
        VERBS[verb](colour(app))


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_closed_app_borrows_nothing(make_app, place):
    """US1-5"""
    app = make_app()
    app.migrate()
    app.close()
    connection = sqlite3.connect(place[0].removeprefix("sqlite:///"))
    with contextlib.closing(connection), refused(AppClosed):
        app.jobs.enqueue("mail", connection=connection)


def test_a_caller_that_waits_in_reserve_is_told_at_once_that_the_app_closes(make_app, colour):
    app = make_app(poll_interval=60)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(colour(app).jobs.reserve, "mail", timeout=30) for _ in range(3)]
        eventually(lambda: app.jobs.stats_waiting() == {"mail": 3})
        app.close()
        for future in waiting:
            with refused(AppClosed):
                future.result()


# ---------------------------------------------------------------- the errors themselves


ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


def test_every_error_has_a_code_of_its_own():
    """DQ-16: the code is part of the API; it is the name, and neither may change."""
    assert {kind.code for kind in ERRORS if kind is not TowpathError} == {
        re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=A)(?=Database)", "_", kind.__name__).lower()
        for kind in ERRORS
        if kind is not TowpathError
    }
    assert all("code" in vars(kind) for kind in ERRORS)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_says_in_a_sentence_what_to_make_of_it(kind):
    advice = (vars(kind)["__doc__"] or "").splitlines()[0]

    assert advice.endswith(".")
    assert len(advice.split()) > 3


def test_every_error_stands_in_the_drawn_tree_in_its_place():
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+)(?:  .+)?$", line)
        if match:
            depth = len(match[1])
            while above and above[-1][0] >= depth:
                above.pop()
            drawn[match[2]] = above[-1][1] if above else "Exception"
            above.append((depth, match[2]))

    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in ERRORS}
