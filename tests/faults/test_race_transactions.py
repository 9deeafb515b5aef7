"""The transaction that ends a job, beside what still writes for the job: on PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from towpath import Context


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


WAITS = "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"


def test_words_on_their_way_and_the_end_of_their_job_do_not_wait_in_a_circle(make_app, place):
    """EV-4"""
    app, beside = make_app(), make_app()
    app.jobs.enqueue("talk")
    [lease] = app.jobs.reserve("talk")
    app.jobs.say(lease, said=0, events=["first"])
    with psycopg.connect(place[0]) as own, psycopg.connect(place[0], autocommit=True) as other:

        def end():
            ctx = Context(app, lease)
            with ctx.transaction(own):
                for word in ("first", "second", "third"):
                    ctx.publish(word)

        with ThreadPoolExecutor(2) as threads:
            gate = Gate(beside, threads)
            with gate.before("hold_streams", beside.jobs.say, lease, said=1, events=["second"]):
                ending = threads.submit(end)
                pid = own.info.backend_pid
                wait_until(lambda: other.execute(WAITS, (pid,)).fetchone()[0] or ending.done())
            ending.result(30)

    page = app.events.read(f"job:{lease.job.id}")
    assert [event.payload for event in page.events] == ["first", "second", "third"]
    assert page.ended == "completed"
