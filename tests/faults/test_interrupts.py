"""Interrupts in the middle: nothing acknowledged afterwards is lost."""

import os

import psycopg
import pytest

from towpath import App


class Interrupted(BaseException):
    """As a signal handler may raise it anywhere."""


def test_a_lane_that_was_interrupted_in_a_transaction_starts_afresh(postgres, postgres_schema):
    """What is acknowledged after the interrupt is committed."""
    with App(postgres.url(), schema=postgres_schema, lanes=1) as app:
        job = app.jobs.enqueue("mail", 0)
        [lane, _] = app._database._all
        exchange = lane._wire.exchange

        def interrupted(asked):
            asked = list(asked)
            if asked[0].text == "begin":
                exchange(asked)
            raise Interrupted  # and again as it is about to roll back

        lane._wire.exchange = interrupted
        with pytest.raises(Interrupted):
            app.jobs.cancel(job)
        app.jobs.enqueue("mail", 1)

        with psycopg.connect(postgres.url()) as other:
            stored = other.execute(f'table "{postgres_schema}".job').fetchall()
        assert len(stored) == 2


def test_closing_twice_touches_nobody_elses_files(durable_place, tmp_path):
    url, needed = durable_place
    app = App(url, **needed)
    app.jobs.enqueue("mail", 1)
    app.jobs.reserve("post", timeout=0.01)
    app.close()
    files = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(20)]

    app.close()

    assert {os.fstat(fd).st_size for fd in files} == {0}
    for fd in files:
        os.close(fd)


def test_an_open_transaction_that_ends_a_lease_does_not_stall_the_topic(postgres, postgres_schema):
    """complete(connection=tx), not yet committed when the ttr is over."""
    with (
        App(postgres.url(), schema=postgres_schema) as app,
        psycopg.connect(postgres.url()) as transaction,
    ):
        app.jobs.enqueue("mail", "held", ttr=0.05)
        [lease] = app.jobs.reserve("mail")
        app.jobs.enqueue_many("mail", range(3))
        app.jobs.complete(lease, connection=transaction)
        transaction.execute("select pg_sleep(0.1)")

        assert len(app.jobs.reserve("mail", limit=5)) == 3
        assert app.jobs.reserve(["mail", "post"]) == []
        app.upkeep.run()
        transaction.commit()
        assert app.jobs.get(lease.job).status == "completed"
