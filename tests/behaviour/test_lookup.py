"""Looking: lists, peeks, failures and statistics."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from towpath import State, Status
from towpath.app import outcomes
from towpath.errors import Invalid, NotFound
from towpath.model.pages import Total
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import leases
from towpath.store.stats import KEPT_DAYS, KEPT_MINUTES, MOST_MINUTES


def one_of_each(app):
    """Store a job in every state, named after it."""
    for name in ("completed", "buried", "reserved"):
        app.jobs.enqueue("mail", name)
    app.jobs.enqueue("mail", "cancelled")
    app.jobs.enqueue("mail", "delayed", delay=60)
    app.jobs.enqueue("post", "ready", key="a%_b")
    done, aside, _ = app.jobs.reserve("mail", limit=3)
    app.jobs.complete(done)
    app.jobs.bury(aside)
    [job] = app.jobs.list(topic="mail", status="pending", text="cancelled")
    app.jobs.cancel(job)


def names(jobs):
    return [job.payload for job in jobs]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, ["ready", "delayed", "cancelled", "reserved", "buried", "completed"]),
        ("pending", ["ready", "delayed"]),
        ("processing", ["reserved"]),
        ("completed", ["completed"]),
        ("failed", ["buried"]),
        (Status.CANCELLED, ["cancelled"]),
        ("ready", ["ready"]),
        (State.DELAYED, ["delayed"]),
        ("blocked", []),
        ("reserved", ["reserved"]),
        ("buried", ["buried"]),
    ],
)
def test_jobs_are_listed_by_status_or_state_newest_first(app, status, expected):
    """US6-1, US6-3, US7-3's list, without HTTP."""
    one_of_each(app)

    assert names(app.jobs.list(status=status)) == expected
    assert names(app.jobs.list(status=status, topic="mail")) == [
        n for n in expected if n != "ready"
    ]


def test_blocked_jobs_are_listed(app):
    first = app.jobs.enqueue("mail", "first")
    app.jobs.enqueue("mail", "second", after=[first])

    assert names(app.jobs.list(status="blocked")) == ["second"]


def test_jobs_are_listed_by_topic_key_and_text(app):
    one_of_each(app)

    assert names(app.jobs.list(topic="post")) == ["ready"]
    assert names(app.jobs.list(key="a%_b")) == ["ready"]
    assert names(app.jobs.list(text="DEL")) == ["delayed"]
    assert names(app.jobs.list(text="a%_")) == ["ready"]  # in its key
    assert names(app.jobs.list(text="a%d")) == []
    assert app.jobs.list(topic="nowhere") == []


def test_jobs_are_listed_by_the_worker_that_has_them(app):
    app.jobs.enqueue("mail", "by session", key="k")
    app.jobs.enqueue_many("mail", ["by name", "waits"])
    app.jobs.reserve("mail", session=app.sessions.start("web-1"))
    app.jobs.reserve("mail", worker="web-2")

    assert names(app.jobs.list(worker="web-1")) == ["by session"]
    assert names(app.jobs.list(worker="web-2", status="processing")) == ["by name"]
    assert app.jobs.list(worker="web-1", topic="post") == []
    assert names(app.jobs.list(worker="web-1", key="k")) == ["by session"]
    assert app.jobs.list(worker="web-2", key="k") == []
    assert app.jobs.page(worker="web-1", counts=True).total == Total(1, exact=True)
    with pytest.raises(Invalid, match="leave out `worker`"):
        app.jobs.list(worker="web-1", status="failed")


def test_pages_by_offset_and_by_the_last_job_agree(app):
    """US6-1"""
    app.jobs.enqueue_many("mail", range(25))

    by_offset, by_last, last = [], [], None
    for page in range(3):
        by_offset += names(app.jobs.list(limit=10, offset=10 * page))
        jobs = app.jobs.list(limit=10, before=last)
        last = jobs[-1]
        by_last += names(jobs)

    assert by_offset == by_last == list(range(24, -1, -1))


@pytest.mark.parametrize("bad", [{"limit": 0}, {"offset": -1}, {"status": "done"}, {"colour": 1}])
@pytest.mark.one_database
def test_a_list_that_makes_no_sense_is_refused(app, bad):
    with pytest.raises(Invalid):
        app.jobs.list(**bad)


def test_a_job_shows_what_people_ask_for(app, clock):
    """US6-2"""
    app.jobs.enqueue("mail", {}, max_retries=2)
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, RuntimeError("no"))

    [job] = app.jobs.list()

    assert (job.topic, job.status, job.retries) == ("mail", "pending", 1)
    assert (job.run_at - clock.now).total_seconds() == 60
    assert job.last_error == "RuntimeError: no"


def test_failures_are_kept_oldest_first(app, clock):
    """US6-4"""
    app.jobs.enqueue("mail", {})
    for number in range(3):
        [lease] = app.jobs.reserve("mail")
        app.jobs.fail(lease, f"no {number}")
        clock.advance("1h")

    failures = app.jobs.failures(lease.job)

    assert [failure.error for failure in failures] == ["no 0", "no 1", "no 2"]
    assert [failure.epoch for failure in failures] == [1, 2, 3]


def test_failed_runs_are_counted_whatever_else_was_reserved(app):
    job = app.jobs.enqueue("mail", max_retries=5)
    for error in (None, "no", None, "not known", "no again"):
        [lease] = app.jobs.reserve("mail")
        if error is None:
            app.jobs.release(lease)
        elif error == "not known":
            app.run(leases.settle([outcomes.not_yet(lease, error, 5)]))
            app.jobs.kick("mail")
        else:
            app.jobs.fail(lease, error, delay=0)

    failures = app.jobs.failures(job)
    assert [(each.run, each.epoch, each.error) for each in failures] == [
        (1, 2, "no"), (None, 4, "not known"), (2, 5, "no again"),
    ]  # fmt: skip


def test_of_very_many_failures_the_last_hundred_are_kept(app):
    """US6-4: A job that is tried for ever does not fill the database."""
    job = app.jobs.enqueue("mail", max_retries=1_000)
    for n in range(103):
        [lease] = app.jobs.reserve("mail")
        app.jobs.fail(lease, f"no {n}", delay=0)

    assert [failure.epoch for failure in app.jobs.failures(job)] == list(range(4, 104))


def test_peeks_show_the_next_without_taking_it(app):
    """DQ-6"""
    q = app.queue("mail")
    for state in ("ready", "delayed", "buried"):
        with pytest.raises(NotFound):
            getattr(q, f"peek_{state}")()
    one_of_each(app)
    app.jobs.enqueue("mail", "urgent", priority=1)

    assert q.peek_ready().payload == "urgent"
    assert q.peek_delayed().payload == "delayed"
    assert q.peek_buried().payload == "buried"
    assert q.peek(q.peek_ready().id).state is State.READY
    assert app.jobs.stats_topic("mail").ready == 1


def test_stats_count_every_state(app, clock):
    """US6-6, DQ-15"""
    one_of_each(app)
    clock.advance(2)
    [lease] = app.jobs.reserve("post")
    clock.advance(3)
    app.jobs.complete(lease)

    stats = app.jobs.stats()

    assert (stats.topics, stats.ready, stats.delayed, stats.reserved) == (2, 0, 1, 1)
    assert (stats.buried, stats.cancelled, stats.completed, stats.failed_total) == (1, 1, 2, 0)
    assert stats.success_rate == 1
    assert stats.avg_duration_ms == 1_500
    assert app.jobs.stats_topic("post").avg_duration_ms == 3_000


def test_the_success_rate_counts_what_failed_for_good(app):
    """US6-6"""
    app.jobs.enqueue_many("mail", range(4), max_retries=1)
    good, *others = app.jobs.reserve("mail", limit=4)
    app.jobs.complete(good)
    for lease in others:
        app.jobs.fail(lease, "no")

    assert app.jobs.stats().success_rate == 0.25
    assert app.jobs.stats_topic("mail").failed_total == 3


def test_failed_jobs_are_counted_as_they_are_listed(app):
    """US6-6"""
    app.jobs.enqueue_many("mail", range(3), max_retries=1)
    failed, buried, other = app.jobs.reserve("mail", limit=3)
    app.jobs.fail(failed, "no")
    app.jobs.bury(buried)
    app.jobs.fail(other, "no")
    app.jobs.requeue(other.job)

    assert len(app.jobs.list(status="failed")) == 2
    for stats in (app.jobs.stats(), app.jobs.stats_topic("mail")):
        assert (stats.failed, stats.failed_total) == (2, 2)
    app.jobs.requeue(buried.job)
    assert (app.jobs.stats().failed, app.jobs.stats().failed_total) == (1, 2)


def times(app):
    """How many times of each kind are counted, up to ten seconds and in all, and their sum."""
    return {
        (each.topic, each.kind): (each.up_to[10.0], each.count, each.total)
        for each in app.topics.histograms()
    }


def test_run_and_waiting_times_of_completed_jobs_are_counted(app, clock):
    app.jobs.enqueue_many("mail", range(3))
    app.jobs.enqueue("post", delay=10)
    clock.advance(4)
    first, *others = app.jobs.reserve("mail", limit=3)
    clock.advance(7)
    app.jobs.complete(first)
    clock.advance(6)
    app.jobs.complete_many([*others, others[0]])
    [late] = app.jobs.reserve("post")
    app.jobs.complete(late)

    expected = {
        ("mail", "run"): (1, 3, 7 + 13 + 13),
        ("mail", "wait"): (3, 3, 3 * 4),
        ("post", "run"): (1, 1, 0),
        ("post", "wait"): (1, 1, 7),
    }
    assert times(app) == expected
    clock.advance("1h")
    app.upkeep.run()
    assert times(app) == expected


def test_a_job_that_runs_again_has_no_waiting_time(app, clock):
    app.jobs.enqueue("mail", backoff=0)
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "no")
    clock.advance(60)
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)

    assert times(app) == {("mail", "run"): (1, 1, 0), ("mail", "wait"): (0, 0, 0)}


def test_times_of_a_topic_that_is_gone_are_forgotten(app, clock):
    app.jobs.enqueue("mail", retention=0)
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)
    clock.advance("1h")
    app.upkeep.run()
    query(app, "delete from towpath.topic")
    clock.advance("1h")
    app.upkeep.run()

    assert query(app, "select * from towpath.histogram") == []


def test_retries_and_crashes_are_counted(app, clock):
    app.jobs.enqueue("mail", max_retries=3, backoff=0)
    for _ in range(3):
        [lease] = app.jobs.reserve("mail")
        app.jobs.fail(lease, "no")
    app.jobs.enqueue("mail")
    session = app.sessions.start("worker", ["mail"])
    app.sessions.beat(session, started=app.jobs.reserve("mail", session=session))
    app.upkeep.run()
    for _ in range(30):
        clock.advance(1)
        app.upkeep.run()

    mail = app.jobs.stats_topic("mail")
    assert (mail.retries, mail.failed_total, mail.crashes) == (2, 1, 1)
    clock.advance((MOST_MINUTES + 1) * 60)
    app.upkeep.run()
    mail = app.jobs.stats_topic("mail")
    assert (mail.retries, mail.failed_total, mail.crashes) == (2, 1, 1)


def test_statistics_survive_retention_and_rolling_up(app, clock):
    app.jobs.enqueue_many("mail", range(10), retention=60)
    for lease in app.jobs.reserve("mail", limit=10):
        clock.advance(1)
        app.jobs.complete(lease)
    before = app.jobs.stats_topic("mail")
    minutes = app.jobs.throughput("mail")

    clock.advance("1h")
    app.upkeep.run()

    assert app.jobs.list() == []
    assert app.jobs.stats_topic("mail") == before
    assert sum(minute.completed for minute in minutes) == 10
    assert app.jobs.throughput("mail", minutes=70) == minutes


def query(app, text, **params):
    """Run a statement on the app's own database, whichever it is."""

    def steps():
        return (yield Statement("of a test", {"any": text})(**params))

    return app.run(Operation("of a test", steps))


def test_old_outcomes_are_told_by_the_hour_then_by_the_day_and_then_summed_up(app, clock):
    """The totals never change, and old outcomes take few rows."""
    app.jobs.enqueue_many("mail", range(2))
    for lease in app.jobs.reserve("mail", limit=2):
        clock.advance(60)
        app.jobs.complete(lease)
    app.upkeep.run()
    query(
        app,
        "insert into towpath.minute (minute, topic, completed, failed, duration)"
        " with recursive n(i) as (select 1 union all select i + 1 from n where i < 2500)"
        " select cast(:latest as bigint) - i, 'mail', 2, 1, 0 from n",
        latest=clock() // 60_000_000 - 10,
    )
    before = app.jobs.stats_topic("mail")
    assert (before.completed, before.failed_total) == (5_002, 2_500)

    def counted(minutes, step):
        history = app.jobs.history("mail", minutes=minutes, step=step)
        return sum(point.completed for point in history.points)

    assert counted(2_880, 300) == 5_002
    for passed, minutes, step, most in (
        (KEPT_MINUTES + 60, MOST_MINUTES, 3_600, 45),
        (MOST_MINUTES, KEPT_DAYS, 86_400, 4),
        (KEPT_DAYS, KEPT_DAYS, 86_400, 1),
    ):
        clock.advance(passed * 60)
        app.upkeep.run()
        assert app.jobs.stats_topic("mail") == before
        assert app.jobs.stats().completed == 5_002
        assert counted(minutes, step) == (0 if most == 1 else 5_002)
        rows = query(app, "select 1 from towpath.minute union all select 1 from towpath.period")
        assert len(rows) <= most


def test_the_history_has_each_step_and_what_was_ready(app, clock):
    clock.advance(60 - clock() / 1e6 % 60)
    app.jobs.enqueue_many("mail", range(3), max_retries=1)
    app.jobs.enqueue("post")
    app.upkeep.run()
    started = clock.now
    clock.advance(120)
    app.jobs.complete(*app.jobs.reserve("mail"))
    app.jobs.fail(*app.jobs.reserve("mail"), "no")
    app.upkeep.run()

    history = app.jobs.history(minutes=4, step=60)

    points = [(each.completed, each.failed, each.ready) for each in history.points]
    assert points == [(0, 0, None), (0, 0, 4), (0, 0, None), (1, 1, 2)]
    assert [each.oldest_at for each in history.points] == [None, started, None, started]
    assert (history.step, history.start) == (60, started - timedelta(seconds=60))
    of_mail = app.jobs.history("mail", minutes=2, step=60).points[-1]
    assert (of_mail.completed, of_mail.failed, of_mail.ready) == (1, 1, 1)
    by_topic = app.jobs.history(minutes=4, step=60, by_topic=True)
    ready = {name: [each.ready for each in points] for name, points in by_topic.topics.items()}
    assert ready == {"mail": [None, 3, None, 1], "post": [None, 1, None, 1]}
    assert by_topic.points == []
    clock.advance("3d")
    app.upkeep.run()
    assert len(query(app, "select 1 from towpath.depth where topic = ''")) == 1


def test_a_topic_that_is_empty_again_has_no_depth(app, clock):
    app.jobs.enqueue("mail")
    app.upkeep.run()
    clock.advance(60)
    app.jobs.complete(*app.jobs.reserve("mail"))
    app.upkeep.run()

    assert [each.ready for each in app.jobs.history("mail", minutes=2).points] == [1, 0]


@pytest.mark.one_database
@pytest.mark.parametrize(
    "bad", [{"step": 7}, {"minutes": 0}, {"minutes": 2_881}, {"minutes": 1_501},
            {"minutes": MOST_MINUTES + 1, "step": 3_600}, {"minutes": 400 * 1440 + 1}],
)  # fmt: skip
def test_a_history_that_is_not_known_so_finely_is_refused(app, bad):
    with pytest.raises(Invalid):
        app.jobs.history(**bad)


def test_old_outcomes_of_a_topic_that_is_gone_are_forgotten(make_app, colour, clock):
    app = colour(make_app(clock=clock, topic_cleanup=True))
    app.jobs.enqueue("mail", retention=0)
    app.jobs.complete(*app.jobs.reserve("mail"))
    app.upkeep.run()
    assert app.topics.list() == []

    for _ in range(2):
        clock.advance((KEPT_DAYS + 1) * 60)
        app.upkeep.run()

    assert query(app, "select 1 from towpath.minute union all select 1 from towpath.period") == []


@pytest.mark.parametrize("minutes", [0, -1, MOST_MINUTES + 1, 1.5, "60", None])
def test_only_minutes_that_are_kept_can_be_asked_for(app, minutes):
    with pytest.raises(Invalid):
        app.jobs.throughput(minutes=minutes)


def test_stats_of_a_topic_that_does_not_exist(app):
    with pytest.raises(NotFound):
        app.jobs.stats_topic("nowhere")


def test_a_job_shows_its_counters(app, clock):
    """DQ-6"""
    q = app.queue("mail")
    job = q.put(b"x", ttr=10)
    q.reserve(timeout=0).release()
    q.reserve(timeout=0)
    clock.advance(10)
    q.reserve(timeout=0).bury()
    q.kick(1)

    stats = q.stats_job(job.id)

    assert (stats.epoch, stats.releases, stats.timeouts, stats.buries, stats.kicks) == (
        3,
        1,
        1,
        1,
        1,
    )


def test_callers_at_the_same_time_are_answered_together_and_each_for_itself(make_app, loop):
    app = make_app()
    made = [app.jobs.enqueue("mail", n) for n in range(20)]

    async def ask():
        wanted = [*(job.id for job in made), uuid4(), made[0].id]
        return await asyncio.gather(*map(app.jobs.aget, wanted), return_exceptions=True)

    for _ in range(2):  # in the second round they are known to come together
        *found, missing, again = asyncio.run_coroutine_threadsafe(ask(), loop).result()

        assert [job.payload for job in found] == list(range(20))
        assert isinstance(missing, NotFound)
        assert again == found[0]


def test_one_who_stops_waiting_takes_no_answer_from_the_others(make_app, loop):
    app = make_app()
    made = [app.jobs.enqueue("mail", n) for n in range(10)]

    async def ask():
        asked = [asyncio.ensure_future(app.jobs.aget(job)) for job in made * 2]
        await asyncio.sleep(0)
        asked[3].cancel()
        return await asyncio.gather(*asked, return_exceptions=True)

    for _ in range(2):
        found = asyncio.run_coroutine_threadsafe(ask(), loop).result()

        others = [job.payload for n, job in enumerate(found) if n != 3]
        assert others == [0, 1, 2, *range(4, 10), *range(10)]


def test_a_number_is_no_id_and_the_error_names_the_verb_for_numbers(app):
    with pytest.raises(Invalid, match=r"numbered\(7\)"):
        app.jobs.get(7)
