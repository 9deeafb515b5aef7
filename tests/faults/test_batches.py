"""Errors of one call among others that share its commit."""

import asyncio
import contextlib

import psycopg
import pytest

from towpath import Job, NewEvent
from towpath.errors import DatabaseDenied

on_postgres = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def refusing(place):
    """Have a table refuse whatever is written to it, as by missing rights."""
    url, needed = place
    schema = needed["schema"]

    @contextlib.contextmanager
    def refusing(table):
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                f"""create function "{schema}".refuse() returns trigger language plpgsql as
                $$ begin raise exception 'refused' using errcode = 'insufficient_privilege'; end $$;
                create trigger refuse before insert or update on "{schema}"."{table}"
                execute function "{schema}".refuse()"""
            )
            yield
            other.execute(f'drop function "{schema}".refuse cascade')

    return refusing


@on_postgres
def test_after_a_failed_batch_no_statement_is_refused_for_ever(make_app, refusing):
    """Also not one that the driver was about to prepare in that very batch."""

    async def main(before):
        async with make_app(lanes=1) as app:
            session = await app.sessions.astart()
            with refusing("session"), pytest.raises(DatabaseDenied):
                await app.sessions.abeat(session)
            for _ in range(before):
                await app.jobs.aenqueue("mail")
            with refusing("session"):
                calls = app.sessions.abeat(session), app.jobs.aenqueue("mail")
                denied, job = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(denied, DatabaseDenied)
            assert isinstance(job, Job)
            assert await app.jobs.aenqueue("mail")
            await asyncio.gather(app.sessions.abeat(session), app.jobs.aenqueue("mail"))

    for before in (4, 5, 6):  # the driver prepares what it has seen five times
        asyncio.run(main(before))


@on_postgres
def test_an_error_reaches_only_the_call_that_made_it(make_app, refusing):
    async def main():
        app = make_app(lanes=1, connect_timeout=4, max_jobs_per_topic=10)
        await app.jobs.aenqueue("mail")
        with refusing("session"):
            calls = app.jobs.aenqueue("mail"), app.topics.apause("mail"), app.sessions.astart()
            return await asyncio.gather(*calls, return_exceptions=True)

    job, paused, denied = asyncio.run(main())

    assert isinstance(job, Job)
    assert not isinstance(paused, Exception)
    assert isinstance(denied, DatabaseDenied)


@on_postgres
def test_no_statement_has_more_bytes_of_events_than_allowed(make_app):
    """One call of many events goes in several statements; calls share one while it has room."""
    seen = []

    def sizes():
        found = [sum(item["size"] for item in items) for items in seen]
        seen.clear()
        return found

    async def main():
        async with make_app(lanes=1, batch_bytes=5_000) as app:
            await app.events.apublish("chat", 0)
            asked = app._database.asked

            def noting(query):
                if query.statement.name in {"publish", "append"}:
                    seen.append(query.items)
                return asked(query)

            app._database.asked = noting
            large = NewEvent("x" * 998)  # and two quotes
            await app.events.apublish_many("chat", [large] * 20)
            assert sizes() == [5_000] * 4
            await asyncio.gather(*(app.events.apublish("chat", "x" * 998) for _ in range(20)))
            shared = sizes()
            assert max(shared) == 5_000
            assert sum(shared) == 20_000
            connection = await psycopg.AsyncConnection.connect(app._database.url)
            async with connection:
                await app.events.apublish_many("chat", [large] * 20, connection=connection)
            page = await app.events.aread("chat")
            assert [len(str(event.payload)) for event in page.events] == [1] + [998] * 60

    asyncio.run(main())
