"""Reserving: who gets which job, and when."""

import pytest

from tests.conftest import eventually
from towpath import App, State, Status
from towpath.app.low_water import MOST_MARKS
from towpath.errors import Invalid, LeaseLost, NotFound

pytestmark = pytest.mark.both_colours


def test_a_reserved_job_is_given_to_nobody_else(app):
    """US2-5"""
    job = app.jobs.enqueue("mail", {})

    [lease] = app.jobs.reserve("mail")

    assert lease.job.id == job.id
    assert app.jobs.get(job).status is Status.PROCESSING
    assert app.jobs.reserve("mail") == []


def test_smaller_priorities_first_and_fifo_within(app):
    """DQ-2"""
    for name, priority in [("b1", 50), ("c", 60), ("a", 0), ("b2", 50)]:
        app.jobs.enqueue("mail", name, priority=priority)

    leases = app.jobs.reserve("mail", limit=10)

    assert [lease.job.payload for lease in leases] == ["a", "b1", "b2", "c"]


def test_over_several_topics_the_best_priority_wins(app):
    """DQ-2: S12: not the topic that is named first."""
    for topic, priority in [("one", 50), ("two", 5), ("three", 20), ("two", 50), ("one", 1)]:
        app.jobs.enqueue(topic, priority, priority=priority)

    leases = app.jobs.reserve(["one", "two", "three"], limit=4)

    assert [lease.job.payload for lease in leases] == [1, 5, 20, 50]
    assert leases[3].job.topic == "one"


def test_a_job_is_not_reserved_before_its_time(app, clock):
    """US1-3, US3-1, DQ-3"""
    app.jobs.enqueue("mail", {}, delay=500)

    clock.advance(499.999999)
    assert app.jobs.reserve("mail") == []
    clock.advance("0.001ms")
    assert len(app.jobs.reserve("mail")) == 1


def test_a_due_job_runs_in_its_place_in_line(app, clock):
    """US3-2"""
    app.jobs.enqueue("mail", "later but urgent", delay=10, priority=1)
    app.jobs.enqueue("mail", "now")

    clock.advance(10)

    assert app.jobs.reserve("mail")[0].job.payload == "later but urgent"


def test_a_job_can_wait_until_an_instant(app, clock):
    """DQ-3"""
    at = clock.now.replace(year=2027)
    app.jobs.enqueue("mail", {}, run_at=at)

    assert app.jobs.reserve("mail") == []
    clock.advance(at - clock.now)
    assert len(app.jobs.reserve("mail")) == 1


def test_a_due_job_of_one_topic_is_not_overtaken_from_another(app, clock):
    app.jobs.enqueue("one", "urgent", delay=10, priority=1)
    app.jobs.enqueue("two", "idle", priority=90)
    clock.advance(10)

    assert app.jobs.reserve(["two", "one"])[0].job.payload == "urgent"


def test_a_job_whose_ttr_is_over_is_ready_again(app, clock):
    """DQ-4, US5-2: TTR expiry counts timeouts only (S8)."""
    job = app.jobs.enqueue("mail", {}, ttr=60)
    [first] = app.jobs.reserve("mail")

    clock.advance(59)
    assert app.jobs.reserve("mail") == []
    clock.advance(1)
    [second] = app.jobs.reserve("mail")

    assert (first.epoch, second.epoch) == (1, 2)
    found = app.jobs.get(job)
    assert (found.timeouts, found.retries, found.releases, found.crashes) == (1, 0, 0, 0)
    with pytest.raises(LeaseLost):
        app.jobs.complete(first)
    app.jobs.complete(second)
    assert app.jobs.get(job).state is State.COMPLETED


def test_a_lease_lives_five_minutes_unless_told(app, clock):
    """US5-1, US5-3"""
    app.jobs.enqueue("mail", {})
    [lease] = app.jobs.reserve("mail")

    assert (lease.until - clock.now).total_seconds() == 300
    clock.advance(299)
    assert app.jobs.get(lease.job).state is State.RESERVED


def test_a_job_taken_over_can_complete(app, clock):
    """US5-4"""
    app.jobs.enqueue("mail", {})
    app.jobs.reserve("mail")
    clock.advance("5m")
    [lease] = app.jobs.reserve("mail")

    app.jobs.complete(lease)

    assert app.jobs.get(lease.job).status is Status.COMPLETED


def test_a_lease_past_its_end_that_nobody_rescued_is_still_good(app, clock):
    app.jobs.enqueue("mail", {}, ttr=1)
    [lease] = app.jobs.reserve("mail")
    clock.advance(100)

    app.jobs.complete(lease)

    assert app.jobs.get(lease.job).state is State.COMPLETED


def test_a_reserve_repeated_with_its_token_returns_the_same_leases(app):
    app.jobs.enqueue_many("mail", range(5))

    first = app.jobs.reserve("mail", limit=3, token=77)
    again = app.jobs.reserve("mail", limit=3, token=77)

    assert [lease.job.id for lease in again] == [lease.job.id for lease in first]
    assert [lease.epoch for lease in again] == [1, 1, 1]
    assert app.jobs.stats().reserved == 3


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
@pytest.mark.one_database
def test_a_limit_that_makes_no_sense_is_refused(app, limit):
    with pytest.raises(Invalid):
        app.jobs.reserve("mail", limit=limit)


def test_nothing_ready_is_an_empty_list(app):
    assert app.jobs.reserve(["a", "b"], limit=5) == []


def test_a_paused_topic_hands_out_nothing_and_loses_nothing(app):
    """MS-10"""
    app.jobs.enqueue("mail", 1)
    app.jobs.enqueue("post", 2, priority=90)
    app.topics.pause("mail")

    assert app.jobs.reserve("mail") == []
    assert app.jobs.reserve(["mail", "post"])[0].job.payload == 2
    app.topics.resume("mail")
    assert app.jobs.reserve("mail")[0].job.payload == 1


def test_a_topic_that_does_not_exist_is_paused_only_on_request(app):
    with pytest.raises(NotFound, match="there is no topic 'mial'"):
        app.topics.pause("mial")
    assert app.topics.list() == []

    app.topics.pause("mail", create=True)
    app.jobs.enqueue("mail")
    assert app.jobs.reserve("mail") == []


def test_the_topic_of_a_task_can_be_paused_before_its_first_job(make_app):
    app = make_app()

    @app.task()
    def mail():
        pass

    app.topics.pause("mail")

    assert app.jobs.stats_topic("mail").paused


def test_a_topic_can_be_paused_for_a_while(app, clock):
    app.jobs.enqueue("mail", 1)
    app.topics.pause("mail", "10s")

    clock.advance(9.9)
    assert app.jobs.reserve("mail") == []
    assert app.jobs.stats_topic("mail").paused
    clock.advance(0.1)
    assert len(app.jobs.reserve("mail")) == 1
    assert not app.jobs.stats_topic("mail").paused


def test_jobs_of_many_priorities_and_topics_come_in_order(app):
    for number in range(60):
        app.jobs.enqueue(f"t{number % 3}", number, priority=(number * 7) % 11)

    order = []
    while leases := app.jobs.reserve(["t0", "t1", "t2"], limit=7):
        order += [(lease.job.priority, lease.job.seq) for lease in leases]

    assert order == sorted(order)
    assert len(order) == 60


def test_a_released_job_keeps_its_place_even_right_behind_a_reservation(app):
    """The low-water marks of a worker hide nothing of its own."""
    app.jobs.enqueue_many("mail", range(6))
    leases = app.jobs.reserve("mail", limit=2)
    app.jobs.release(leases[0])

    assert [lease.job.payload for lease in app.jobs.reserve("mail", limit=2)] == [0, 2]


def test_the_best_job_comes_first_also_among_more_priorities_than_there_are_marks(app):
    """Low-water marks stay few, for each costs a look, and nothing is hidden before or between."""
    waiting = [app.jobs.enqueue("mail", priority=2 * number) for number in range(30)]
    for number in range(60):
        waiting.append(app.jobs.enqueue("mail", priority=number * 17 % 60))
        best = min(waiting, key=lambda job: (job.priority, job.seq))
        waiting.remove(best)

        [lease] = app.jobs.reserve("mail")

        assert lease.job.id == best.id
        assert len(app._marks.ranges(["mail"])) <= MOST_MARKS + 1


def test_what_another_process_gave_back_is_found_soon(durable_place):
    """Low-water marks live for a second at most."""
    url, needed = durable_place
    with App(url, **needed) as here, App(url, **needed) as there:
        here.jobs.enqueue_many("mail", range(4))
        [first] = here.jobs.reserve("mail", limit=1)
        there.jobs.release(first)

        found = []
        eventually(lambda: found.extend(here.jobs.reserve("mail")) or len(found) == 4)

    assert sorted(lease.job.payload for lease in found) == [0, 1, 2, 3]


def test_what_a_reservation_rescues_keeps_its_place_in_line(app, clock):
    """Low-water marks do not hide what comes back into line."""
    app.jobs.enqueue_many("mail", range(5), ttr=10)
    app.jobs.reserve("mail", limit=3)
    clock.advance(10)

    order = [lease.job.payload for _ in range(5) for lease in app.jobs.reserve("mail")]

    assert order == [0, 1, 2, 3, 4]


def test_a_job_of_a_topic_that_nobody_reserves_stays_pending(app, clock):
    """EC-3"""
    job = app.jobs.enqueue("nobody", {})
    clock.advance("30d")
    app.upkeep.run()

    assert app.jobs.get(job).status is Status.PENDING
