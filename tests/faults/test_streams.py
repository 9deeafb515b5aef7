"""The streams of jobs, whose writers overtake each other or end: one statement against another."""

import pytest

from tests.faults.gates import Gate
from towpath.errors import LeaseLost, WordsMissing

on_postgres = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def lease(make_app):
    app = make_app()
    app.jobs.enqueue("talk")
    return app.jobs.reserve("talk")[0]


def spoken(app, job):
    page = app.events.read(f"job:{job.id}")
    return [event.payload for event in page.events], page.ended


@on_postgres
def test_words_that_overtake_those_before_them_are_refused(make_app, threads, lease):
    """The threads of a writer use two connections, and the later one is quicker."""
    app, other = make_app(), make_app()
    slow = Gate(app, threads).before("hold_leases", app.jobs.say, lease, said=0, events=[1, 2])

    with slow as first:
        with pytest.raises(WordsMissing) as early:
            other.jobs.say(lease, said=2, events=[3])
        assert early.value.said == 0
    assert first.result().said == 2
    other.jobs.say(lease, said=2, events=[3])

    assert spoken(app, lease.job) == ([1, 2, 3], None)


@on_postgres
def test_words_wait_for_those_that_are_being_written(make_app, threads, lease):
    app, other = make_app(), make_app()
    slow = Gate(app, threads).before("append", app.jobs.say, lease, said=0, events=[1, 2])

    with slow:
        later = threads.submit(other.jobs.say, lease, said=2, events=[3])
        again = threads.submit(other.jobs.say, lease, said=0, events=[1, 2])
    assert later.result(10).said == 3
    assert again.result(10).said in {2, 3}

    assert spoken(app, lease.job) == ([1, 2, 3], None)


@on_postgres
def test_a_job_does_not_end_while_its_words_are_written(make_app, threads, lease):
    """Else a word would stand behind the end."""
    app, other = make_app(), make_app()

    with Gate(app, threads).before("append", app.jobs.say, lease, said=0, events=[1]):
        ending = threads.submit(other.jobs.complete, lease)
        assert spoken(other, lease.job) == ([], None)
    ending.result(10)

    assert spoken(app, lease.job) == ([1], "completed")


@on_postgres
def test_a_job_is_not_forgotten_without_words_that_are_written(make_app, threads, lease):
    app, other = make_app(), make_app()

    with Gate(app, threads).before("append", app.jobs.say, lease, said=0, events=[1]):
        ending = threads.submit(other.jobs.delete, lease)
        assert spoken(other, lease.job) == ([], None)
    ending.result(10)

    assert app.events.list("job:") == []


@on_postgres
def test_words_that_come_after_the_end_are_refused(make_app, threads, lease):
    app, other = make_app(), make_app()
    other.jobs.say(lease, said=0, events=[1])
    slow = Gate(app, threads).before("hold_leases", refused, app, lease)

    with slow as late:
        other.jobs.complete(lease)

    assert late.result()
    assert spoken(app, lease.job) == ([1], "completed")


def refused(app, lease):
    with pytest.raises(LeaseLost):
        app.jobs.say(lease, said=1, events=["late"])
    return True


@on_postgres
def test_a_job_that_speaks_and_ends_while_it_is_looked_at_is_not_silent(make_app, threads, lease):
    """Its stream was not there when it was read, and the job has ended when it is looked at."""
    app, other = make_app(), make_app()

    with Gate(app, threads).before("states_of", spoken, app, lease.job) as reading:
        other.jobs.say(lease, said=0, events=["word"])
        other.jobs.complete(lease)

    assert reading.result() == (["word"], "completed")
