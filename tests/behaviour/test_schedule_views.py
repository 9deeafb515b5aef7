"""Schedules as people see them: in words, with their next fires, and what became of the last."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from towpath import Limit
from towpath.errors import Invalid
from towpath.model.backoff import Backoff
from towpath.model.cron_words import words_of
from towpath.model.instants import instant
from towpath.model.schedule import MOST_CRON, rule_of

ZONES = ["UTC", "Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("30 * * * *", "at minute 30 of every hour"),
        ("0,30 * * * *", "at minutes 0 and 30 of every hour"),
        ("0 7 * * *", "at 07:00 every day"),
        ("0 7,19 * * *", "at 07:00 and 19:00 every day"),
        ("15 6 * * 1", "at 06:15 on Monday"),
        ("15 6 * * MON-FRI", "at 06:15 on Monday to Friday"),
        ("0 0 * * 0,7", "at 00:00 on Sunday and Sunday"),
        ("0 0 1 * *", "at 00:00 on day 1 of the month"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 1,15 6 *", "at 00:00 on days 1 and 15 of the month in June"),
        ("0 0 1 1-3 *", "at 00:00 on day 1 of the month in January to March"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"),
        ("0 */2 * * *", "at minute 0 of every second hour"),
        ("*/10 9-17 * * 1-5", "every 10 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("1-59/2 * * * *", "by the cron rule 1-59/2 * * * *"),
        ("0 0 * * 5#2", "by the cron rule 0 0 * * 5#2"),
        ("0 0 LW * *", "by the cron rule 0 0 LW * *"),
    ],
)
def test_a_rule_is_said_in_words(cron, words):
    assert words_of(rule_of(cron, None, "Europe/Zurich")) == f"{words}, Europe/Zurich"


@pytest.mark.parametrize(
    ("every", "words"),
    [(90, "90 s"), (300, "5 min"), (7200, "2 h"), (86_400, "1 d"), (1.5, "1.5 s")],
)
def test_an_interval_is_said_in_its_largest_unit(every, words):
    assert words_of(rule_of(None, every, None)) == f"every {words}"


def test_a_hostile_rule_is_refused_before_it_is_read():
    for text in ("0" * MOST_CRON + " * * * *", ",".join(["1"] * MOST_CRON) + " * * * *"):
        with pytest.raises(Invalid, match="must have five fields"):
            rule_of(text, None, None)


def random_rule(chance):
    minute = chance.choice(["*", "*/7", "0", "30", "59", "5,35"])
    hour = chance.choice(["*", "*/3", "0", "2", "3", "1-4", "23"])
    day = chance.choice(["*", "*", "1", "L", "10-20"])
    return f"{minute} {hour} {day} * {chance.choice(['*', '*', '0', '1-5'])}"


def test_a_preview_is_what_the_rule_does_also_where_clocks_change(app):
    """P4 of the dashboard"""
    chance = random.Random(7)  # noqa: S311 - no secret
    changes = [datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC)]
    for _ in range(50):
        cron, tz = random_rule(chance), chance.choice(ZONES)
        since = chance.choice(changes) + timedelta(hours=chance.randrange(0, 500))
        rule = rule_of(cron, None, tz)
        wanted, at = [], instant(since)
        for _ in range(5):
            at = rule.after(at)
            wanted.append(at)

        found = app.schedules.preview(cron=cron, tz=tz, since=since)

        assert [instant(fire) for fire in found.fires] == wanted, (cron, tz, since)
        assert found.words


def test_a_preview_begins_now_and_is_bounded(app, clock):
    found = app.schedules.preview(every=60, count=1_000)

    assert len(found.fires) == 20
    assert found.fires[0] == clock.now + timedelta(minutes=1)


def test_a_schedule_tells_what_became_of_its_last_fires(app, clock):
    """P4 of the dashboard"""
    app.schedules.set("sweep", topic="clean", every=60)
    for _ in range(4):
        clock.advance(60)
        app.upkeep.run()
    [done, failed, _, _] = app.jobs.reserve("clean", limit=4)
    app.jobs.complete(done)
    app.jobs.bury(failed, error="no")

    history = app.schedules.history("sweep")

    assert [str(fire.state) for fire in history] == [
        "reserved", "reserved", "buried", "completed",
    ]  # fmt: skip
    assert [fire.at for fire in history] == [clock.now - timedelta(minutes=n) for n in range(4)]
    assert history[3].job == done.job.id


def test_fires_are_found_behind_changes_that_keep_the_rule(app, clock):
    app.schedules.set("sweep", topic="clean", every=60)
    clock.advance(60)
    app.upkeep.run()
    for nth in range(5):
        app.schedules.set("sweep", topic="clean", every=60, payload=nth)

    [fire, *_] = app.schedules.history("sweep")

    assert str(fire.state) == "ready"


def test_a_schedule_without_a_fire_has_no_history(app):
    app.schedules.set("sweep", topic="clean", every=60)

    assert app.schedules.history("sweep") == []


def test_a_schedule_tells_all_options_of_its_jobs(app):
    backoff = Backoff.exponential(5, 3, most="1h", jitter=0.5)
    limit = Limit("shop", concurrency=2, rate="10/s", burst=3)
    set_ = app.schedules.set(
        "sweep", topic="clean", every=60, priority=7, key="k", ttr=9, max_retries=8,
        retention="1h", backoff=backoff, limit=limit, headers={"a": "b"},
    )  # fmt: skip

    assert (set_.priority, set_.key, set_.ttr) == (7, "k", timedelta(seconds=9))
    assert (set_.options.max_retries, set_.options.retention) == (8, 3600)
    assert (set_.options.backoff, set_.options.limit) == (backoff, limit)
    assert set_.options.headers == (("a", "b"),)


def test_a_schedule_that_code_declares_is_known(make_app):
    app = make_app()
    assert app.schedules.is_declared("sweep") is None

    @app.schedule(every=60)
    @app.task()
    def sweep() -> None: ...

    assert app.schedules.is_declared("sweep")
    assert app.schedules.is_declared("other") is False
