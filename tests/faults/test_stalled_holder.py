"""A holder that stands still past its lease: whatever it says afterwards is refused."""

from datetime import UTC, datetime

import pytest

from tests.faults.books import unchanged
from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from towpath.errors import LeaseLost

VERBS = ["complete", "fail", "release", "release later", "bury", "touch", "say", "delete"]


@pytest.mark.parametrize("program", ["hold", "ahold"])
def test_a_stalled_holder_is_refused_and_changes_nothing(program, start, make_app, books):
    """Promise 2: by every verb, while another holds the job and after that one has finished it."""
    app = make_app()
    job = app.jobs.enqueue("mail", ttr=0.3)
    stalled = start(program, topic="mail")
    assert stalled.hear() == "holding"

    stalled.pause()
    [taken_over] = app.jobs.reserve("mail", timeout=10)
    assert (taken_over.job.id, taken_over.epoch, taken_over.job.timeouts) == (job.id, 2, 1)
    lease = app.jobs.touch(taken_over)
    stalled.resume()

    with unchanged(books):
        for verb in VERBS:
            stalled.say(verb)
            assert (verb, stalled.hear()) == (verb, "lease_lost")
    app.jobs.complete(lease)
    with unchanged(books):
        for verb in VERBS:
            stalled.say(verb)
            assert (verb, stalled.hear()) == (verb, "lease_lost")
    books.check_completions()


@pytest.mark.parametrize("end", ["release", "fail", "bury", "delete"])
def test_a_stalled_holder_is_refused_however_the_job_went_on(end, start, make_app, books):
    app = make_app()
    app.jobs.enqueue("mail", ttr=0.3)
    stalled = start("hold", topic="mail")
    assert stalled.hear() == "holding"

    stalled.pause()
    [lease] = app.jobs.reserve("mail", timeout=10)
    if end == "fail":
        app.jobs.fail(lease, "it was hard")
    else:
        getattr(app.jobs, end)(lease)
    stalled.resume()

    with unchanged(books):
        for verb in VERBS[:-1]:
            stalled.say(verb)
            assert stalled.hear() in {"lease_lost", "not_found"}, verb
        stalled.say("delete")
        # Gone is what it asked for; gone it is.
        assert stalled.hear() == ("done" if end == "delete" else "lease_lost")


def test_a_holder_that_wakes_before_anybody_took_the_job_may_still_finish(start, make_app, books):
    """US5-1: A lease past its end that was not rescued is still valid for its epoch."""
    app = make_app()
    job = app.jobs.enqueue("mail", ttr=0.05)
    stalled = start("hold", topic="mail")
    assert stalled.hear() == "holding"

    stalled.pause()
    wait_until(lambda: app.jobs.get(job).until < datetime.now(UTC))
    stalled.resume()
    stalled.say("complete")

    assert stalled.hear() == "done"
    books.check_completions()


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_worker_that_is_stopped_inside_a_transaction_loses_its_jobs(make_app, threads):
    """Its heartbeat holds the row of its session, which is deleted when the worker is dead."""
    app = make_app()
    stopped = make_app(connect_timeout=30)
    session = stopped.sessions.start()
    app.jobs.enqueue("mail")
    [lease] = stopped.jobs.reserve("mail", session=session)
    rescuer = make_app(beat_every=0.2, dead_after=1.0)

    with Gate(stopped, threads).before("cancelled_of", refused_beat, stopped, session) as beating:
        rescuer.upkeep.start()
        [rescued] = app.jobs.reserve("mail", timeout=60)

    assert beating.result()
    assert (rescued.job.id, rescued.epoch) == (lease.job.id, 2)


def refused_beat(app, session):
    with pytest.raises(LeaseLost, match="called dead"):
        app.sessions.beat(session)
    return True
