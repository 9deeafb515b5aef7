"""A clock that is set back by ten minutes stops nothing for ten minutes.

DESIGN promise 6: time is one clock, the database's. See docs/decisions/0005-clock.md.
"""

from datetime import UTC, datetime, timedelta

import pytest

from towpath import Limit, State
from towpath.errors import LoginRefused, NotFound, TooManyLogins

pytestmark = pytest.mark.usefixtures("quick_passwords")

STEP = 600  # seconds
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)  # when every clock of a test begins


def fired(app):
    """How often the schedules of these tests have fired."""
    return app.jobs.stats_topic("report").ready


def pass_time(app, clock, seconds, every=1):
    """Let time pass while upkeep looks every so many seconds."""
    for _ in range(0, seconds, every):
        clock.advance(every)
        app.upkeep.run()


def test_a_key_with_a_rate_goes_on_at_its_rate(app, clock):
    app.jobs.enqueue_many("mail", range(9), limit=Limit("smtp", rate="1/s", burst=3))
    assert len(app.jobs.reserve("mail", limit=9)) == 3
    app.upkeep.run()

    clock.set_back(STEP)
    app.upkeep.run()

    assert app.jobs.reserve("mail", limit=9) == []  # what has started still counts
    for _ in range(3):
        clock.advance(1)
        assert len(app.jobs.reserve("mail", limit=9)) == 1


def test_a_schedule_that_fires_every_minute_goes_on(app, clock):
    app.schedules.set("poll", topic="report", every="1m")
    pass_time(app, clock, 120, every=20)
    assert fired(app) == 2

    clock.set_back(STEP)
    pass_time(app, clock, 180, every=20)

    assert fired(app) == 5
    assert app.schedules.get("poll").next_at == clock.now + timedelta(minutes=1)


def test_a_cron_rule_with_a_star_goes_on(app, clock):
    app.schedules.set("poll", topic="report", cron="* * * * *")
    pass_time(app, clock, 120, every=20)

    clock.set_back(STEP)
    pass_time(app, clock, 180, every=20)

    assert fired(app) == 5


def test_a_cron_rule_with_a_fixed_time_does_not_fire_again(app, clock):
    """As in Debian's cron: what was done at five past twelve was done."""
    app.schedules.set("daily", topic="report", cron="5 12 * * *")
    clock.advance("5m")
    app.upkeep.run()

    clock.set_back(STEP)
    pass_time(app, clock, STEP + 60, every=60)

    assert fired(app) == 1
    assert app.schedules.get("daily").next_at == NOON + timedelta(days=1, minutes=5)


def test_a_cron_rule_fires_by_the_right_time_after_one_that_was_wrong_by_a_year(app, clock):
    app.schedules.set("daily", topic="report", cron="5 12 * * *")
    clock.advance(timedelta(days=365))
    app.upkeep.run()
    assert fired(app) == 1

    clock.set_back(timedelta(days=365))
    app.upkeep.run()
    clock.advance("5m")
    app.upkeep.run()

    assert fired(app) == 2


@pytest.mark.parametrize("rule", [{"every": "5m"}, {"cron": "*/5 * * * *"}])
def test_a_fire_that_was_just_made_is_not_repeated(app, clock, rule):
    app.schedules.set("poll", topic="report", **rule)
    clock.advance("5m")
    app.upkeep.run()

    clock.set_back(2)
    pass_time(app, clock, 5)

    assert fired(app) == 1
    assert app.schedules.get("poll").next_at == NOON + timedelta(minutes=10)


def test_a_login_waits_no_longer_than_its_wrong_passwords_cost(app, clock):
    app.accounts.create("users", "ada@example.com", "the right password")
    for _ in range(5):
        with pytest.raises(LoginRefused):
            app.accounts.login("users", "ada@example.com", "wrong password", client="10.0.0.1")
    with pytest.raises(TooManyLogins):
        app.accounts.login("users", "ada@example.com", "the right password", client="10.0.0.1")

    clock.set_back(STEP)
    clock.advance(12)

    app.accounts.login("users", "ada@example.com", "the right password", client="10.0.0.1")


def test_a_statement_that_waited_for_a_row_is_no_clock_that_went_back(app, clock):
    """On PostgreSQL its clock is some seconds behind that of the statements before it."""
    for _ in range(5):
        with pytest.raises(LoginRefused):
            app.accounts.login("users", "ada@example.com", "wrong password", client="10.0.0.1")

    clock.set_back(5)

    with pytest.raises(TooManyLogins):
        app.accounts.login("users", "ada@example.com", "wrong password", client="10.0.0.1")


def test_wrong_passwords_still_cost_after_it(app, clock):
    def fail():
        with pytest.raises(LoginRefused):
            app.accounts.login("users", "ada@example.com", "wrong password", client="10.0.0.1")

    for _ in range(5):
        fail()
    clock.set_back(STEP)

    for _ in range(5):
        fail()
    with pytest.raises(TooManyLogins):
        app.accounts.login("users", "ada@example.com", "wrong password", client="10.0.0.1")


def test_a_dead_worker_is_noticed_in_its_time(app, clock):
    app.jobs.enqueue("mail")
    session = app.sessions.start("w1")
    [lease] = app.jobs.reserve("mail", session=session)
    pass_time(app, clock, 20)

    clock.set_back(STEP)
    app.upkeep.run()
    pass_time(app, clock, 29)
    assert app.jobs.get(lease.job).state is State.RESERVED  # its silence counts from the step on
    pass_time(app, clock, 1)

    assert app.jobs.get(lease.job).state is State.READY


@pytest.mark.parametrize("touched", [False, True])
def test_the_lease_of_a_holder_that_is_gone_ends_at_its_ttr(app, clock, touched):
    app.jobs.enqueue("mail", ttr=60)
    [lease] = app.jobs.reserve("mail")
    if touched:
        clock.advance(30)
        app.jobs.touch(lease)
    app.upkeep.run()

    clock.set_back(STEP)
    app.upkeep.run()
    clock.advance(59)
    assert app.jobs.reserve("mail") == []
    clock.advance(1)

    [again] = app.jobs.reserve("mail")
    assert (again.job.id, again.job.timeouts) == (lease.job.id, 1)


def test_a_lease_that_was_touched_since_is_left_as_it_is(app, clock):
    app.jobs.enqueue("mail", ttr=60)
    [lease] = app.jobs.reserve("mail")
    app.upkeep.run()

    clock.set_back(STEP)
    app.jobs.touch(lease)
    clock.advance(10)
    app.upkeep.run()

    assert app.jobs.get(lease.job).until == clock.now + timedelta(seconds=50)
    clock.advance(20)
    app.jobs.complete(lease)
    assert app.jobs.get(lease.job).duration == timedelta(seconds=20)


def test_a_process_that_starts_after_it_brings_near_what_lies_ahead(make_app, colour, clock):
    """As after a reboot with a wrong clock: no process is left that saw the clock go back."""
    app = colour(make_app(clock=clock))
    app.schedules.set("poll", topic="report", every="1m")
    app.jobs.enqueue("mail", ttr=60)
    app.jobs.reserve("mail")

    clock.set_back(STEP)
    app.upkeep.run()
    clock.advance(60)
    app.upkeep.run()

    assert fired(app) == 1
    assert len(app.jobs.reserve("mail")) == 1


def test_a_delayed_job_still_runs_at_its_instant(app, clock):
    app.jobs.enqueue("mail", delay=60)
    app.upkeep.run()

    clock.set_back(STEP)
    pass_time(app, clock, 2)
    assert app.jobs.reserve("mail") == []
    clock.advance(STEP + 60)

    assert len(app.jobs.reserve("mail")) == 1


def test_finished_jobs_are_forgotten_by_the_new_time(app, clock):
    app.jobs.enqueue("mail", retention=60)
    [lease] = app.jobs.reserve("mail")
    app.upkeep.run()

    clock.set_back(STEP)
    app.jobs.complete(lease)
    clock.advance(61)
    app.upkeep.run()

    with pytest.raises(NotFound):
        app.jobs.get(lease.job)


def test_a_job_that_ends_right_after_the_step_took_no_time(app, clock):
    """Its average counts no time backwards."""
    app.jobs.enqueue_many("mail", range(2))
    first, second = app.jobs.reserve("mail", limit=2)

    clock.set_back(STEP)
    app.jobs.complete(first)
    app.jobs.complete(second)

    assert app.jobs.stats().avg_duration_ms == 0
