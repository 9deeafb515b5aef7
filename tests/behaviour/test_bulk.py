"""One verb for many jobs: previewed, carried out by upkeep, undone or stopped."""

from datetime import timedelta
from uuid import uuid4

import pytest

from towpath.app import upkeep
from towpath.errors import Invalid, NotFound
from towpath.model.states import State
from towpath.store import bulk as store


@pytest.fixture(autouse=True)
def one_round(monkeypatch):
    """A round of upkeep does one round of each bulk act."""
    monkeypatch.setattr(upkeep, "BULK_TIME", 0.0)


def fail(app, topic="mail", count=1, **options):
    """Enqueue jobs and let them fail for good."""
    jobs = app.jobs.enqueue_many(topic, range(count), max_retries=1, **options)
    for lease in app.jobs.reserve(topic, limit=count):
        app.jobs.fail(lease, "no such address")
    return jobs


def finish(app, bulk, rounds=20):
    """Let upkeep carry a bulk act out; return it."""
    for _ in range(rounds):
        app.upkeep.run()
        if (found := app.bulk.get(bulk.id)).ended_at is not None:
            return found
    pytest.fail(f"it has not ended: {found}")


def begun(app, clock, verb, **choice):
    preview = app.bulk.preview(verb, **choice)
    bulk = app.bulk.begin(verb, up_to=preview.up_to, by="Ada", **choice)
    clock.advance(10)
    return bulk


def states(app, jobs):
    return [app.jobs.get(job).state for job in jobs]


def test_a_preview_tells_how_many_and_shows_ten(app):
    jobs = fail(app, count=12)
    app.jobs.enqueue("mail")

    preview = app.bulk.preview("requeue", topic="mail", status="failed")

    assert (preview.count, preview.exact, preview.refused) == (12, True, {})
    assert [job.id for job in preview.sample] == [job.id for job in jobs[:10]]
    assert states(app, jobs) == [State.BURIED] * 12


def test_a_preview_looks_at_so_many_jobs_and_no_more(app, monkeypatch):
    """Few ready jobs are looked at again in each window, beyond the last one's share."""
    monkeypatch.setattr(store, "MOST_LOOKED", 50)
    app.jobs.enqueue_many("mail", range(10))
    app.jobs.enqueue_many("mail", range(60), delay=60)

    preview = app.bulk.preview("cancel", topic="mail")

    assert 10 <= preview.count <= 50
    assert not preview.exact


def test_a_bulk_act_covers_what_existed_at_the_preview(app, clock):
    jobs = fail(app, count=3)
    preview = app.bulk.preview("requeue", status="failed")
    later = fail(app, count=2)

    bulk = app.bulk.begin("requeue", up_to=preview.up_to, by="Ada", status="failed")
    clock.advance(10)
    ended = finish(app, bulk)

    assert (ended.state, ended.done, ended.refused, ended.count) == ("done", 3, 0, 3)
    assert (ended.verb, ended.by, ended.choice.status) == ("requeue", "Ada", "failed")
    assert states(app, jobs) == [State.READY] * 3
    assert states(app, later) == [State.BURIED] * 2
    assert app.jobs.get(jobs[0]).retries == 0
    greedy = app.bulk.begin("requeue", up_to=10**9, status="failed")
    assert greedy.up_to == later[-1].seq


def test_a_bulk_act_begins_after_its_delay_and_can_be_undone_until_then(app, clock):
    jobs = fail(app, count=2)
    bulk = app.bulk.begin(
        "requeue", up_to=app.bulk.preview("requeue", topic="mail").up_to, topic="mail"
    )
    clock.advance(9)
    app.upkeep.run()
    assert app.bulk.get(bulk.id).state == "waiting"

    undone = app.bulk.stop(bulk.id)
    clock.advance(10)
    app.upkeep.run()

    assert (undone.state, undone.looked, undone.done) == ("stopped", 0, 0)
    assert app.bulk.get(bulk.id) == undone
    assert states(app, jobs) == [State.BURIED] * 2


def test_a_hundred_jobs_are_a_round_and_a_stop_ends_it_between_two(app, clock):
    """A stop waits for the round that runs, so that is short."""
    jobs = app.jobs.enqueue_many("mail", range(150))
    bulk = begun(app, clock, "cancel", topic="mail")

    app.upkeep.run()
    running = app.bulk.get(bulk.id)
    stopped = app.bulk.stop(bulk.id)
    app.upkeep.run()

    assert (running.state, running.looked, running.done) == ("running", 100, 100)
    assert (stopped.state, stopped.done) == ("stopped", 100)
    assert states(app, [jobs[0], jobs[99], jobs[100], jobs[149]]) == [
        State.CANCELLED, State.CANCELLED, State.READY, State.READY,
    ]  # fmt: skip


def test_each_refusal_is_reported_and_stops_no_other(app, clock):
    jobs = [fail(app, count=1, key=str(nth))[0] for nth in range(7)]
    for nth in (0, 3, 6):
        app.jobs.enqueue("mail", key=str(nth))

    preview = app.bulk.preview("requeue", status="failed")
    ended = finish(app, begun(app, clock, "requeue", status="failed"))

    assert (preview.count, preview.refused) == (7, {"key_taken": 3})
    assert (ended.done, ended.refused) == (4, 3)
    assert [(each.id, each.code) for each in ended.refusals] == [
        (jobs[nth].id, "key_taken") for nth in (0, 3, 6)
    ]
    assert states(app, jobs) == [
        State.BURIED if nth in {0, 3, 6} else State.READY for nth in range(7)
    ]


def test_a_refused_job_stays_as_it_was(app, clock):
    """Its ticket was taken by then, and is given back with its counters."""
    [job] = fail(app, count=1, key="a")
    app.jobs.enqueue("mail", key="a")
    before = app.jobs.get(job)

    ended = finish(app, begun(app, clock, "requeue", ids=[job]))

    assert [each.code for each in ended.refusals] == ["key_taken"]
    assert app.jobs.get(job) == before


def test_chosen_jobs_are_each_done_or_refused(app, clock):
    [failed] = fail(app)
    ready, missing = app.jobs.enqueue("mail"), uuid4()

    preview = app.bulk.preview("requeue", ids=[failed, ready.id, missing])
    ended = finish(app, begun(app, clock, "requeue", ids=[failed, ready, missing]))

    assert (preview.count, preview.refused) == (1, {"invalid_state": 1, "not_found": 1})
    assert [job.id for job in preview.sample] == [failed.id]
    assert (ended.done, {each.id: each.code for each in ended.refusals}) == (
        1,
        {ready.id: "invalid_state", missing: "not_found"},
    )


def test_chosen_jobs_claim_their_keys_in_one_order(app, clock):
    """Two acts that hold one key each and wait for the other would deadlock."""
    [last] = fail(app, key="b")
    [first] = fail(app, key="a")
    without = fail(app)
    app.jobs.enqueue("mail", key="a")
    app.jobs.enqueue("mail", key="b")

    chosen = [uuid4(), last.id, first.id, without[0].id]
    ended = finish(app, begun(app, clock, "requeue", ids=chosen))

    assert [each.id for each in ended.refusals] == [first.id, last.id, chosen[0]]
    assert ended.done == 1


def test_more_chosen_jobs_than_a_round_has_are_each_done_once(app, clock):
    jobs = fail(app, count=150)
    bulk = begun(app, clock, "kick", ids=[job.id for job in reversed(jobs)])

    app.upkeep.run()
    running = app.bulk.get(bulk.id)
    ended = finish(app, bulk)

    assert (running.state, running.looked, running.done) == ("running", 100, 100)
    assert (ended.state, ended.looked, ended.done, ended.refused) == ("done", 150, 150, 0)
    assert {app.jobs.get(job).kicks for job in jobs} == {1}


@pytest.mark.parametrize(
    ("verb", "covered"),
    [
        ("requeue", {State.BURIED, State.CANCELLED}),
        ("kick", {State.BURIED, State.DELAYED}),
        ("cancel", {State.READY, State.DELAYED, State.BLOCKED, State.RESERVED}),
        ("delete", {State.READY, State.DELAYED, State.BLOCKED, State.BURIED, State.CANCELLED}),
    ],
)
def test_a_verb_covers_the_states_that_it_is_for(app, clock, verb, covered):
    jobs = {State.COMPLETED: app.jobs.enqueue("mail")}
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)
    [jobs[State.BURIED]] = fail(app)
    jobs[State.RESERVED] = app.jobs.enqueue("mail")
    app.jobs.reserve("mail")
    jobs[State.CANCELLED] = app.jobs.enqueue("mail")
    app.jobs.cancel(jobs[State.CANCELLED])
    jobs[State.DELAYED] = app.jobs.enqueue("mail", delay=500)
    jobs[State.READY] = app.jobs.enqueue("mail")
    jobs[State.BLOCKED] = app.jobs.enqueue("mail", after=[jobs[State.READY].id])

    preview = app.bulk.preview(verb, topic="mail")
    ended = finish(app, begun(app, clock, verb, topic="mail"))

    assert preview.count == len(covered)
    follows = verb == "cancel"  # the job that waits fails with the one that it waits for
    assert (ended.done, ended.refused) == (len(covered) - follows, 0)


def test_jobs_are_chosen_by_what_they_say(app, clock):
    old = app.jobs.enqueue("mail", {"to": "ada"}, key="k1")
    clock.advance(60)
    middle = app.jobs.get(app.jobs.enqueue("mail", {"to": "bob"}, key="100%")).created_at
    clock.advance(60)
    [failed] = fail(app, "post")

    def found(**choice):
        return [job.seq for job in app.bulk.preview("delete", **choice).sample]

    assert found(text="ADA") == [old.seq]
    assert found(text="100%") == [old.seq + 1]
    assert found(text="such address") == [failed.seq]
    assert found(error="no such") == [failed.seq]
    assert found(error="ada") == []
    assert found(key="k1") == [old.seq]
    assert found(until=middle) == [old.seq]
    assert found(since=middle + timedelta(seconds=1)) == [failed.seq]
    assert found(since=middle, topic="mail") == [old.seq + 1]
    assert found(state="buried") == [failed.seq]
    assert found(status="pending", text="bob") == [old.seq + 1]


def test_a_job_that_failed_with_another_is_requeued_with_it(app, clock):
    parent = app.jobs.enqueue("mail", max_retries=1)
    child = app.jobs.enqueue("mail", after=[parent.id])
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "no")
    app.upkeep.run()
    assert states(app, [parent, child]) == [State.BURIED] * 2

    ended = finish(app, begun(app, clock, "requeue", status="failed"))

    assert (ended.done, ended.refused) == (1, 0)
    assert states(app, [parent, child]) == [State.READY, State.BLOCKED]


def test_waiting_workers_are_woken(app, clock):
    [job] = fail(app)
    bulk = begun(app, clock, "requeue", topic="mail")

    finish(app, bulk)

    assert [lease.job.id for lease in app.jobs.reserve("mail")] == [job.id]


def test_acts_are_listed_and_forgotten_after_a_month(app, clock):
    fail(app)
    first = begun(app, clock, "requeue", topic="mail")
    second = app.bulk.begin("delete", up_to=1, delay=timedelta(days=60), topic="mail")
    finish(app, first)

    assert [each.id for each in app.bulk.list()] == [second.id, first.id]
    clock.advance(timedelta(days=31).total_seconds())
    app.upkeep.run()
    assert [each.id for each in app.bulk.list()] == [second.id]
    with pytest.raises(NotFound, match="no bulk act"):
        app.bulk.get(first.id)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({}, "at least one part"),
        ({"ids": []}, "0 ids"),
        ({"ids": [uuid4()], "topic": "mail"}, "not both"),
        ({"topic": "a b"}, "not a valid topic"),
        ({"state": "lost"}, "unknown state 'lost'"),
        ({"status": "lost"}, "unknown status 'lost'"),
        ({"status": "completed"}, "requeue is not for jobs that are completed"),
        (
            {"status": "failed", "state": "ready"},
            "not for jobs that are failed and ready",
        ),
        ({"since": "today"}, "since 'today'"),
        ({"text": ""}, "`text` is empty"),
        ({"topic": "mail", "error": ""}, "`error` is empty"),
        ({"colour": "red"}, "colour"),
    ],
)
@pytest.mark.one_database
def test_a_choice_that_makes_no_sense_is_refused(app, choice, said):
    with pytest.raises(Invalid, match=said):
        app.bulk.preview("requeue", **choice)


@pytest.mark.one_database
def test_an_unknown_verb_is_refused(app):
    with pytest.raises(Invalid, match="known verbs: requeue, kick, cancel, delete"):
        app.bulk.preview("purge", topic="mail")


def test_a_round_of_another_epoch_is_not_done(app, clock):
    """A repeated round, after a lost answer, finds that it was done."""
    app.jobs.enqueue_many("mail", range(101))
    begun(app, clock, "cancel", topic="mail")
    [due] = app.run(store.due())

    assert app.run(store.carry_on(due.id, due.epoch))
    assert not app.run(store.carry_on(due.id, due.epoch))
    assert app.bulk.get(due.id).done == 100
