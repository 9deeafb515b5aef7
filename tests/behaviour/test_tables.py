"""Our tables: each has a primary key, and those of the version before are brought up to date."""

import logging
import os
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tests.behaviour.webhooks import DONE, FAILED, Webhooks
from towpath import App, Limit, State, Status
from towpath.errors import NotFound, SchemaMissing, SchemaTooNew
from towpath.model.job import Options
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import schema, stats
from towpath.store.rows import stored_options

WITHOUT_KEY = {
    "sqlite": """
select m.name from sqlite_master m where m.type = 'table' and m.name glob 'towpath_*'
   and not exists (select 1 from pragma_table_info(m.name) where pk > 0)""",
    "postgres": """
select c.relname from pg_class c
 where c.relnamespace = to_regnamespace('{schema}') and c.relkind = 'r'
   and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)""",
}
TALLY = """
insert into towpath.tally (at, topic, completed, failed, duration)
values ({now} - 60000000, :topic, 1, 0, 5) returning 1"""


TOPIC = "insert into towpath.topic (name, created_at) values ('mail', {now}) returning 1"
JOB = """
insert into towpath.job
       (id, topic, priority, limit_key, payload, encoding, ttr, options, created_at, run_at)
values (:id, 'mail', 50, 'printer', :payload, 'json', 60000000, :options, {now}, {now})
returning 1"""
READY = """
insert into towpath.ready (seq, topic, priority, limit_key)
select seq, topic, priority, limit_key from towpath.job returning 1"""


@pytest.fixture(scope="session")
def postgres(own_postgres):
    """A server on which a test may make roles and publish all tables."""
    return own_postgres


def asked(app, texts, **params):
    """Run one statement past the verbs."""

    def steps():
        return (yield Statement("test", texts)(**params))

    return app.run(Operation("test", steps))


def test_every_table_has_a_primary_key(make_app):
    app = make_app()
    app.migrate()

    assert asked(app, WITHOUT_KEY) == []

    asked(app, {"any": "create table towpath.keyless (n integer)"})
    [[found]] = asked(app, WITHOUT_KEY)
    assert found.endswith("keyless")


@pytest.mark.usefixtures("untouched")
def test_outcomes_counted_before_the_tally_had_a_key_are_kept(make_app, clock, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(schema, "VERSION", 2)
        app = make_app(clock=clock)
        asked(app, {"any": TOPIC})
        for _ in range(2):
            asked(app, {"any": TALLY}, topic="mail")
    app._migrated = False
    app.migrate()
    asked(app, {"any": TALLY}, topic="mail")

    assert app.jobs.stats().completed == 3
    ids = asked(app, {"any": "select id from towpath.tally"})
    assert len(set(ids)) == 3


@pytest.mark.usefixtures("untouched")
def test_jobs_stored_before_are_kept_and_their_limits_hold(make_app, clock, monkeypatch):
    """Their topic is marked as one that has limits. Code of before is told to upgrade."""
    limited = stored_options(Options(limit=Limit("printer", concurrency=1)))
    with monkeypatch.context() as before:
        before.setattr(schema, "VERSION", 1)
        app = make_app(clock=clock)
        asked(app, {"any": TOPIC})
        for number in range(3):
            asked(app, {"any": JOB}, id=uuid4(), payload=str(number), options=limited)
        asked(app, {"any": READY})
    app._migrated = False

    assert [lease.job.payload for lease in app.jobs.reserve("mail", limit=9)] == [0]
    assert app.run(schema.applied()) == schema.Applied(schema.VERSION, 3)
    monkeypatch.setattr(schema, "VERSION", 2)
    app._migrated = False
    with pytest.raises(SchemaTooNew, match="upgrade this process"):
        app.jobs.enqueue("mail")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("kind", ["postgres"])  # no table of SQLite has an owner
def test_a_role_that_does_not_own_the_tables_is_told_who_should_change_them(
    make_app, postgres, monkeypatch
):
    role = f"tenant_{os.getpid()}"
    with monkeypatch.context() as before:
        before.setattr(schema, "VERSION", 2)
        owner = make_app()
        owner.migrate()
    name = owner.settings.schema
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"create role {role} login")
        connection.execute(f'grant usage, create on schema "{name}" to {role}')
        connection.execute(f'grant all on all tables in schema "{name}" to {role}')
        try:
            with App(postgres.url(user=role), schema=name) as app:
                with pytest.raises(SchemaMissing, match="towpath migrate"):
                    app.migrate()
                owner._migrated = False
                owner.migrate()
                app.jobs.enqueue("mail")
        finally:
            connection.execute(f"drop owned by {role}; drop role {role}")


# ---------------------------------------------------------------- logical replication


@pytest.fixture
def published(postgres) -> Iterator[str]:
    """The URL of a database all of whose tables are published, as for an upgrade of the server."""
    name = f"published_{os.getpid()}"
    with psycopg.connect(postgres.url(), autocommit=True) as server:
        server.execute(f"create database {name}")
        with psycopg.connect(postgres.url(name), autocommit=True) as connection:
            connection.execute("create publication everything for all tables")
        yield postgres.url(name)
        server.execute(f"drop database {name} with (force)")


def test_everything_works_in_a_database_that_is_replicated(published, colour, clock, caplog):
    """PostgreSQL refuses updates and deletes of published tables without a primary key."""
    with App(published, clock=clock) as own, caplog.at_level(logging.WARNING, "towpath"):
        app = colour(own)
        done = app.jobs.enqueue("mail", 1, key="k", retention=60)
        bad = app.jobs.enqueue("mail", 2, max_retries=1)
        held = [app.jobs.enqueue("print", limit=Limit("printer", concurrency=1)) for _ in range(2)]
        child = app.jobs.enqueue("mail", 3, after=[done])
        shared = app.jobs.enqueue("deploy", workers=1)
        app.jobs.enqueue("mail", 4, delay=30)
        app.schedules.set("poll", topic="report", every="5m")
        session = app.sessions.start("w")

        for lease in app.jobs.reserve("mail", limit=2, session=session):
            app.jobs.touch(lease)
            if lease.job.id == done.id:
                app.jobs.complete(lease, "well")
            else:
                app.jobs.fail(lease, "no")
        [first] = app.jobs.reserve("print", limit=2)
        app.jobs.complete(first)
        [second] = app.jobs.reserve("print", limit=2)
        app.jobs.release(second)
        [run] = app.jobs.reserve("deploy", worker="w")
        app.jobs.complete(run)
        app.sessions.end(session)
        app.jobs.cancel(held[1])
        app.topics.pause("mail")
        app.topics.resume("mail")
        clock.advance("6m")
        app.upkeep.run()

        assert app.jobs.get(bad).state is State.BURIED
        assert app.jobs.get(child).state is State.READY
        assert app.jobs.get(shared).status is Status.COMPLETED
        assert app.jobs.get(held[0]).status is Status.COMPLETED
        assert asked(own, {"any": "select count(*) from towpath.tally"}) == [(0,)]
        assert sum(each.completed for each in own.run(stats.throughput(None, 60))) == 3
        with pytest.raises(NotFound):
            app.jobs.get(done)  # its retention is over
        assert len(app.jobs.list(topic="report")) == 1
        assert app.jobs.kick("mail", 9) == 1
        app.jobs.purge("mail")
        app.schedules.delete("poll")
    assert caplog.text == ""


def test_events_webhooks_and_counts_work_in_a_database_that_is_replicated(published, clock, caplog):
    """As above, for what came later: each of these updates and deletes rows of its own tables."""
    with App(published, clock=clock) as app, caplog.at_level(logging.WARNING, "towpath"):
        hooks = Webhooks(app)
        hooks.create(waits="[]")
        hooks.publish(1, 2)
        made = app.events.attach("orders", "mailer", "start")
        [first, _] = app.events.read("orders").events
        app.events.ack("orders", "mailer", first.cursor, made.generation)
        app.events.move_consumer("orders", "mailer", "start")
        hooks.deliver(FAILED, most=1)
        hooks.requeue(hooks.letters()[0].id)
        assert [len(hooks.deliver(DONE)) for _ in range(2)] == [1, 1]
        hooks.check()

        app.events.limit("orders", max_count=1)
        app.jobs.enqueue_many("mail", range(3))
        [lease] = app.jobs.reserve("mail")
        app.jobs.complete(lease)
        seen = app.bulk.preview("cancel", topic="mail")
        bulk = app.bulk.begin("cancel", up_to=seen.up_to, topic="mail")
        clock.advance("1m")
        for _ in range(2):
            app.upkeep.run()

        assert app.bulk.get(bulk.id).done == 2
        assert [event.payload for event in app.events.read("orders").events] == [2]
        assert asked(app, {"any": "select 1 from towpath.depth"}) != []

        clock.advance("40d")
        app.upkeep.run()
        app.upkeep.run()
        assert asked(app, {"any": "select step, completed from towpath.period"}) == [(1440, 1)]
        assert asked(app, {"any": "select count(*) from towpath.sagas"}) == [(0,)]
        app.events.forget_consumer("orders", "mailer")
        app.events.delete("orders")
        app.upkeep.run()
        assert [each.name for each in app.events.list()] == ["system"]
    assert caplog.text == ""
