"""Reservations that fail half way: no job stays leased to a caller that never heard of it.

On PostgreSQL each statement of a reservation is a transaction of its own.
"""

import psycopg
import pytest

from towpath.errors import SchemaMissing


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def app(live):
    live.topics.list()  # the tables are there
    return live


@pytest.fixture
def sql(place):
    """Run statements whose tables are written towpath.like_this."""
    url, needed = place
    with psycopg.connect(url, autocommit=True) as connection:

        def run(text, *values):
            connection.execute(text.replace("towpath.", f'"{needed["schema"]}".'), values or None)

        yield run


@pytest.fixture
def trap(sql):
    """Have something happen to each insert into a table."""

    def set_trap(table, action):
        sql(
            "create function towpath.trap() returns trigger language plpgsql as"
            f" $$ begin {action}; return null; end $$"
        )
        sql(
            f"create trigger trap after insert on towpath.{table} for each row"
            " execute function towpath.trap()"
        )

    return set_trap


def held(books):
    return {seq for (seq,) in books.rows("select seq from towpath.lease")}


def test_a_reservation_that_got_less_than_it_saw_returns_what_it_has(app, sql, trap, books):
    """To look again would fail: a table that it needs for that is gone once a job is leased."""
    contested = app.jobs.enqueue("mail")
    free = app.jobs.enqueue("post")
    trap("lease", "alter table towpath.topic rename to gone")
    sql("begin")
    sql("select seq from towpath.ready where seq = %s for update", contested.seq)

    leases = app.jobs.reserve(["mail", "post"], limit=2)

    sql("rollback")
    assert [lease.job.id for lease in leases] == [free.id]
    assert held(books) == {free.seq}
    with pytest.raises(SchemaMissing):
        app.jobs.reserve(["mail", "post"])
    assert held(books) == {free.seq}
    books.check()


@pytest.mark.parametrize("topics", [["mail"], ["mail", "post"]], ids=" and ".join)
def test_a_job_that_can_be_neither_read_nor_buried_spoils_no_other(app, sql, trap, books, topics):
    """The caller is told of the readable ones; the lease of the other ends by itself."""
    unreadable, *readable = app.jobs.enqueue_many("mail", range(3))
    sql("update towpath.job set encoding = 'unheard of' where seq = %s", unreadable.seq)
    trap("buried", "raise 'no room'")

    leases = app.jobs.reserve(topics, limit=3)

    in_hand = {lease.job.seq for lease in leases}
    assert in_hand == {job.seq for job in readable}
    assert held(books) == in_hand | {unreadable.seq}
    books.check()


def test_a_token_whose_jobs_can_be_neither_read_nor_buried_is_answered(app, sql, trap, books):
    job = app.jobs.enqueue("mail")
    sql("update towpath.job set encoding = 'unheard of' where seq = %s", job.seq)
    trap("buried", "raise 'no room'")

    assert app.jobs.reserve("mail", token=7) == []
    assert app.jobs.reserve("mail", token=7) == []
    assert held(books) == {job.seq}
