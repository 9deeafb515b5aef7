"""The doctor: each sickness is made for real, found, and named with what to do."""

import contextlib
import fcntl
import sqlite3
import time

import psycopg
import pytest

from tests.conftest import eventually
from tests.servers import PostgresServer
from towpath import App, NewEvent
from towpath.app import doctor, outcomes
from towpath.errors import NotFound
from towpath.model.durable import Fork, NewStream
from towpath.model.ids import uuid7
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import creating, events
from towpath.store.leases import settle


@pytest.fixture(scope="session")
def postgres(own_postgres) -> PostgresServer:
    """A server where all transactions are ours: the doctor looks at those of every database."""
    return own_postgres


def found(app, name, **options):
    """Return what it says of one thing: verdict and message."""
    checks = [check for check in app.doctor(**options) if check.name == name]
    assert all(bool(check.advice) == (check.verdict != "ok") for check in checks)
    return [(check.verdict, check.message) for check in checks]


def does(app, text):
    """Do something to the database that no verb does."""

    def steps():
        yield Statement("does", {"any": text})()

    app.run(Operation("does", steps))


def test_a_healthy_database_has_no_problem(live):
    live.jobs.enqueue("mail")
    checks = live.doctor()

    assert "problem" not in {check.verdict for check in checks}
    names = {check.name for check in checks}
    assert names >= {"database", "durability", "clock", "transactions", "schema", "rights"}
    assert names >= {"workers", "upkeep", "channels", "consumers"}


@pytest.mark.usefixtures("untouched")
def test_looking_makes_no_tables(live):
    assert found(live, "schema") == [("problem", "Towpath's tables do not exist")]
    assert found(live, "schema") == [("problem", "Towpath's tables do not exist")]
    assert not found(live, "workers")


def test_ready_jobs_that_nobody_serves_are_a_problem(app, clock):
    app.jobs.enqueue_many("mail", [1, 2])
    clock.advance(60)
    assert found(app, "workers") == [("ok", "0 live, no ready job has waited longer than 1 min")]
    clock.advance(1)
    told = "no worker serves mail (2 ready, the oldest for 1 min)"
    assert found(app, "workers") == [("problem", told)]
    assert found(app, "workers", patience="10m")[0][0] == "ok"

    app.topics.pause("mail")
    assert found(app, "workers")[0][0] == "ok"


def test_jobs_are_counted_once_and_within_a_bound(app, clock, monkeypatch):
    """Each open Overview asks every 30 s, however many jobs are ready."""
    monkeypatch.setattr(doctor, "MOST_COUNTED", 2)
    app.jobs.enqueue_many("mail", [1, 2, 3])
    clock.advance(61)

    told = "no worker serves mail (at least 2 ready, the oldest for 1 min)"
    assert found(app, "workers") == [("problem", told)]


def test_a_late_topic_that_somebody_serves_is_a_warning(app, clock):
    app.jobs.enqueue_many("mail", [1, 2])
    app.jobs.enqueue_many("post", [1, 2])
    app.jobs.enqueue("fax")
    clock.advance(61)
    app.sessions.start("vm:1", ["mail"])
    app.jobs.reserve("post")  # by hand, without a session

    idle, behind = found(app, "workers")
    assert idle == ("problem", "no worker serves fax (1 ready, the oldest for 1 min)")
    assert behind[0] == "warning"
    assert "mail (2 ready, the oldest for 1 min), post (1 ready" in behind[1]


def test_a_silent_worker_serves_nothing(app, clock):
    app.sessions.start("vm:1", ["mail"])
    app.jobs.enqueue("mail")
    clock.advance(91)

    assert found(app, "workers")[0][0] == "problem"
    told = "workers are silent but not declared dead: vm:1 (1 min)"
    assert found(app, "upkeep") == [("problem", told)]


def test_the_oldest_of_any_priority_counts(app, clock):
    app.jobs.enqueue("mail", priority=90)
    clock.advance(120)
    app.jobs.enqueue("mail", priority=10)

    told = "no worker serves mail (2 ready, the oldest for 2 min)"
    assert found(app, "workers") == [("problem", told)]
    [topic] = app.topics.stats()
    assert topic.oldest_at == app.jobs.list()[-1].created_at


def test_delayed_jobs_and_leases_that_nobody_looks_after_are_a_problem(app, clock, monkeypatch):
    monkeypatch.setattr(doctor, "MOST_LATE", 1)
    app.jobs.enqueue_many("mail", range(2), ttr=10)
    app.jobs.enqueue("post", delay=10)
    app.jobs.reserve("mail", limit=2)
    clock.advance(70)
    assert found(app, "upkeep") == [("ok", "no due work is late")]
    clock.advance(1)

    assert found(app, "upkeep") == [
        ("problem", "delayed jobs are due but not ready: post (1 or more, by 1 min)"),
        ("problem", "leases have ended but are not taken back: mail (2, by 1 min)"),
    ]
    app.upkeep.run()
    assert found(app, "upkeep")[0][0] == "ok"


def given_back(app, topic, number=1, error="UnknownTask: no task 'crop' here"):
    """Give back jobs as a worker does that cannot run them; return them."""
    app.jobs.enqueue_many(topic, range(number))
    leases = app.jobs.reserve(topic, limit=number)
    for lease in leases:
        app.run(settle([outcomes.not_yet(lease, error, 5)]))
    return [lease.job for lease in leases]


def test_jobs_that_no_worker_can_run_are_a_warning(app, clock):
    app.jobs.enqueue("slow", delay=60)
    assert found(app, "tasks")[0][0] == "ok"
    first, _ = given_back(app, "slow", 2)
    told = (
        "jobs wait for a worker that can run them: "
        f"slow (2; job {first.seq}: UnknownTask: no task 'crop' here)"
    )
    assert found(app, "tasks") == [("warning", told)]
    clock.advance(5)
    app.upkeep.run()
    assert found(app, "tasks") == [("warning", told)]

    for lease in app.jobs.reserve("slow", limit=2):
        app.jobs.fail(lease, "ValueError: no", delay=1)
    assert found(app, "tasks")[0][0] == "ok"


def test_only_the_first_jobs_in_line_are_looked_at(app):
    app.jobs.enqueue_many("slow", range(doctor.LOOKED_AT), delay=1)
    given_back(app, "slow")
    assert found(app, "tasks")[0][0] == "ok"

    given_back(app, "fast", doctor.LOOKED_AT + 1)
    [(_, told)] = found(app, "tasks")
    assert f"fast ({doctor.LOOKED_AT} or more; job" in told


def test_many_topics_are_counted_not_listed(app, clock):
    for number in range(5):
        app.jobs.enqueue(f"t{number}")
    clock.advance(61)

    [(_, told)] = found(app, "workers")
    assert told.count("ready") == 3
    assert told.endswith(" and 2 more")


@pytest.mark.parametrize(("seconds", "way"), [(-90, "behind"), (90, "ahead of")])
def test_clocks_that_differ_are_a_warning(make_app, colour, seconds, way):
    def skewed():
        return time.time_ns() // 1_000 + seconds * 1_000_000

    app = colour(make_app(clock=skewed))

    told = f"the database's clock is 1 min {way} this machine's"
    assert found(app, "clock") == [("warning", told)]
    assert found(colour(make_app()), "clock")[0][0] == "ok"


@pytest.mark.parametrize(
    ("row", "verdict", "told"),
    [
        ("(99, 99, 0)", "problem", "version 99 requires code of version 99"),
        ("(99, 1, 0)", "ok", "version 99, newer than this code, which can still use it"),
    ],
)
def test_a_newer_schema_is_named(live, row, verdict, told):
    """MS-11"""
    live.migrate()
    does(live, f"insert into towpath.migration values {row}")  # noqa: S608 - ours

    [(found_verdict, message)] = found(live, "schema")
    assert found_verdict == verdict
    assert told in message


def test_an_older_schema_is_a_problem(live):
    live.migrate()
    does(live, "delete from towpath.migration where version > 1")

    assert found(live, "schema")[0][0] == "problem"


def test_a_number_that_is_no_job_is_said(live):
    with pytest.raises(NotFound, match="there is no job 7"):
        live.jobs.numbered(7)
    job = live.jobs.enqueue("mail")
    assert live.jobs.numbered(job.seq).id == job.id


# ------------------------------------------------------------ SQLite alone


@pytest.fixture
def on_file(make_app, colour):
    app = colour(make_app())
    app.migrate()
    return app


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_transaction_that_keeps_everybody_from_writing_is_a_problem(on_file, tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "test.db")) as other:
        other.execute("begin immediate")
        told = "another process holds the write lock, and no other process can write"
        assert found(on_file, "transactions") == [("problem", told)]
        other.rollback()
        assert found(on_file, "transactions")[0][0] == "ok"


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_process_that_does_not_end_its_turn_is_a_problem(on_file, tmp_path):
    with (tmp_path / "test.db-turn").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        told = "another process holds the write lock, and no other process can write"
        assert found(on_file, "transactions") == [("problem", told)]
    assert found(on_file, "transactions")[0][0] == "ok"


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_durability_that_power_can_break_is_a_warning(make_app, colour):
    app = colour(make_app(durability="normal"))

    [(verdict, told)] = found(app, "durability")
    assert (verdict, "the last commits" in told) == ("warning", True)
    assert found(colour(make_app()), "durability")[0][0] == "ok"


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("limit", "verdict"), [("LITTLE_DISK", "warning"), ("NO_DISK", "problem")])
def test_a_disk_that_is_nearly_full_is_told(on_file, monkeypatch, limit, verdict):
    assert found(on_file, "disk")[0][0] == "ok"
    monkeypatch.setattr(doctor, limit, 2**60)

    assert found(on_file, "disk")[0][0] == verdict


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_file_that_is_no_database_is_a_problem(live, tmp_path):
    (tmp_path / "test.db").write_text("hello" * 1_000)

    [check] = live.doctor()
    assert (check.name, check.verdict) == ("database", "problem")
    assert "not a database" in check.message


# ------------------------------------------------------------ PostgreSQL alone


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_an_old_transaction_is_named_with_its_process(on_file, postgres):
    with psycopg.connect(postgres.url(), application_name="forgotten") as other:
        other.execute("select 'left open'")
        pid = other.info.backend_pid

        def mine():
            told = found(on_file, "transactions", patience=0)
            return [each for each in told if f"process {pid} " in each[1]]

        eventually(mine)
        [(verdict, message)] = mine()
        assert verdict == "warning"
        assert "postgres, forgotten" in message
        assert "idle in transaction: select 'left open'" in message
        told = found(on_file, "transactions", patience="1h")
        assert told == [("ok", "no transaction is open for longer than 1 h")]


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_role_is_told_what_it_may_not_see_and_do(make_app, colour, postgres, postgres_schema):
    make_app().migrate()
    role = f"{postgres_schema}_guest"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"create role {role} login")
        admin.execute(f"grant usage on schema {postgres_schema} to {role}")
        admin.execute(f"grant select on all tables in schema {postgres_schema} to {role}")
        try:
            guest = colour(App(postgres.url(user=role), schema=postgres_schema))
            [(verdict, told)] = found(guest, "rights")
            assert (verdict, "more" in told) == ("problem", True)
            hidden = found(guest, "transactions")[-1]
            assert hidden[0] == "warning"
            assert "cannot be inspected" in hidden[1]
            for right in ("update, delete", "insert"):
                assert found(guest, "rights")[0][0] == "problem"
                admin.execute(f"grant {right} on all tables in schema {postgres_schema} to {role}")
            assert found(guest, "rights")[0][0] == "ok"
            guest.close()
        finally:
            admin.execute(f"drop owned by {role}")
            admin.execute(f"drop role {role}")


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_server_that_does_not_sync_is_a_warning(live):
    """As those of the tests do not."""
    told = "a power failure may destroy the database: fsync is off"
    assert found(live, "durability") == [("warning", told)]


def test_a_server_that_is_away_is_one_problem_and_keeps_its_password(colour):
    url = "postgresql://ada:hunter2@127.0.0.1:1/none"
    with App(url, connect_timeout=0.1) as app:
        [check] = colour(app).doctor()
        assert (check.name, check.verdict) == ("database", "problem")
        assert "hunter2" not in f"{check} {app.database}"
        assert app.database == "postgresql://ada@127.0.0.1:1/none"


def test_a_schedule_that_nobody_fires_is_a_problem(app, clock):
    app.schedules.set("often", topic="mail", every="5s")
    clock.advance("5m")

    [check] = found(app, "upkeep")
    assert check == ("problem", "schedules did not fire: often (late by 4 min)")

    app.upkeep.run()
    assert found(app, "upkeep")[0][0] == "ok"


# ---------------------------------------------------------------- events


ALL_PLACED = ("ok", "all events have their places, and no channel is over its limits")


def test_events_that_nobody_gives_a_place_are_a_problem(app, clock):
    append = app.events._append("chat", [NewEvent(1)])
    app.run(events.post(append))  # as in a caller's transaction that has just committed
    clock.advance(60)
    assert found(app, "channels") == [ALL_PLACED]
    clock.advance(1)

    told = "published events have no place yet: chat (1, by 1 min)"
    assert found(app, "channels") == [("problem", told)]


def test_deleted_channels_with_rows_are_a_warning(app, clock):
    app.events.publish("chat", 1)
    app.events.delete("chat")
    clock.advance(61)
    assert found(app, "channels") == [("warning", "1 deleted channels still have rows")]

    app.upkeep.run()

    assert found(app, "channels") == [ALL_PLACED]


def test_a_deleted_source_that_its_forks_need_is_no_warning(app, clock):
    app.events.publish("chat", 1)
    app.run(creating.create("fork", NewStream(fork=Fork("chat", None)), [], uuid7()))
    app.events.delete("chat")
    does(app, "update towpath.channel set name = null where name = 'chat'")  # as if it expired
    clock.advance("1h")

    assert found(app, "channels") == [ALL_PLACED]


def test_channels_that_outlive_their_time_are_a_warning(app, clock):
    app.run(creating.create("chat", NewStream(ttl=10_000_000), [], uuid7()))
    clock.advance(70)
    assert found(app, "channels") == [ALL_PLACED]
    clock.advance(1)
    assert found(app, "channels") == [("warning", "channels outlive their time: chat (by 1 min)")]

    app.upkeep.run()
    assert found(app, "channels") == [ALL_PLACED]


def test_streams_that_their_jobs_left_open_are_a_problem(app, clock):
    """As an older version of Towpath leaves them, whose upkeep ends no streams."""
    for _ in range(2):
        app.jobs.enqueue("mail")
        [lease] = app.jobs.reserve("mail")
        app.jobs.say(lease, said=0, events=[1])
        app.jobs.complete(lease)
    does(app, "update towpath.channel set closed_at = null, ended = null where job is not null")
    clock.advance(60)
    assert found(app, "channels") == [ALL_PLACED]
    clock.advance(1)
    told = "2 streams are open though their jobs have ended"
    assert found(app, "channels") == [("problem", told)]

    app.upkeep.run()
    assert found(app, "channels") == [ALL_PLACED]


def test_spent_passes_that_are_left_are_a_warning(app, clock):
    account = app.accounts.create("users", "ada@example.org", "correct horse")
    made = app.accounts.issue_pass(app.accounts.token(account), ["chat"])
    app.accounts.redeem_pass(made)
    clock.advance(180)
    assert found(app, "upkeep") == [("ok", "no due work is late")]
    clock.advance(1)
    told = "1 spent passes and revoked tokens have expired but are left"
    assert found(app, "upkeep") == [("warning", told)]

    app.upkeep.run()
    assert found(app, "upkeep") == [("ok", "no due work is late")]


@pytest.mark.parametrize(
    "limit",
    [{"max_count": 10}, {"max_bytes": 10}, {"max_age": 600}],
    ids=lambda each: next(iter(each)),
)
def test_channels_over_their_limits_are_a_warning(app, clock, limit):
    app.events.limit("chat", **limit)
    for _ in range(11):
        app.events.publish("chat", 1)
    clock.advance(660)
    assert found(app, "channels") == [ALL_PLACED]
    app.events.publish("chat", 1)
    clock.advance(1)

    assert found(app, "channels") == [("warning", "channels keep more than they may: chat")]
    app.upkeep.run()
    assert found(app, "channels") == [ALL_PLACED]


def test_consumers_that_fall_behind_are_a_warning(app, clock):
    app.events.publish("chat", 1)
    clock.advance(120)
    cursor = app.events.publish("chat", 2).cursor
    generation = app.events.attach("chat", "mailer").generation
    assert found(app, "consumers") == [("warning", "consumers fall behind: chat mailer (2 events)")]
    app.events.ack("chat", "mailer", cursor, generation)

    told = "no event waits longer than 1 min for a consumer"
    assert found(app, "consumers") == [("ok", told)]


def test_consumers_that_expired_or_missed_events_are_a_warning(app, clock):
    app.events.publish("chat", 1)
    app.events.attach("chat", "gone")
    clock.advance("7d")
    app.events.attach("chat", "slow")
    clock.advance("1d")
    app.upkeep.run()

    assert found(app, "consumers") == [
        ("warning", "consumers have expired: chat gone (silent for 8 d)"),
        ("warning", "consumers have missed events: chat slow"),
    ]
    app.events.forget_consumer("chat", "gone")
    app.events.move_consumer("chat", "slow", "start")
    assert found(app, "consumers")[0][0] == "ok"
