"""Limits: how many jobs of a key run at once, and how often one of them starts."""

from itertools import cycle, pairwise

import pytest

from towpath import Limit, State
from towpath.errors import Invalid
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import reserving

ONE = Limit("printer", concurrency=1)


def numbers(leases):
    return [lease.job.payload for lease in leases]


def test_no_more_run_at_once_than_the_limit_allows(app):
    """MS-10"""
    app.jobs.enqueue_many("print", range(5), limit=Limit("printer", concurrency=2))

    leases = app.jobs.reserve("print", limit=10)

    assert numbers(leases) == [0, 1]
    assert app.jobs.reserve("print", limit=10) == []
    assert app.jobs.stats_topic("print").blocked == 3


@pytest.mark.parametrize("most", [1, 5])
def test_one_that_raises_the_limit_overtakes_nobody(app, most):
    app.jobs.enqueue_many("print", range(4), limit=ONE)
    assert numbers(app.jobs.reserve("print", limit=9)) == [0]
    app.jobs.enqueue("print", "new", limit=Limit("printer", concurrency=3))

    assert numbers(app.jobs.reserve("print", limit=most)) == [1, 2][:most]


def test_the_end_of_one_lets_the_next_in(app):
    app.jobs.enqueue_many("print", range(5), limit=Limit("printer", concurrency=2))
    first, second = app.jobs.reserve("print", limit=10)

    app.jobs.complete(first)
    [third] = app.jobs.reserve("print", limit=10)
    app.jobs.fail(second, "no paper")
    [fourth] = app.jobs.reserve("print", limit=10)

    assert numbers([third, fourth]) == [2, 3]


ENDS = {
    "complete": lambda app, lease, clock: app.jobs.complete(lease),
    "fail": lambda app, lease, clock: app.jobs.fail(lease, "no"),
    "release": lambda app, lease, clock: app.jobs.release(lease, delay=60),
    "bury": lambda app, lease, clock: app.jobs.bury(lease),
    "discard": lambda app, lease, clock: app.jobs.delete(lease),
    "time over": lambda app, lease, clock: clock.advance("1h"),
}


@pytest.mark.parametrize("end", ENDS)
def test_however_a_lease_ends_its_place_is_free(app, clock, end):
    app.jobs.enqueue("print", "first", limit=ONE, priority=90)
    [lease] = app.jobs.reserve("print")
    app.jobs.enqueue("print", "second", limit=ONE, priority=10)
    assert app.jobs.reserve("print") == []

    ENDS[end](app, lease, clock)

    assert numbers(app.jobs.reserve("print", limit=5)) == ["second"]


def test_the_end_of_a_session_frees_the_places_of_its_leases(app):
    session = app.sessions.start()
    app.jobs.enqueue_many("print", range(2), limit=ONE)
    app.jobs.reserve("print", limit=2, session=session)

    app.sessions.end(session)

    assert numbers(app.jobs.reserve("print", limit=2)) == [0]


def test_a_limit_of_one_keeps_the_order_of_its_key(app):
    """Within a priority the first comes first; a more urgent one comes before."""
    for number in range(6):
        app.jobs.enqueue("print", number, limit=ONE, priority=10 if number == 4 else 50)
    order = []
    for _ in range(6):
        [lease] = app.jobs.reserve("print", limit=6)
        order.append(lease.job.payload)
        app.jobs.complete(lease)

    assert order == [4, 0, 1, 2, 3, 5]


def test_jobs_of_other_keys_and_without_limit_go_on(app):
    app.jobs.enqueue_many("print", ["a1", "a2", "a3"], limit=Limit("a", concurrency=1))
    app.jobs.enqueue_many("print", ["b1", "b2"], limit=Limit("b", concurrency=1))
    app.jobs.enqueue_many("print", ["free"])

    assert numbers(app.jobs.reserve("print", limit=3)) == ["a1"]
    assert numbers(app.jobs.reserve("print", limit=3)) == ["b1", "free"]


def test_a_key_is_shared_by_several_topics(app):
    app.jobs.enqueue("print", 1, limit=ONE)
    app.jobs.enqueue("fax", 2, limit=ONE)
    [lease] = app.jobs.reserve("print")
    assert app.jobs.reserve(["print", "fax"]) == []

    app.jobs.complete(lease)

    assert numbers(app.jobs.reserve(["print", "fax"])) == [2]


def test_a_topic_that_nobody_serves_keeps_no_other_waiting(app):
    app.jobs.enqueue("print", 1, limit=ONE)
    app.jobs.enqueue("fax", 2, limit=ONE)
    app.jobs.enqueue("scan", 3, limit=ONE)
    [lease] = app.jobs.reserve("print")
    assert app.jobs.reserve("fax") == app.jobs.reserve("scan") == []

    app.jobs.complete(lease)

    assert numbers(app.jobs.reserve("scan")) == [3]


def test_the_newest_job_says_how_many(app):
    app.jobs.enqueue_many("print", range(3), limit=ONE)
    app.jobs.enqueue_many("print", range(3, 6), limit=Limit("printer", concurrency=4))

    assert numbers(app.jobs.reserve("print", limit=9)) == [0, 1, 2, 3]


def test_a_blocked_job_is_pending_and_can_be_cancelled_deleted_or_reprioritised(app):
    jobs = app.jobs.enqueue_many("print", range(4), limit=ONE)
    app.jobs.reserve("print", limit=4)
    assert app.jobs.get(jobs[1]).state is State.BLOCKED
    assert len(app.jobs.list(status="pending", topic="print")) == 3

    app.jobs.cancel(jobs[1])
    app.jobs.delete(jobs[2])
    app.jobs.reprioritise(jobs[3], 7)

    assert app.jobs.get(jobs[1]).state is State.CANCELLED
    assert app.jobs.get(jobs[3]).state is State.BLOCKED
    assert app.jobs.get(jobs[3]).priority == 7
    assert app.jobs.stats().blocked == 1


def test_a_parked_job_has_its_epoch_as_if_nobody_had_looked(app):
    """What was never given out does not count."""
    first, second = app.jobs.enqueue_many("print", range(2), limit=ONE)
    [lease] = app.jobs.reserve("print", limit=2)
    for _ in range(3):
        app.jobs.reserve("print")

    assert app.jobs.get(second).epoch <= 1
    assert app.jobs.get(first).epoch == lease.epoch


def test_thousands_that_wait_are_not_looked_at_again(app):
    app.jobs.enqueue_many("print", range(2_500), limit=ONE)
    app.jobs.reserve("print", limit=10)
    app.jobs.reserve("print", limit=10)
    app.jobs.reserve("print", limit=10)
    app.jobs.enqueue("print", "free")

    assert numbers(app.jobs.reserve("print")) == ["free"]


# ---------------------------------------------------------------- rates


def test_starts_keep_their_distance(app, clock):
    """MS-10"""
    app.jobs.enqueue_many("mail", range(4), limit=Limit("smtp", rate="10/s"))
    started = []
    for _ in range(40):
        started += [(clock.us, number) for number in numbers(app.jobs.reserve("mail", limit=9))]
        clock.advance(0.01)

    times = [us for us, _ in started]
    assert [number for _, number in started] == [0, 1, 2, 3]
    assert all(later - earlier >= 100_000 for earlier, later in pairwise(times))
    assert times[-1] - times[0] <= 330_000


def test_after_a_rest_a_burst_may_start_at_once(app, clock):
    app.jobs.enqueue_many("mail", range(10), limit=Limit("smtp", rate="60/m", burst=3))

    assert numbers(app.jobs.reserve("mail", limit=10)) == [0, 1, 2]
    clock.advance(1)
    assert numbers(app.jobs.reserve("mail", limit=10)) == [3]
    clock.advance(60)
    assert numbers(app.jobs.reserve("mail", limit=10)) == [4, 5, 6]


@pytest.mark.parametrize("rate", ["1/s", "100/s"])
def test_a_worker_that_was_away_does_not_catch_up_in_a_burst(app, clock, rate):
    app.jobs.enqueue_many("mail", range(100), limit=Limit("smtp", rate=rate))
    app.jobs.reserve("mail", limit=100)

    clock.advance("1h")
    app.upkeep.run()

    assert len(app.jobs.reserve("mail", limit=100)) == 1


def test_looks_that_come_late_still_reach_the_rate_and_never_exceed_it(app, clock):
    """MS-10"""
    app.jobs.enqueue_many("mail", range(1_100), limit=Limit("smtp", rate="100/s"))
    gaps, end, started = cycle([0.007, 0.031, 0.002, 0.094, 0.055, 0.0133]), clock.us + 10**7, []
    while clock.us <= end:
        started += [clock.us] * len(app.jobs.reserve("mail", limit=50))
        clock.advance(next(gaps))

    assert 950 <= len(started) <= 1_001
    for nth, at in enumerate(started):
        for count, later in enumerate(started[nth:], start=1):
            assert count <= (later - at + 100_000) / 10_000 + 1


def test_a_late_look_lets_no_job_overtake_those_that_are_parked(app, clock):
    limit = Limit("smtp", rate="100/s")
    app.jobs.enqueue_many("mail", range(20), limit=limit)
    assert numbers(app.jobs.reserve("mail", limit=20)) == [0]
    app.jobs.enqueue("mail", 20, limit=limit)  # in line, the others are parked

    started = []
    while len(started) < 20:
        clock.advance(0.035)
        started += numbers(app.jobs.reserve("mail", limit=4))

    assert started == list(range(1, 21))


def test_a_rest_is_not_made_up_for(app, clock):
    """Time in which no job waited gives a burst, and nothing more."""
    limit = Limit("smtp", rate="100/s", burst=2)
    app.jobs.enqueue("mail", "first", limit=limit)
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)
    clock.advance("1h")
    app.jobs.enqueue_many("mail", range(20), limit=limit)

    assert numbers(app.jobs.reserve("mail", limit=20)) == [0, 1]


def test_rate_and_concurrency_hold_together(app, clock):
    app.jobs.enqueue_many("mail", range(9), limit=Limit("smtp", rate="1/s", burst=5, concurrency=2))
    leases = app.jobs.reserve("mail", limit=9)
    assert numbers(leases) == [0, 1]

    for lease in leases:
        app.jobs.complete(lease)

    assert numbers(app.jobs.reserve("mail", limit=9)) == [2, 3]


def test_upkeep_lets_in_what_was_forgotten_half_way(app, clock):
    """As by a worker that died between the end of a lease and what follows from it."""
    app.jobs.enqueue_many("mail", range(2), limit=Limit("smtp", rate="1/m"))
    [lease] = app.jobs.reserve("mail", limit=2)
    app.jobs.complete(lease)
    clock.advance("2m")

    app.upkeep.run()

    assert app.jobs.stats_topic("mail").ready == 1


def test_a_count_of_jobs_over_limits_ends_at_a_bound(app):
    for key in ("fax", "smtp"):
        app.jobs.enqueue_many(key, range(5), limit=Limit(key, concurrency=1))
        app.jobs.reserve(key, limit=5)

    def told(found):
        return [(each.key, each.running, each.blocked, each.exact) for each in found]

    whole = [("fax", 1, 4, True), ("smtp", 1, 4, True)]
    assert told(app.limits.list()) == told(app.limits.list(most=10)) == whole
    assert told(app.limits.list(most=8)) == [("fax", 1, 4, False), ("smtp", 1, 4, False)]
    assert told(app.limits.list(most=4)) == [("fax", 1, 2, False), ("smtp", 1, 2, False)]
    assert told(app.topics.limits("smtp", most=3)) == [("smtp", 1, 3, False)]
    assert app.topics.limits("other") == []


def test_limits_that_bind_nobody_are_forgotten(app, clock):
    app.jobs.enqueue("mail", limit=Limit("smtp", concurrency=1))
    [lease] = app.jobs.reserve("mail")
    assert [limit.key for limit in app.limits.list()] == ["smtp"]
    app.jobs.complete(lease)
    clock.advance("2m")

    app.upkeep.run()

    assert app.limits.list() == []


@pytest.mark.parametrize(
    "limit",
    [
        "printer", Limit("printer"), Limit("", concurrency=1), Limit("x", concurrency=0),
        Limit("x", rate="often"), Limit("x", rate="0/s"), Limit("x", rate="3"),
        Limit("x", rate="3/fortnight"), Limit("x", rate="1/s", burst=0),
    ],
)  # fmt: skip
@pytest.mark.one_database
def test_a_limit_that_makes_no_sense_is_refused(app, limit):
    with pytest.raises(Invalid):
        app.jobs.enqueue("print", limit=limit)

    assert app.jobs.stats().pending == 0


@pytest.mark.parametrize("topics", [("mail",), ("mail", "post")], ids=len)
def test_a_look_that_holds_no_limits_takes_nothing_where_some_are(app, topics):
    """Else it would lease a job to find out, and could be overtaken with it in hand."""
    app.jobs.enqueue("post")
    app.jobs.enqueue("mail", limit=Limit("printer", concurrency=1))

    found = app.run(reserving.reserve(topics, limit=9, token=1))

    assert (found.leases, found.limited) == ([], True)
    assert len(app.jobs.reserve(topics, limit=9)) == len(topics)


def test_a_limit_that_comes_by_a_change_counts(app):
    for key in "ab":
        app.jobs.enqueue("mail", key=key)
        app.jobs.enqueue("mail", key=key, unique="update", limit=ONE)

    assert len(app.jobs.reserve("mail", limit=9)) == 1


def test_a_topic_that_has_lost_its_mark_keeps_its_limits(app):
    """As after a race, or by code of before: the first reservation that meets a limit marks it."""
    app.jobs.enqueue_many("print", range(3), limit=ONE)
    asked(app, "update towpath.topic set limited = false returning name")

    assert numbers(app.jobs.reserve("print", limit=9)) == [0]
    assert len(asked(app, "select 1 from towpath.topic where limited")) == 1


def test_a_topic_that_had_jobs_with_limits_is_not_forgotten(make_app, colour, clock):
    """A transaction that is open may be about to store another."""
    app = colour(make_app(clock=clock, topic_cleanup=True))
    app.jobs.enqueue("print", limit=ONE)
    app.jobs.enqueue("mail")
    for lease in app.jobs.reserve(["print", "mail"], limit=2):
        app.jobs.delete(lease)
    clock.advance(3_600)
    app.upkeep.run()

    assert app.topics.list() == ["print"]


def asked(app, text):
    """Run one statement past the verbs."""

    def steps():
        return (yield Statement("test", {"any": text})())

    return app.run(Operation("test", steps))
