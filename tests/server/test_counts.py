"""Counts over HTTP: statistics, throughput, failures by error, run times, topics."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.server.conftest import Web, refused, token_of
from towpath import App, Limit
from towpath.server import counts, statistics


@pytest.fixture
def ask(web, root):
    """Ask as a superuser."""

    def ask(path, status=200):
        said = web.get(path, as_=root)
        assert said.status_code == status, said.text
        return said.json()

    return ask


def test_tabs_show_what_their_lists_hold(web, ask, clock):
    """US6-6"""
    web.app.jobs.enqueue_many("mail", range(4), max_retries=1, retention=60)
    done, *failed = web.app.jobs.reserve("mail", limit=3)
    web.app.jobs.complete(done)
    for lease in failed:
        web.app.jobs.fail(lease, "no")
    web.app.jobs.requeue(failed[0].job)

    stats = ask("/api/jobs/stats")

    assert (stats["pending"], stats["failed"], stats["failedTotal"]) == (2, 1, 2)
    assert stats["completedNow"] == {"count": 1, "exact": True}
    assert stats["exact"] is True
    assert stats["at"] == clock.now.isoformat().replace("+00:00", "Z")
    clock.advance("1h")
    web.app.upkeep.run()
    stats = ask("/api/jobs/stats")
    assert (stats["completed"], stats["completedNow"]["count"]) == (1, 0)


def test_statistics_that_may_be_old_are_counted_once_for_all_viewers(web, ask, monkeypatch):
    """L2"""
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(statistics, "time", clock)
    now = 1_000.0
    web.app.jobs.enqueue("mail")
    assert ask("/api/jobs/stats?maxAge=5")["ready"] == 1
    web.app.jobs.enqueue("mail")

    now += 5
    assert ask("/api/jobs/stats?maxAge=5")["ready"] == 1
    assert ask("/api/jobs/stats?maxAge=2")["ready"] == 2
    assert ask("/api/jobs/stats?maxAge=60")["ready"] == 2
    assert ask("/api/jobs/stats")["ready"] == 2


def test_viewers_that_wait_for_a_long_count_share_it(quick_web, loop, monkeypatch):
    """L2"""
    monkeypatch.setattr(statistics, "time", SimpleNamespace(monotonic=lambda: now))
    now = 1_000.0
    shared = quick_web.api.shared.statistics

    async def pass_time():
        nonlocal now
        now += 10

    async def ask():
        return await asyncio.gather(shared.of_late(5), shared.of_late(5), pass_time())

    first, second, _ = asyncio.run_coroutine_threadsafe(ask(), loop).result(30)
    assert first is second


def test_a_count_beyond_the_bound_says_at_least(web, ask, monkeypatch):
    for each in (counts, statistics):
        monkeypatch.setattr(each, "MOST_COUNTED", 10)
    web.app.jobs.enqueue_many("mail", range(8))
    web.app.jobs.enqueue_many("post", range(3))

    assert (ask("/api/jobs/stats")["ready"], ask("/api/jobs/stats")["exact"]) == (8, False)
    mail, post = ask("/api/topics")["items"]
    assert (mail["ready"], mail["exact"], post["ready"], post["exact"]) == (5, False, 3, True)
    assert ask("/api/topics/mail")["ready"] == 8


def test_throughput_has_each_step(web, ask, clock):
    clock.advance(3600 - clock() / 1e6 % 3600)
    web.app.jobs.enqueue_many("mail", range(2))
    first, second = web.app.jobs.reserve("mail", limit=2)
    web.app.jobs.complete(first)
    clock.advance(3600)
    web.app.jobs.complete(second)
    web.app.upkeep.run()

    old = ask("/api/jobs/throughput?minutes=120")
    assert [each["completed"] for each in old["items"]] == [1, 1]
    new = ask("/api/jobs/throughput?minutes=180&step=3600")
    assert [each["completed"] for each in new["items"]] == [0, 1, 1]
    assert [each["ready"] for each in new["items"]] == [None, None, 0]
    assert (new["step"], new["topics"]) == (3600, None)
    assert new["from"] == new["items"][0]["at"].replace("+00:00", "Z")
    by_topic = ask("/api/jobs/throughput?minutes=180&step=3600&by=topic")
    assert by_topic["topics"]["mail"]["completed"] == [0, 1, 1]
    assert by_topic["topics"]["mail"]["avgExecutionTime"] == [None, 0, 3_600_000]
    for bad in ("step=7", "step=60&minutes=5000", "by=colour", "minutes=576001"):
        assert refused(web.get(f"/api/jobs/throughput?{bad}", as_=token_of_root(web))) == (
            400,
            "invalid",
        )


def token_of_root(web):
    return web.app.accounts.token(web.app.accounts.get("_superusers", "root@example.org"))


def test_failures_are_grouped_by_the_first_lines_of_their_errors(web, ask, clock):
    for topic, error in (
        ("mail", "old"),
        ("mail", "no host\nline 2"),
        ("post", "no host\nline 3"),
        ("post", "x" * 300),
    ):
        if error != "old":
            clock.advance("30m")
        web.app.jobs.enqueue(topic, {"password": "s3cret"}, max_retries=1)
        web.app.jobs.fail(*web.app.jobs.reserve(topic), error)
    web.app.jobs.enqueue("mail")
    web.app.jobs.bury(*web.app.jobs.reserve("mail"))

    recent = ask("/api/failures?minutes=61")

    assert [(each["error"][:20], each["count"], each["topics"]) for each in recent["groups"]] == [
        ("no host", 2, ["mail", "post"]),
        ("buried without an er", 1, ["mail"]),
        ("x" * 20, 1, ["post"]),
    ]
    assert len(recent["groups"][2]["error"]) == 200
    assert (len(recent["items"]), recent["lookedAt"]) == (4, 5)
    assert recent["groups"][0]["sample"] == recent["items"][2]["id"]
    assert "s3cret" not in str(recent)
    assert [each["error"] for each in ask("/api/failures?minutes=600&topic=mail")["groups"]] == [
        "buried without an error", "no host", "old",
    ]  # fmt: skip


def test_durations_tell_how_long_the_newest_jobs_took_and_waited(web, ask, clock):
    web.app.jobs.enqueue_many("mail", range(20))
    for lease in web.app.jobs.reserve("mail", limit=20):
        clock.advance(1)
        web.app.jobs.complete(lease)
    web.app.jobs.enqueue("post")
    clock.advance(5)
    web.app.jobs.complete(*web.app.jobs.reserve("post"))
    web.app.jobs.cancel(web.app.jobs.enqueue("mail"))

    took = ask("/api/jobs/durations?topic=mail")

    assert [each["durationMs"] for each in took["items"]] == [n * 1000 for n in range(20, 0, -1)]
    assert (took["p50"]["durationMs"], took["p95"]["durationMs"]) == (10_000, 19_000)
    assert took["p99"] == {"durationMs": 20_000, "waitMs": 0}
    assert ask("/api/jobs/durations?limit=1")["items"][0]["waitMs"] == 5_000
    nothing = ask("/api/jobs/durations?topic=nothing")
    assert (nothing["items"], nothing["p50"]) == ([], {"durationMs": None, "waitMs": None})


def test_a_topic_tells_its_rate_its_workers_and_when_it_will_be_empty(web, ask, clock):
    clock.advance(60 - clock() / 1e6 % 60)
    web.app.jobs.enqueue_many("mail", range(30), max_retries=1)
    web.app.upkeep.run()
    session = web.app.sessions.start("w1", ["mail"])
    web.app.topics.pause("mail", 600)
    until = clock.now.timestamp() + 600
    for _ in range(2):
        clock.advance(60)
        web.app.sessions.beat(session)
        web.app.topics.resume("mail")
        web.app.jobs.complete_many(web.app.jobs.reserve("mail", limit=4))
        web.app.jobs.fail(*web.app.jobs.reserve("mail"), "no")
    web.app.topics.pause("mail", 480)

    [mail] = ask("/api/topics")["items"]

    assert (mail["ready"], mail["workers"], mail["waiting"]) == (20, 1, 0)
    assert mail["rate"] == {"completed": 1.6, "failed": 0.4}
    assert mail["emptyInS"] == 240  # ten in two minutes
    assert mail["paused"] is True
    assert mail["pausedUntil"].startswith(
        clock.now.fromtimestamp(until, clock.now.tzinfo).isoformat()[:16]
    )
    web.app.topics.pause("mail")
    assert [(each["paused"], each["pausedUntil"]) for each in ask("/api/topics")["items"]] == [
        (True, None)
    ]


def test_a_topic_tells_the_arguments_of_its_task_and_its_limits(clock, loop, quick_passwords):
    with App("memory://", clock=clock) as app:

        @app.task()
        def mail(to: str, copies: int = 1) -> None: ...

        web = Web(app, loop)
        root = token_of(app, "_superusers", "root@example.org")
        app.jobs.enqueue_many("mail", [{"to": "a"}] * 3, limit=Limit("smtp", 1, rate="10/s"))
        app.jobs.reserve("mail", limit=2)
        app.jobs.enqueue("other")

        detail = web.get("/api/topics/mail", as_=root).json()
        other = web.get("/api/topics/other", as_=root).json()
        missing = web.get("/api/topics/nowhere", as_=root)
        web.close()

    assert detail["arguments"]["required"] == ["to"]
    assert detail["arguments"]["properties"]["copies"] == {"type": "integer"}
    assert detail["tasks"] == ["mail"]
    assert [(each["key"], each["running"], each["rate"]) for each in detail["limits"]] == [
        ("smtp", 1, 10)
    ]
    assert (other["arguments"], other["tasks"], other["limits"]) == (None, [], [])
    assert refused(missing) == (404, "not_found")


def test_counts_are_for_callers_that_may_manage(web, ada):
    web.app.jobs.enqueue("mail")
    web.app.access.set(access_rule="@job.payload.owner = 'ada'")
    for path in ("jobs/stats", "jobs/throughput", "failures", "jobs/durations", "topics/mail"):
        assert refused(web.get(f"/api/{path}", as_=ada)) == (403, "forbidden")


def test_depths_are_noted_once_whichever_process_comes_first(web, ask):
    web.app.jobs.enqueue("mail")

    async def both():
        await asyncio.gather(*(asyncio.to_thread(web.app.upkeep.run) for _ in range(2)))

    asyncio.run(both())
    assert ask("/api/jobs/throughput?minutes=1&step=60")["items"][0]["ready"] == 1
