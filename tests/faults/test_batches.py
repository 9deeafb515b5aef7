"""Errors of one call among others that share its commit."""

import asyncio
import contextlib

import psycopg
import pytest

from towpath import Job
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
        app = make_app(lanes=1, connect_timeout=1, max_jobs_per_topic=10)
        await app.jobs.aenqueue("mail")
        with refusing("session"):
            calls = app.jobs.aenqueue("mail"), app.topics.apause("mail"), app.sessions.astart()
            return await asyncio.gather(*calls, return_exceptions=True)

    job, paused, denied = asyncio.run(main())

    assert isinstance(job, Job)
    assert not isinstance(paused, Exception)
    assert isinstance(denied, DatabaseDenied)
