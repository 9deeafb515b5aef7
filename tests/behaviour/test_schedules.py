"""Schedules: jobs that are enqueued again and again, at their time, once.

MS-10: repeatable jobs, by cron and by every.
"""

import asyncio
import itertools
import logging
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.behaviour.test_worker import working  # noqa: F401 - a fixture
from tests.conftest import eventually
from towpath import App, Context
from towpath.app import upkeep
from towpath.errors import Conflict, Invalid, InvalidArguments, NotFound
from towpath.model import schedule as model
from towpath.model.ids import uuid7
from towpath.model.instants import as_datetime, instant
from towpath.model.schedule import Cron, Every, fire_id, rule_of
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import jobs
from towpath.store import schedules as store

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)  # when every clock of a test begins


def fired(app, topic="report"):
    """The fire times of the jobs of a topic, in their order."""
    jobs = app.jobs.list(topic=topic, limit=1_000)
    return sorted(job.run_at for job in jobs)


def at(hour, minute=0, second=0, *, day=15):
    return NOON.replace(day=day, hour=hour, minute=minute, second=second)


# ---------------------------------------------------------------- rules


def test_every_fires_at_multiples_of_its_duration(app, clock):
    """MS-10"""
    clock.advance(17)
    found = app.schedules.set("poll", topic="report", payload={"n": 1}, every="5m")
    assert (found.next_at, found.last_at, found.every) == (at(12, 5), None, timedelta(minutes=5))

    for _ in range(20):
        clock.advance(60)
        app.upkeep.run()

    assert fired(app) == [at(12, 5), at(12, 10), at(12, 15), at(12, 20)]
    assert {job.payload["n"] for job in app.jobs.list(topic="report")} == {1}
    found = app.schedules.get("poll")
    assert (found.next_at, found.last_at) == (at(12, 25), at(12, 20))


def test_cron_fires_by_the_clock_of_its_time_zone(app, clock):
    """MS-10"""
    found = app.schedules.set("nightly", topic="report", cron="0 3 * * *", tz="Europe/Zurich")
    assert found.next_at == datetime(2026, 11, 16, 3, tzinfo=ZoneInfo("Europe/Zurich"))

    clock.advance("14h")
    app.upkeep.run()
    assert fired(app) == [at(2, day=16)]


def test_cron_is_in_utc_unless_told(app):
    found = app.schedules.set("nightly", topic="report", cron="0  3 * *   *")

    assert (found.cron, found.tz, found.next_at) == ("0 3 * * *", "UTC", at(3, day=16))


def test_a_schedule_does_not_fire_before_its_time(app, clock):
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance(299.999999)
    app.upkeep.run()
    assert fired(app) == []

    clock.advance(0.000001)
    app.upkeep.run()
    app.upkeep.run()
    assert fired(app) == [at(12, 5)]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"every": 0},
        {"every": "500ms"},
        {"every": -1},
        {"every": "often"},
        {"every": "5m", "cron": "* * * * *"},
        {"every": "5m", "tz": "UTC"},
        {"cron": "* * * *"},
        {"cron": "0 0 3 * * *"},
        {"cron": "@daily"},
        {"cron": "61 * * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "* * */20 * 1L"},
        {"cron": "* * * * 1#2/2"},
        {"cron": 5},
        {"cron": "* * * * *", "tz": "Mars/Olympus"},
        {"cron": "* * * * *", "tz": "../etc/passwd"},
        {"cron": "* * * * *", "tz": ""},
        {"every": "5m", "catch_up": "some"},
        {"every": "5m", "delay": 5},
        {"every": "5m", "run_at": NOON},
        {"every": "5m", "priority": -1},
        {"every": "5m", "nonsense": 1},
        {"every": "5m", "topic": "no such topic"},
        {"every": "5m", "name": ""},
        {"every": "5m", "name": "x" * 201},
        {"every": "5m", "name": "a\0b"},
        {"every": "5m", "name": 7},
    ],
)
@pytest.mark.one_database
def test_what_makes_no_sense_is_refused_before_it_is_stored(make_app, wrong):
    app = make_app()
    given = {"name": "poll", "topic": "report", **wrong}

    with pytest.raises(Invalid):
        app.schedules.set(given.pop("name"), **given)
    assert app.schedules.list() == []


def test_a_rule_that_leaves_no_doubt_what_is_wrong_says_so():
    with pytest.raises(Invalid, match=r"cron '61 \* \* \* \*' cannot be read: Bad minute"):
        rule_of("61 * * * *", None, None)
    with pytest.raises(Invalid, match="unknown time zone 'Europe/Zürich'"):
        rule_of("* * * * *", None, "Europe/Zürich")
    with pytest.raises(Invalid, match="never fires"):
        rule_of("* * */20 * 1L", None, None)


# ---------------------------------------------------------------- the clock on the wall


def walls(cron, tz, day, days=1):
    """When a rule fires in some days: the time on the wall, with the offset from UTC."""
    zone = ZoneInfo(tz)
    since = datetime.fromisoformat(day).replace(tzinfo=zone)
    until = instant((since.replace(tzinfo=None) + timedelta(days=days)).replace(tzinfo=zone))
    rule, found = Cron(cron, tz), []
    fire = rule.after(instant(since) - 1)
    while fire < until:
        found.append(as_datetime(fire).astimezone(zone).strftime("%d %H:%M%z"))
        fire = rule.after(fire)
    return found


@pytest.mark.parametrize(
    ("tz", "day", "cron", "expected"),
    [
        # The clock leaps from 02:00 to 03:00.
        ("Europe/Zurich", "2026-03-29", "30 2 * * *", ["29 03:00+0200"]),
        ("Europe/Zurich", "2026-03-29", "0,30 2,3 * * *", ["29 03:00+0200", "29 03:30+0200"]),
        ("America/New_York", "2026-03-08", "30 2 * * *", ["08 03:00-0400"]),
        # It shows 02:00 to 03:00 twice; in New York 01:00 to 02:00.
        ("Europe/Zurich", "2026-10-25", "30 2 * * *", ["25 02:30+0200"]),
        ("America/New_York", "2026-11-01", "30 1 * * *", ["01 01:30-0400"]),
        # From 02:00 to 02:30, and from 02:00 back to 01:30.
        ("Australia/Lord_Howe", "2026-10-04", "15 2 * * *", ["04 02:30+1100"]),
        ("Australia/Lord_Howe", "2026-04-05", "45 1 * * *", ["05 01:45+1100"]),
        # Midnight itself does not exist.
        ("America/Santiago", "2026-09-06", "0 0 * * *", ["06 01:00-0300"]),
    ],
)
def test_a_fixed_time_fires_once_a_day_whatever_the_clock_does(tz, day, cron, expected):
    assert walls(cron, tz, day) == expected


def test_a_day_that_does_not_exist_is_made_up_for_when_it_is_over():
    """Samoa went from the 29th of December 2011 to the 31st."""
    assert walls("30 2 * * *", "Pacific/Apia", "2011-12-29", days=3) == [
        "29 02:30-1000",
        "31 00:00+1400",
        "31 02:30+1400",
    ]


@pytest.mark.parametrize(
    ("tz", "day", "hours"),
    [
        ("Europe/Zurich", "2026-03-29", 23),
        ("Europe/Zurich", "2026-10-25", 25),
        ("America/New_York", "2026-03-08", 23),
        ("America/New_York", "2026-11-01", 25),
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("UTC", "2026-03-29", 24),
    ],
)
def test_a_rule_with_a_star_fires_in_every_real_quarter_of_an_hour(tz, day, hours):
    found = walls("*/15 * * * *", tz, day)

    assert len(found) == len(set(found)) == hours * 4


@pytest.mark.parametrize(
    ("tz", "day", "cron", "expected"),
    [
        ("Europe/Zurich", "2026-10-25", "*/30 2 * * *",
         ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]),
        ("Europe/Zurich", "2026-03-29", "*/30 2 * * *", []),
        ("Australia/Lord_Howe", "2026-04-05", "30 */1 * * *",
         ["05 00:30+1100", "05 01:30+1100", "05 01:30+1030", "05 02:30+1030"]),
        ("Australia/Lord_Howe", "2026-04-05", "0 */2 * * *",
         ["05 00:00+1100", "05 02:00+1030", "05 04:00+1030"]),
        ("Australia/Lord_Howe", "2026-10-04", "30 * * * *",
         ["04 00:30+1030", "04 01:30+1030", "04 02:30+1100"]),
    ],
)  # fmt: skip
def test_a_rule_with_a_star_follows_the_clock(tz, day, cron, expected):
    assert walls(cron, tz, day)[: max(1, len(expected))] == expected


@pytest.mark.parametrize(
    ("cron", "since", "expected"),
    [
        ("0 0 29 2 *", "2026-01-01", ["2028-02-29", "2032-02-29"]),
        ("0 0 31 * *", "2026-01-01", ["2026-01-31", "2026-03-31", "2026-05-31"]),
        ("0 0 L * *", "2027-12-01", ["2027-12-31", "2028-01-31", "2028-02-29", "2028-03-31"]),
        ("0 0 * * MON#1", "2026-11-15", ["2026-12-07", "2027-01-04"]),
        ("0 0 1,15 * FRI", "2026-11-15", ["2026-11-20", "2026-11-27", "2026-12-01"]),
    ],
)
def test_leap_days_ends_of_months_and_weekdays(cron, since, expected):
    rule, fire = Cron(cron, "UTC"), instant(datetime.fromisoformat(since).replace(tzinfo=UTC))
    for day in expected:
        fire = rule.after(fire)
        assert as_datetime(fire) == datetime.fromisoformat(day).replace(tzinfo=UTC)


def test_the_next_fire_is_the_same_from_wherever_one_looks():
    """Also from within an hour that comes twice."""
    for cron in ("30 2 * * *", "*/20 2 * * *", "0 * * * *"):
        rule = Cron(cron, "Europe/Zurich")
        start = instant(datetime(2026, 10, 24, 20, tzinfo=UTC))
        minutes = [start + n * 60 * 10**6 for n in range(10 * 60)]
        fires = sorted({rule.after(minute) for minute in minutes})
        for minute in minutes:
            assert rule.after(minute) == next(fire for fire in fires if fire > minute)


def test_the_whole_way_through_both_changes_of_the_clock(make_app, clock):
    """MS-10: a year of nights in Zurich has as many fires as nights."""
    app = make_app(clock=clock)
    app.schedules.set("nightly", topic="report", cron="30 2 * * *", tz="Europe/Zurich")
    for _ in range(365):
        clock.advance("1d")
        app.upkeep.run()

    nights = Counter(at.astimezone(ZoneInfo("Europe/Zurich")).date() for at in fired(app))
    assert len(nights) == 365
    assert set(nights.values()) == {1}


# ---------------------------------------------------------------- catching up


def test_late_fires_become_one_job_unless_told(app, clock):
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance("1h2m")
    app.upkeep.run()

    assert fired(app) == [at(13, 0)]
    assert app.schedules.get("poll").next_at == at(13, 5)


def test_catch_up_all_makes_each_of_them(app, clock):
    app.schedules.set("poll", topic="report", every="5m", catch_up="all")
    clock.advance("21m")
    app.upkeep.run()

    assert fired(app) == [at(12, 5), at(12, 10), at(12, 15), at(12, 20)]


def test_catch_up_all_makes_a_thousand_at_most_and_says_so(app, clock, caplog):
    app.schedules.set("poll", topic="report", every="1m", catch_up="all")
    clock.advance("365d")
    with caplog.at_level(logging.WARNING, "towpath"):
        app.upkeep.run()

    assert "schedule 'poll' missed more than 1000 fires" in caplog.text
    end = NOON + timedelta(days=365)
    assert app.jobs.stats().ready == 1_000
    assert fired(app) == [end - timedelta(minutes=n) for n in reversed(range(1_000))]


def test_catch_up_skip_drops_what_is_a_minute_late(app, clock):
    app.schedules.set("poll", topic="report", every="5m", catch_up="skip")
    clock.advance(6 * 60)  # 12:06
    app.upkeep.run()
    assert fired(app) == []
    assert (app.schedules.get("poll").next_at, app.schedules.get("poll").last_at) == (
        at(12, 10),
        None,
    )

    clock.advance(4 * 60 + 59)  # 12:10:59
    app.upkeep.run()
    assert fired(app) == [at(12, 10)]


def test_a_job_that_fires_late_can_be_reserved_at_once(app, clock):
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance("17m")
    app.upkeep.run()

    [lease] = app.jobs.reserve("report")
    assert lease.job.run_at == at(12, 15)
    assert lease.job.created_at == at(12, 17)


def test_the_fire_time_is_still_known_when_the_job_is_tried_again(app, clock):
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance("5m")
    app.upkeep.run()
    [lease] = app.jobs.reserve("report")
    app.jobs.fail(lease, "no ink")
    clock.advance("1m")

    [lease] = app.jobs.reserve("report")
    assert (lease.job.retries, lease.job.run_at) == (1, at(12, 5))


# ---------------------------------------------------------------- never twice


def test_a_fire_that_two_have_seen_is_made_once(app, clock):
    """Both read it before either fires: the second finds that it has moved on."""
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance("5m")
    plans = [store.planned(found) for found in app.run(store.look(None))]

    first = app.run(store.fire(plans, app.storing.each))
    second = app.run(store.fire(plans, app.storing.each))

    assert (len(first), second) == (1, [])
    assert fired(app) == [at(12, 5)]
    assert app.schedules.get("poll").next_at == at(12, 10)


@pytest.mark.parametrize(
    "change",
    [
        lambda app: app.schedules.set("poll", topic="other", every="5m"),
        lambda app: app.schedules.pause("poll"),
        lambda app: app.schedules.delete("poll"),
    ],
)
def test_a_fire_is_not_made_from_what_has_changed_since(app, clock, change):
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance("5m")
    plans = [store.planned(found) for found in app.run(store.look(None))]
    change(app)

    assert app.run(store.fire(plans, app.storing.each)) == []
    assert fired(app) == []


def test_a_clock_that_goes_back_brings_no_fixed_time_back(app, clock):
    app.schedules.set("poll", topic="report", cron="5 12 * * *")
    clock.advance("5m")
    app.upkeep.run()
    clock.set_back("3m")  # 12:02
    app.schedules.pause("poll")
    app.schedules.resume("poll")
    app.schedules.set("poll", topic="report", cron="5,6 12 * * *")
    assert app.schedules.get("poll").next_at == at(12, 6)

    for _ in range(8):  # 12:10
        clock.advance("1m")
        app.upkeep.run()
    assert fired(app) == [at(12, 5), at(12, 6)]


def test_one_that_is_deleted_and_set_again_at_the_same_minute_fires_once_in_it(app, clock):
    """The job of a fire has an id of its own: made of the schedule's name, epoch and the time."""
    for _ in range(2):
        app.schedules.set("poll", topic="report", every="5m")
        clock.advance("5m")
        app.upkeep.run()
        app.schedules.delete("poll")
        clock.set_back("5m")
    assert [job.id for job in app.jobs.list()] == [fire_id("poll", 1, instant(at(12, 5)))]


def test_the_id_of_a_fire_is_a_uuid_of_its_time():
    first, second = (fire_id("poll", 1, instant(at(12, minute))) for minute in (5, 6))

    assert first.version == second.version == 7
    assert first.variant == second.variant == "specified in RFC 4122"
    assert first < second
    assert first.int >> 80 == instant(at(12, 5)) // 1000
    assert fire_id("other", 1, instant(at(12, 5))) != first
    assert fire_id("poll", 2, instant(at(12, 5))) != first


_rounds = itertools.count(1)
_minute = 60 * 10**6
_rules = st.one_of(
    st.integers(1, 90).map(lambda minutes: {"every": minutes * 60}),
    st.builds(
        lambda minute, hour, tz: {"cron": f"{minute} {hour} * * *", "tz": tz},
        st.sampled_from(["*", "*/7", "0", "30", "5,10", "20-40/5"]),
        st.sampled_from(["*", "*/3", "2", "1-3", "0,12"]),
        st.sampled_from(["UTC", "Europe/Zurich", "America/New_York", "Australia/Lord_Howe"]),
    ),
)
_begins = ["2026-03-28T20:00", "2026-10-24T20:00", "2026-04-04T03:17", "2028-02-28T12:00"]
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 20 * 60)),  # minutes, in which no process looks
        st.tuples(st.just("look"), st.integers(0, 3)),  # one of up to four processes
        st.tuples(st.just("fire"), st.integers(0, 3)),  # what it saw when it looked
    ),
    max_size=20,
)


def expected_of(catch_up, missed, now):
    """What the policy says of the fires that were missed until now, in its own words."""
    match catch_up:
        case "all":
            return missed[-1_000:]
        case "latest":
            return missed[-1:]
        case "skip":
            return [at for at in missed[-1:] if now - at < _minute]


class Fires(list):
    """All fires of a rule, as far as a test has asked."""

    def __init__(self, rule, since):
        super().__init__([rule.after(since)])
        self._rule = rule

    def between(self, since, until):
        while self[-1] <= until:
            self.append(self._rule.after(self[-1]))
        return [at for at in self if since < at <= until]


def test_with_competitors_and_missed_fires_the_policy_holds(make_app, clock):
    """MS-10: Random rules, outages and competitors, some of which fire long after they looked."""
    app = make_app(clock=clock)

    @settings(max_examples=40)
    @given(_rules, st.sampled_from(["skip", "latest", "all"]), st.sampled_from(_begins), _steps)
    def holds(rule, catch_up, begin, steps):
        name = f"s{next(_rounds)}"
        clock.us = done_until = instant(datetime.fromisoformat(begin).replace(tzinfo=UTC))
        fires = Fires(rule_of(rule.get("cron"), rule.get("every"), rule.get("tz")), clock.us)
        app.schedules.set(name, topic=name, catch_up=catch_up, **rule)
        seen, expected = {}, []
        for verb, number in [*steps, ("pass", 1), ("look", 0), ("fire", 0)]:
            if verb == "pass":
                clock.us += number * _minute
            elif verb == "look":
                plans = [store.planned(found) for found in app.run(store.look(None))]
                seen[number] = (plans, done_until, clock.us)
            elif number in seen:
                plans, since, now = seen.pop(number)
                app.run(store.fire(plans, app.storing.each))
                missed = fires.between(since, now)
                if missed and since == done_until:  # no other was quicker
                    expected += expected_of(catch_up, missed, now)
                    done_until = now
        app.schedules.delete(name)
        assert [instant(at) for at in fired(app, name)] == expected[-1_000:]

    holds()


# ---------------------------------------------------------------- verbs


def test_a_paused_schedule_does_not_fire_and_catches_nothing_up(app, clock):
    app.schedules.set("poll", topic="report", every="5m", catch_up="all")
    app.schedules.pause("poll")
    assert (app.schedules.get("poll").paused, app.schedules.get("poll").next_at) == (True, None)
    clock.advance("22m")
    app.upkeep.run()
    app.schedules.resume("poll")
    assert (app.schedules.get("poll").paused, app.schedules.get("poll").next_at) == (
        False,
        at(12, 25),
    )

    clock.advance("5m")
    app.upkeep.run()
    assert fired(app) == [at(12, 25)]


def test_a_schedule_that_is_resumed_has_no_error_any_more(make_app, clock):
    plain = make_app(clock=clock)
    plain.schedules.set("poll", topic="report", every="5m")
    [row] = plain.run(store.find_all())
    plain.run(store.report(row, "the topic was full"))
    assert plain.schedules.get("poll").error == "the topic was full"

    plain.schedules.pause("poll")
    plain.schedules.resume("poll")

    assert plain.schedules.get("poll").error is None


def test_resuming_what_is_not_paused_changes_nothing(app, clock):
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance("7m")
    app.schedules.resume("poll")
    app.upkeep.run()

    assert fired(app) == [at(12, 5)]


def test_run_enqueues_now_and_leaves_the_next_fire_where_it_is(app, clock):
    app.schedules.set("poll", topic="report", payload={"n": 1}, every="5m", priority=7)
    clock.advance(90)
    app.schedules.pause("poll")
    app.schedules.run("poll")
    app.schedules.resume("poll")
    job = app.schedules.run("poll")

    assert (job.payload, job.priority, job.run_at) == ({"n": 1}, 7, clock.now)
    assert len(app.jobs.reserve("report", limit=9)) == 2
    assert app.schedules.get("poll").next_at == at(12, 5)


def test_a_schedule_is_listed_and_read(app):
    app.schedules.set("b", topic="report", cron="0 3 * * *", tz="Asia/Tokyo", catch_up="skip")
    app.schedules.set("a", topic="mail", payload=b"raw", every="90s")

    a, b = app.schedules.list()
    assert (a.name, a.topic, a.payload, a.every) == ("a", "mail", b"raw", timedelta(seconds=90))
    assert (a.cron, a.tz, a.catch_up, a.paused, a.error) == (None, None, "latest", False, None)
    assert b == app.schedules.get("b")
    assert (b.cron, b.tz, b.every, b.catch_up) == ("0 3 * * *", "Asia/Tokyo", None, "skip")


def test_a_deleted_schedule_fires_no_more_and_its_jobs_stay(app, clock):
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance("5m")
    app.upkeep.run()
    app.schedules.delete("poll")
    clock.advance("1h")
    app.upkeep.run()

    assert app.schedules.list() == []
    assert fired(app) == [at(12, 5)]


@pytest.mark.parametrize("verb", ["get", "pause", "resume", "run", "delete"])
def test_what_is_not_there_is_not_found(app, verb):
    with pytest.raises(NotFound, match="there is no schedule 'nothing'"):
        getattr(app.schedules, verb)("nothing")


def test_jobs_have_the_options_of_their_schedule(app, clock):
    app.schedules.set(
        "poll",
        topic="report",
        every="5m",
        priority=3,
        ttr="1m",
        max_retries=7,
        timeout="1h",
        key="k",
    )
    clock.advance("5m")
    app.upkeep.run()

    [job] = app.jobs.list()
    assert (job.priority, job.ttr, job.key) == (3, timedelta(minutes=1), "k")
    assert (job.options.max_retries, job.options.timeout) == (7, 3_600)


def test_with_a_key_no_job_comes_while_the_one_before_is_unfinished(app, clock):
    """This is how to say that runs must not overlap."""
    app.schedules.set("poll", topic="report", every="5m", key="poll")
    for _ in range(3):
        clock.advance("5m")
        app.upkeep.run()
    [lease] = app.jobs.reserve("report", limit=9)
    app.jobs.complete(lease)
    clock.advance("5m")
    app.upkeep.run()

    assert fired(app) == [at(12, 5), at(12, 20)]


# ---------------------------------------------------------------- changes


def test_setting_the_same_again_does_not_move_its_next_fire(app, clock):
    """A restart in the moment of a fire does not lose it."""
    app.schedules.set("poll", topic="report", every="5m")
    clock.advance("5m")
    app.schedules.set("poll", topic="report", every="5m")
    app.upkeep.run()

    assert fired(app) == [at(12, 5)]


def test_another_payload_does_not_move_the_next_fire(app, clock):
    app.schedules.set("poll", topic="report", payload=1, every="5m")
    clock.advance("5m")
    app.schedules.set("poll", topic="report", payload=2, every="5m")
    app.upkeep.run()

    assert [(job.run_at, job.payload) for job in app.jobs.list()] == [(at(12, 5), 2)]


def test_what_is_due_under_the_old_rule_fires_before_the_new_one_holds(app, clock):
    """A deploy after an outage changes the rule, and misses nothing."""
    app.schedules.set("poll", topic="report", payload="old", every="5m")
    clock.advance("7m")
    found = app.schedules.set("poll", topic="report", payload="new", cron="30 * * * *")
    assert (found.next_at, found.last_at) == (at(12, 30), at(12, 5))
    assert [(job.run_at, job.payload) for job in app.jobs.list()] == [(at(12, 5), "old")]

    clock.advance("23m")
    app.upkeep.run()
    assert fired(app) == [at(12, 5), at(12, 30)]


@pytest.fixture
def full(make_app, colour, clock):
    """An app with a topic that takes one job at a time and has it; three fires are due there."""
    app = colour(make_app(clock=clock, max_jobs_per_topic=1))
    app.jobs.enqueue("report", "in the way")
    app.schedules.set("poll", topic="report", payload="old", every="5m", catch_up="all")
    clock.advance("17m")
    app.upkeep.run()
    return app


def worked(app, topic="report"):
    """Complete what is there; return its payload and when it was to run."""
    leases = app.jobs.reserve(topic, limit=9)
    for lease in leases:
        app.jobs.complete(lease)
    return [(lease.job.payload, lease.job.run_at) for lease in leases]


def test_what_is_due_when_the_rule_changes_fires_when_it_can(full, clock):
    """As the schedule said before; the new rule waits for nothing."""
    found = full.schedules.set("poll", topic="report", payload="new", cron="30 * * * *")
    assert (found.next_at, found.last_at) == (at(12, 30), at(12, 15))
    assert "MaxJobsReached" in found.error
    full.upkeep.run()
    assert worked(full) == [("in the way", at(12))]

    for minute in (5, 10, 15):
        full.upkeep.run()
        full.upkeep.run()  # no second one
        assert worked(full) == [("old", at(12, minute))]
    full.upkeep.run()
    assert worked(full) == []

    clock.advance("13m")
    full.upkeep.run()
    assert worked(full) == [("new", at(12, 30))]
    assert full.schedules.get("poll").error is None


def test_a_rule_that_changes_again_owes_what_it_owed_before(full, clock):
    full.schedules.set("poll", topic="report", payload="newer", cron="20 * * * *")
    clock.advance("4m")
    full.schedules.set("poll", topic="report", payload="newest", cron="30 * * * *")

    made = []
    for _ in range(6):
        made += worked(full)
        full.upkeep.run()

    assert made[1:] == [
        ("old", at(12, 5)),
        ("old", at(12, 10)),
        ("old", at(12, 15)),
        ("newer", at(12, 20)),
    ]


@pytest.mark.parametrize("verb", ["pause", "delete"])
def test_what_is_owed_ends_with_the_schedule(full, verb):
    full.schedules.set("poll", topic="report", cron="30 * * * *")
    getattr(full.schedules, verb)("poll")

    worked(full)
    full.upkeep.run()

    assert worked(full) == []


def test_what_is_owed_is_fired_once_by_whoever_has_read_it(full):
    full.schedules.set("poll", topic="report", cron="30 * * * *")
    read = full.run(store.owed(None))
    worked(full)
    for _ in range(3):
        assert full.run(store.fire_owed(read, full.storing.each)) == {"report"}
        [lease] = full.jobs.reserve("report")
        full.jobs.complete(lease)

    assert full.run(store.fire_owed(read, full.storing.each)) == set()


def test_a_job_that_was_not_stored_when_the_rule_changed_is_owed(app, clock):
    """Its key changed hands; the other fires are stored and not owed."""

    def loses_the_second(new):
        def steps():
            answers = yield from app.storing.each(new[:1]).inside()
            return [*answers, *(Conflict("it changed hands") for _ in new[1:])]

        return Operation("enqueue", steps)

    app.schedules.set("poll", topic="report", payload="old", every="5m", catch_up="all")
    clock.advance("10m")
    job = jobs.NewJob(id=uuid7(), topic="report", body="1", encoding="json", priority=5, ttr=9)
    changed = store.NewSchedule(
        name="poll", rule=rule_of("30 * * * *", None, None), catch_up="latest", job=job
    )
    app.run(store.put_all([changed], loses_the_second))
    assert fired(app) == [at(12, 5)]
    assert [as_datetime(each.fire_at) for each in app.run(store.owed(None))] == [at(12, 10)]

    app.upkeep.run()

    assert fired(app) == [at(12, 5), at(12, 10)]


def test_a_due_fire_that_cannot_be_read_is_the_first_of_the_new_rule(app, clock):
    app.schedules.set("poll", topic="report", payload="old", cron="*/5 * * * *")
    spoil(app, "poll", tz="Mars/Olympus")
    clock.advance("7m")
    app.upkeep.run()
    app.schedules.set("poll", topic="report", payload="new", cron="30 * * * *")

    app.upkeep.run()

    assert worked(app) == [("new", at(12, 5))]
    assert app.schedules.get("poll").next_at == at(12, 30)


def test_a_paused_schedule_stays_paused_when_it_is_set_again(app, clock):
    app.schedules.set("poll", topic="report", every="5m")
    app.schedules.pause("poll")
    found = app.schedules.set("poll", topic="report", every="1m")
    assert (found.paused, found.next_at) == (True, None)

    clock.advance("1h")
    app.upkeep.run()
    assert fired(app) == []


# ---------------------------------------------------------------- beside the task


@pytest.fixture
def code(make_app, clock):
    return make_app(clock=clock)


def test_a_task_is_scheduled_where_it_is_written(code, clock):
    """MS-10"""

    @code.schedule("0 3 * * *", tz="Europe/Zurich", catch_up="skip", priority=9)
    @code.task(timeout="1h", priority=8)
    def clean(days: int = 30) -> None: ...

    @code.task()
    async def report(country: str, *, full: bool = False) -> None: ...

    code.schedule(every="5m", name="report-ch")(report, "CH", full=True)
    code.schedule(every="5m", name="report-de")(report, country="DE")
    assert clean(1) is None
    code.schedules.declare()

    found = {schedule.name: schedule for schedule in code.schedules.list()}
    assert list(found) == ["clean", "report-ch", "report-de"]
    assert found["clean"].next_at == at(2, day=16)
    assert found["report-ch"].payload == {"country": "CH", "full": True}
    clock.advance("14h")
    code.upkeep.run()
    [job] = code.jobs.list(topic="clean")
    assert (job.priority, job.options.timeout, job.payload) == (9, 3_600, {})
    assert len(fired(code)) == 2


def test_arguments_that_do_not_fit_are_refused_where_they_are_written(code):
    @code.task()
    def report(country: str) -> None: ...

    with pytest.raises(InvalidArguments, match="missing a required argument: 'country'"):
        code.schedule(every="5m")(report)
    with pytest.raises(Invalid, match="must have five fields"):
        code.schedule("nonsense")


def test_two_schedules_of_one_name_are_refused(code):
    @code.task()
    def report(country: str = "CH") -> None: ...

    code.schedule(every="5m")(report)
    code.schedule(every="5m")(report)  # a module that is loaded twice
    with pytest.raises(Conflict, match="another schedule is named 'report' already; pass `name=`"):
        code.schedule(every="5m")(report, "DE")


def declared(make_app, clock, *rules):
    """Start the code of one version of an application."""
    app = make_app(clock=clock)
    for name, every in rules:

        @app.task(name=name)
        def run() -> None: ...

        app.tasks.find(name).function.__qualname__ = name
        app.schedule(every=every)(app.tasks.find(name))
    app.schedules.declare()
    return app


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
def test_a_new_version_changes_what_it_declares_and_leaves_the_rest(make_app, clock):
    """A schedule that vanished from the code fires on until it is deleted by name."""
    old = declared(make_app, clock, ("a", "5m"), ("b", "5m"))
    old.schedules.pause("a")
    new = declared(make_app, clock, ("a", "10m"), ("c", "5m"))

    assert [s.name for s in new.schedules.list()] == ["a", "b", "c"]
    assert new.schedules.get("a").every == timedelta(minutes=10)
    assert new.schedules.get("a").paused

    old.schedules.declare()  # it has done so already: it does not bring its own rule back
    assert new.schedules.get("a").every == timedelta(minutes=10)


@pytest.fixture
def real(make_app):
    return make_app(beat_every=0.1, dead_after=5)


def test_a_worker_stores_fires_and_runs_what_is_declared(real, working):  # noqa: F811 - the fixture
    """MS-10"""
    runs = []

    @real.schedule(every="1s")
    @real.task()
    async def tick(ctx: Context, word: str = "tock") -> None:
        runs.append((ctx.job.run_at, word))

    with working(real):
        eventually(lambda: len(runs) >= 3)

    times = [at for at, _ in runs]
    assert len(set(times)) == len(times)
    assert all(at.microsecond == 0 for at in times)
    assert {word for _, word in runs} == {"tock"}


def test_a_schedule_fires_at_its_time_and_not_when_upkeep_comes_round(make_app, monkeypatch):
    """The next round is out of reach here: only knowing the next fire can bring it."""
    monkeypatch.setattr(upkeep, "EVERY", 600)
    app = make_app(dead_after=8_000)
    app.schedules.set("tick", topic="report", every="1s")

    app.upkeep.start()
    eventually(lambda: app.jobs.stats().ready >= 3)
    app.upkeep.stop()


# ---------------------------------------------------------------- what goes wrong


def spoil(app, name, **columns):
    """Write into a schedule what this version would never have written."""
    words = ", ".join(f"{column} = :{column}" for column in columns)
    text = f"update towpath.schedule set {words} where name = :name"  # noqa: S608 - our own words

    def steps():
        yield Statement("spoil", {"any": text})(name=name, **columns)

    app.run(Operation("spoil", steps))


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"tz": "Mars/Olympus"}, "Invalid: unknown time zone 'Mars/Olympus'"),
        ({"cron": "every full moon"}, "Invalid: cron 'every full moon' must have five fields"),
        ({"cron": None}, "Invalid: a schedule takes `cron` or `every`"),
        ({"catch_up": "some"}, "Invalid: catch_up must be skip, latest or all, not 'some'"),
        ({"job": '{"body": "1", "encoding": "json"}'}, "ValidationError: "),
    ],
)
def test_one_that_cannot_be_read_is_reported_once_and_stops_no_other(
    app, clock, caplog, columns, error
):
    """It stays due, so that a process that can read it fires it."""
    for name in ("a", "b", "c"):
        app.schedules.set(name, topic="report", cron="*/5 * * * *", payload=name)
    spoil(app, "b", **columns)
    with caplog.at_level(logging.ERROR, "towpath"):
        for _ in range(3):
            clock.advance("5m")
            app.upkeep.run()

    assert Counter(job.payload for job in app.jobs.list()) == {"a": 3, "c": 3}
    assert caplog.text.count("schedule 'b' could not fire") == 1
    assert app.schedules.get("b").error.startswith(error)
    app.schedules.set("b", topic="report", cron="*/5 * * * *", payload="b")
    assert app.schedules.get("b").error is None


def test_more_bad_ones_than_fit_a_page_stop_no_good_one(make_app, clock, monkeypatch):
    monkeypatch.setattr(store, "FIRE_AT_ONCE", 2)
    app = make_app(clock=clock)
    for number in range(7):
        app.schedules.set(f"s{number}", topic="report", payload=number, cron="*/5 * * * *")
    for number in range(5):
        spoil(app, f"s{number}", tz="Mars/Olympus")
    clock.advance("5m")
    app.upkeep.run()

    assert {job.payload for job in app.jobs.list()} == {5, 6}


def test_a_fire_waits_while_its_topic_is_full_and_stops_no_other(make_app, clock):
    app = make_app(clock=clock, max_jobs_per_topic=1)
    app.jobs.enqueue("full")
    for topic in ("empty", "full", "other"):
        app.schedules.set(topic, topic=topic, every="5m")
    clock.advance("5m")
    app.upkeep.run()
    assert (fired(app, "empty"), fired(app, "other")) == ([at(12, 5)], [at(12, 5)])
    assert "MaxJobsReached" in app.schedules.get("full").error

    [lease] = app.jobs.reserve("full")
    app.jobs.complete(lease)
    clock.advance("1m")
    app.upkeep.run()
    assert at(12, 5) in fired(app, "full")
    assert app.schedules.get("full").error is None


def test_a_fire_whose_job_could_not_be_stored_remains_due(app, clock):
    """Its key may change hands again and again while it is tried."""

    def loses(new):
        def steps():
            yield jobs.sql.clock()
            return [Conflict("it changed hands") for _ in new]

        return Operation("enqueue", steps)

    app.schedules.set("s", topic="t", every="5m")
    clock.advance("5m")
    [found] = app.run(store.look(None))
    [told] = app.run(store.fire([store.planned(found)], loses))
    assert isinstance(told.error, Conflict)

    app.upkeep.run()

    assert fired(app, "t") == [at(12, 5)]


@pytest.fixture
def borrowed(durable_place):
    """An app, and a connection to its database that is the caller's own."""
    url, needed = durable_place
    connect = {"sqlite": sqlite3.connect, "postgresql": psycopg.connect}[url.partition(":")[0]]
    with App(url, **needed) as app:
        app.migrate()
        connection = connect(url.removeprefix("sqlite:///"))
        yield app, connection
        connection.close()


def test_a_schedule_shares_the_fate_of_the_callers_transaction(borrowed):
    app, connection = borrowed
    app.schedules.set("kept", topic="report", every="5m", connection=connection)
    connection.commit()
    app.schedules.set("dropped", topic="report", every="5m", connection=connection)
    connection.rollback()

    assert [schedule.name for schedule in app.schedules.list()] == ["kept"]


def test_many_who_declare_the_same_at_once_store_it_once(make_app):
    app = make_app()

    def put(number):
        return app.schedules.set("poll", topic="report", every="5m").next_at

    async def aput():
        return (await app.schedules.aset("poll", topic="report", every="5m")).next_at

    with ThreadPoolExecutor(8) as threads:
        found = {*threads.map(put, range(40)), asyncio.run(aput())}
    assert len(found) <= 2  # one, unless five minutes were just over
    assert len(app.schedules.list()) == 1


def test_every_and_cron_agree_where_they_mean_the_same():
    every, cron = Every(300 * 10**6), Cron("*/5 * * * *", "UTC")
    for second in range(0, 3_600, 7):
        us = instant(NOON) + second * 10**6 + second
        assert every.after(us) == cron.after(us)


def test_a_year_of_missed_minutes_is_not_counted_through():
    calls = []

    class Counting(Every, frozen=True):
        def after(self, at):
            calls.append(at)
            return super().after(at)

    year = instant(NOON) - 365 * 86_400 * 10**6
    found = model.due(Counting(60 * 10**6), "latest", year, instant(NOON))
    assert found.fires == [instant(NOON)]
    assert len(calls) < 10
