"""Jobs over HTTP, asked by a superuser."""

import base64
from datetime import timedelta
from operator import attrgetter
from uuid import UUID, uuid4

import pytest
from msgspec import UNSET
from msgspec.structs import asdict, replace

from tests.server.conftest import Web, refused
from towpath import Job, State, UnreadableJob
from towpath.model.job import SHOWN, SHOWN_OTHERWISE
from towpath.server.metrics import METRICS
from towpath.server.outputs import JobShown, job_shown

ANY_USER = "@request.auth.id != ''"


@pytest.fixture
def ask(web, root):
    """Ask as a superuser."""
    return lambda method, path, json=None, **more: web(method, path, json, as_=root, **more)


def enqueued(ask, topic="mail", payload=None, **more):
    response = ask("POST", "/api/jobs/enqueue", {"topic": topic, "payload": payload, **more})
    assert response.status_code == 201, response.text
    return response.json()


def buried(web, topic="mail"):
    web.app.jobs.enqueue(topic, {})
    [lease] = web.app.jobs.reserve(topic)
    web.app.jobs.bury(lease)
    return str(lease.job.id)


def test_an_enqueued_job_has_an_id_and_is_pending(web, ask):
    """US7-1"""
    said = enqueued(ask, "mail_digest", {"userId": "123"})

    assert said["status"] == "pending"
    job = web.app.jobs.get(said["id"])
    assert (job.topic, job.payload) == ("mail_digest", {"userId": "123"})


def test_a_job_is_shown_as_it_was_stored(ask):
    """US7-2"""
    said = enqueued(ask, payload={"a": [1, None, "ä"]}, maxRetries=5, headers={"x": "y"})

    shown = ask("GET", f"/api/jobs/{said['id']}").json()

    assert {name: shown[name] for name in said} == said
    assert shown["payload"] == {"a": [1, None, "ä"]}
    assert (shown["retries"], shown["maxRetries"]) == (0, 5)
    assert shown["headers"]["x"] == "y"  # a trace may travel with it, where one was begun
    assert shown["runAt"].endswith("Z")


def test_jobs_are_listed_by_topic_and_status(web, ask):
    """US7-3"""
    wanted = [enqueued(ask, "mail", n)["id"] for n in range(3)]
    enqueued(ask, "other")
    failed = buried(web, "elsewhere")

    listed = ask("GET", "/api/jobs?topic=mail&status=pending").json()
    assert [job["id"] for job in listed["items"]] == wanted[::-1]
    assert listed["next"] is None
    [only] = ask("GET", "/api/jobs?status=failed").json()["items"]
    assert only["id"] == failed


def test_pages_follow_each_other_by_cursor_and_by_offset(ask):
    """US7-3"""
    made = [enqueued(ask, payload=n)["id"] for n in range(7)][::-1]

    found, cursor = [], ""
    while cursor is not None:
        page = ask("GET", f"/api/jobs?limit=3{cursor and f'&before={cursor}'}").json()
        found += [job["id"] for job in page["items"]]
        cursor = page["next"]
    by_offset = ask("GET", "/api/jobs?limit=3&offset=3").json()["items"]

    assert found == made
    assert [job["id"] for job in by_offset] == made[3:6]


def test_a_page_of_large_payloads_is_cut_and_goes_on(ask):
    made = [enqueued(ask, payload="x" * 2**20 if n else 0)["id"] for n in range(1)]
    large = "y" * (2**20 - 2)
    made += [enqueued(ask, payload=large)["id"] for _ in range(9)]

    page = ask("GET", "/api/jobs").json()
    rest = ask("GET", f"/api/jobs?before={page['next']}").json()

    assert len(page["items"]) == 8
    assert [job["id"] for job in page["items"] + rest["items"]] == made[::-1]


def test_a_failed_job_is_requeued(web, ask):
    """US7-4"""
    id = buried(web)

    said = ask("POST", f"/api/jobs/{id}/requeue")

    assert (said.status_code, said.json()["status"], said.json()["retries"]) == (200, "pending", 0)


@pytest.mark.parametrize("state", ["pending", "failed", "cancelled"])
def test_a_job_that_does_not_run_is_deleted(web, ask, state):
    """US7-5"""
    id = buried(web) if state == "failed" else enqueued(ask)["id"]
    if state == "cancelled":
        web.app.jobs.cancel(id)

    assert ask("DELETE", f"/api/jobs/{id}").status_code == 204
    assert refused(ask("GET", f"/api/jobs/{id}")) == (404, "not_found")


def test_deleting_a_running_job_is_refused(web, ask):
    """EC-7"""
    id = enqueued(ask)["id"]
    [lease] = web.app.jobs.reserve("mail")

    assert refused(ask("DELETE", f"/api/jobs/{id}")) == (409, "invalid_state")

    web.app.jobs.complete(lease)
    assert refused(ask("DELETE", f"/api/jobs/{id}")) == (409, "invalid_state")


def test_a_payload_over_the_limit_is_refused(web, ask):
    """EC-1"""
    said = ask("POST", "/api/jobs/enqueue", {"topic": "mail", "payload": "x" * 2**20})

    assert refused(said) == (413, "payload_too_large")
    assert web.app.jobs.list() == []


def test_an_id_is_a_uuid_of_version_7(ask):
    """EC-6"""
    assert UUID(enqueued(ask)["id"]).version == 7


def test_stats_say_what_the_document_says(web, ask):
    enqueued(ask)
    web.app.jobs.enqueue("mail", {})
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.complete(lease)

    said = ask("GET", "/api/jobs/stats").json()

    assert (said["pending"], said["processing"], said["completed"]) == (1, 0, 1)
    assert (said["failed"], said["successRate"]) == (0, 1.0)
    assert said["avgExecutionTime"] == 0


def test_failed_in_the_stats_is_what_the_list_shows(web, ask):
    id = buried(web)
    again = buried(web)
    ask("POST", f"/api/jobs/{again}/requeue")

    listed = ask("GET", "/api/jobs?status=failed").json()["items"]
    said = ask("GET", "/api/jobs/stats").json()
    [topic] = ask("GET", "/api/topics").json()["items"]

    assert [each["id"] for each in listed] == [str(id)]
    assert said["failed"] == topic["failed"] == 1
    assert said["failedTotal"] == topic["failedTotal"]


def test_metrics_have_times_retries_and_crashes_by_topic(web, root, clock):
    web.app.jobs.enqueue_many("mail", range(2), max_retries=9)
    clock.advance(0.2)
    done, failed = web.app.jobs.reserve("mail", limit=2)
    clock.advance(45)
    web.app.jobs.complete(done)
    web.app.jobs.fail(failed, "no")

    lines = web.get("/metrics", as_=root).text.splitlines()

    assert "# TYPE towpath_job_run_seconds histogram" in lines
    for line in (
        'towpath_job_run_seconds_bucket{topic="mail",le="30.0"} 0',
        'towpath_job_run_seconds_bucket{topic="mail",le="60.0"} 1',
        'towpath_job_run_seconds_bucket{topic="mail",le="+Inf"} 1',
        'towpath_job_run_seconds_sum{topic="mail"} 45.000000',
        'towpath_job_wait_seconds_bucket{topic="mail",le="0.1"} 0',
        'towpath_job_wait_seconds_bucket{topic="mail",le="0.5"} 1',
        'towpath_job_wait_seconds_count{topic="mail"} 1',
        'towpath_job_retries_total{topic="mail"} 1',
        'towpath_job_crashes_total{topic="mail"} 0',
    ):
        assert line in lines


def test_every_metric_of_the_reference_is_shown_and_no_other(web, root):
    told = web.get("/metrics", as_=root).text.splitlines()

    shown = {line.split()[2]: line.split()[3] for line in told if line.startswith("# TYPE ")}
    assert shown == {name: metric.kind for name, metric in METRICS.items()}


def test_throughput_is_counted_by_the_minute(web, ask):
    enqueued(ask)
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.complete(lease)
    web.app.upkeep.run()

    items = ask("GET", "/api/jobs/throughput?topic=mail&minutes=5").json()["items"]

    assert sum(minute["completed"] for minute in items) == 1


def test_a_job_waits_for_its_delay_or_its_time(web, ask, clock):
    enqueued(ask, delay=60)
    enqueued(ask, runAt=(clock.now + timedelta(seconds=60)).isoformat())

    assert web.app.jobs.reserve("mail", limit=2) == []
    clock.advance(60)
    assert len(web.app.jobs.reserve("mail", limit=2)) == 2


def test_a_job_is_found_by_its_number(ask):
    said = enqueued(ask)

    assert ask("GET", f"/api/jobs/numbered/{said['seq']}").json() == said
    assert refused(ask("GET", f"/api/jobs/numbered/{said['seq'] + 1}")) == (404, "not_found")
    told = ask("GET", f"/api/jobs/{said['seq']}").json()["message"]
    assert told.endswith(f"GET /api/jobs/numbered/{said['seq']} reads the job by its number")


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "٣", "9" * 19, "9" * 5_000])
def test_what_is_no_number_of_a_job_is_refused(ask, number):
    assert refused(ask("GET", f"/api/jobs/numbered/{number}")) == (400, "invalid")


def test_raw_bytes_travel_as_base64(web, ask):
    raw = bytes(range(256))
    said = enqueued(ask, payload=base64.b64encode(raw).decode(), encoding="base64")

    assert web.app.jobs.get(said["id"]).payload == raw
    assert said["encoding"] == "base64"
    assert base64.b64decode(said["payload"]) == raw


def test_raw_bytes_that_are_text_travel_as_text(web, ask):
    said = enqueued(ask, payload='für "dich"\n', encoding="text")

    assert web.app.jobs.get(said["id"]).payload == 'für "dich"\n'.encode()
    assert (said["encoding"], said["payload"]) == ("text", 'für "dich"\n')
    nul = enqueued(ask, payload="a\0b", encoding="text")
    assert web.app.jobs.get(nul["id"]).payload == b"a\0b"
    assert nul["encoding"] == "base64"


@pytest.mark.parametrize("payload", [5, {"x": 1}, None])
def test_what_is_not_text_is_refused(ask, payload):
    new = {"topic": "a", "payload": payload, "encoding": "text"}

    assert refused(ask("POST", "/api/jobs/enqueue", new)) == (400, "invalid_payload")


@pytest.mark.parametrize("payload", ["a", "a b", 5, {"x": 1}, "é===", None])
def test_what_is_not_base64_is_refused(ask, payload):
    said = ask(
        "POST", "/api/jobs/enqueue", {"topic": "a", "payload": payload, "encoding": "base64"}
    )

    assert refused(said) == (400, "invalid_payload")


def test_an_enqueue_is_repeated_by_id_without_harm(web, ask):
    new = {"topic": "mail", "payload": 1, "id": str(uuid4())}

    first, again = (ask("POST", "/api/jobs/enqueue", new) for _ in range(2))
    other = ask("POST", "/api/jobs/enqueue", {**new, "payload": 2})

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert refused(other) == (409, "job_exists")
    assert len(web.app.jobs.list()) == 1


def test_an_idempotency_key_makes_a_repeated_enqueue_harmless(web, ask, root, ada):
    web.app.access.set(access_rule="@request.auth.id != ''")
    key = {"headers": {"idempotency-key": "order-7"}}
    new = {"topic": "mail", "payload": 1}

    first, again = (ask("POST", "/api/jobs/enqueue", new, **key) for _ in range(2))
    elsewhere = ask("POST", "/api/jobs/enqueue", {"topic": "other"}, **key)
    of_ada = web.post("/api/jobs/enqueue", new, as_=ada, **key)
    changed = ask("POST", "/api/jobs/enqueue", {**new, "payload": 2}, **key)

    assert first.json() == again.json()
    assert len({r.json()["id"] for r in (first, elsewhere, of_ada)}) == 3
    assert refused(changed) == (409, "job_exists")


def test_a_key_that_is_held_answers_with_its_holder(ask):
    first = ask("POST", "/api/jobs/enqueue", {"topic": "mail", "key": "k", "payload": 1})
    second = ask("POST", "/api/jobs/enqueue", {"topic": "mail", "key": "k", "payload": 2})

    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json()


def test_many_jobs_are_stored_together(web, ask):
    first = enqueued(ask, "first")
    said = ask(
        "POST",
        "/api/jobs/enqueue-many",
        {
            "jobs": [
                {"topic": "mail", "payload": 1, "priority": 3},
                {"topic": "other", "payload": "AAE=", "encoding": "base64"},
                {"topic": "later", "after": [first["id"]]},
            ]
        },
    )

    assert said.status_code == 201
    mail, other, later = said.json()["items"]
    assert (mail["priority"], other["encoding"], later["state"]) == (3, "base64", "blocked")


def test_many_jobs_are_stored_all_or_none(web, ask):
    standing = enqueued(ask)
    said = ask(
        "POST",
        "/api/jobs/enqueue-many",
        {"jobs": [{"topic": "mail"}, {"topic": "mail", "id": standing["id"], "payload": "other"}]},
    )

    assert refused(said) == (409, "job_exists")
    assert len(web.app.jobs.list()) == 1


@pytest.mark.parametrize("count", [0, 1001])
def test_none_or_too_many_jobs_at_once_are_refused(ask, count):
    said = ask("POST", "/api/jobs/enqueue-many", {"jobs": [{"topic": "a"}] * count})

    assert refused(said) == (400, "invalid")


def test_a_job_is_cancelled_kicked_and_reprioritised(web, ask):
    id = enqueued(ask, delay=60)["id"]

    assert ask("POST", f"/api/jobs/{id}/kick").json()["state"] == "ready"
    assert ask("PATCH", f"/api/jobs/{id}", {"priority": 7}).json()["priority"] == 7
    assert ask("POST", f"/api/jobs/{id}/cancel").json()["status"] == "cancelled"
    assert refused(ask("POST", f"/api/jobs/{id}/kick")) == (409, "not_buried")


def test_a_job_gets_another_time(web, ask):
    id = enqueued(ask)["id"]

    later = ask("PATCH", f"/api/jobs/{id}", {"delay": 60, "priority": 3}).json()
    assert (later["state"], later["priority"]) == ("delayed", 3)
    at = "2099-01-01T00:00:00Z"
    assert ask("PATCH", f"/api/jobs/{id}", {"runAt": at}).json()["runAt"] == at
    assert ask("PATCH", f"/api/jobs/{id}", {"delay": 0}).json()["state"] == "ready"
    assert refused(ask("PATCH", f"/api/jobs/{id}", {})) == (400, "invalid")
    assert refused(ask("PATCH", f"/api/jobs/{id}", {"delay": 1, "runAt": at})) == (400, "invalid")


def test_a_job_that_is_not_begun_in_time_is_cancelled(web, ask):
    job = enqueued(ask, expiresAt="2026-01-01T00:00:00Z")
    assert job["expiresAt"] == "2026-01-01T00:00:00Z"
    assert enqueued(ask, topic="post", expiresAfter=60)["expiresAt"] > job["createdAt"]

    assert web.app.jobs.reserve("mail") == []

    job = ask("GET", f"/api/jobs/{job['id']}").json()
    assert (job["status"], "had to begin before" in job["lastError"]) == ("cancelled", True)


@pytest.mark.parametrize("backoff", [7, [7, 30]])
def test_a_job_says_how_long_it_rests_after_a_failure(web, ask, backoff):
    id = enqueued(ask, backoff=backoff)["id"]
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.fail(lease, "no")

    job = web.app.jobs.get(id)
    assert 6 < (job.run_at - job.created_at).total_seconds() < 60


def test_the_history_of_a_job_is_shown(web, ask):
    id = enqueued(ask)["id"]
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.fail(lease, ValueError("no luck"))

    [failure] = ask("GET", f"/api/jobs/{id}/failures").json()["items"]

    assert (failure["run"], failure["error"]) == (1, "ValueError: no luck")
    assert ask("GET", f"/api/jobs/{id}").json()["lastError"] == "ValueError: no luck"
    for what in ("logs", "runs"):
        assert ask("GET", f"/api/jobs/{id}/{what}").json() == {"items": []}


def test_every_kind_of_failure_is_named_in_the_api(web, ask, clock):
    late = web.app.jobs.enqueue("late", expires_after=10)
    clock.advance(11)
    web.app.jobs.reserve("late")
    silent = web.app.jobs.enqueue("silent", worker_timeout=60, ping_interval=5)
    web.app.jobs.reserve("silent", worker="w")
    clock.advance(61)
    web.app.jobs.reserve("silent")
    failing = web.app.jobs.enqueue("failing", max_retries=1)
    waiting = web.app.jobs.enqueue("waiting", after=[failing])
    web.app.jobs.fail(web.app.jobs.reserve("failing")[0], "no luck")

    jobs = {"expired": late, "crash": silent, "error": failing, "dependency": waiting}
    for kind, job in jobs.items():
        found = ask("GET", f"/api/jobs/{job.id}/failures").json()["items"]
        assert [failure["kind"] for failure in found] == [kind]
    named = web.api.shared.document["components"]["schemas"]["FailureKind"]["enum"]
    assert set(named) == {*jobs, "unknown"}  # that one is a worker's


def test_topics_are_counted_paused_kicked_and_purged(web, ask):
    buried(web)
    enqueued(ask)

    assert ask("POST", "/api/topics/mail/pause", {"duration": 60}).status_code == 204
    [topic] = ask("GET", "/api/topics").json()["items"]
    assert (topic["topic"], topic["ready"], topic["buried"], topic["paused"]) == (
        "mail", 1, 1, True,
    )  # fmt: skip
    assert ask("POST", "/api/topics/mail/resume").status_code == 204
    assert ask("POST", "/api/topics/mail/kick", {"limit": 5}).json() == {"kicked": 1}
    assert ask("POST", "/api/topics/mail/purge").json() == {"purged": 2}


def test_a_topic_that_does_not_exist_is_paused_only_on_request(web, ask):
    said = ask("POST", "/api/topics/mial/pause")

    assert refused(said) == (404, "not_found")
    assert "there is no topic 'mial'" in said.json()["message"]
    assert ask("POST", "/api/topics/mail/pause", {"create": True}).status_code == 204
    assert web.app.topics.list() == ["mail"]


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("DELETE", ""), ("POST", "/requeue")])
def test_a_number_in_place_of_an_id_is_explained(ask, method, path):
    number = enqueued(ask)["seq"]

    said = ask(method, f"/api/jobs/{number}{path}")

    assert refused(said) == (400, "invalid")
    assert f"GET /api/jobs/numbered/{number}" in said.json()["message"]


def test_pause_without_a_body_is_until_it_is_resumed(web, ask):
    enqueued(ask)

    assert ask("POST", "/api/topics/mail/pause").status_code == 204
    assert web.app.jobs.reserve("mail") == []


def test_schedules_are_stored_paused_run_and_deleted(web, ask, clock):
    rule = {"topic": "report", "cron": "0 6 * * *", "payload": {"kind": "daily"}}
    stored = ask("PUT", "/api/schedules/daily", rule)

    assert (stored.status_code, stored.json()["cron"]) == (200, "0 6 * * *")
    assert ask("GET", "/api/schedules").json()["items"] == [stored.json()]
    job = ask("POST", "/api/schedules/daily/run").json()
    assert (job["topic"], job["payload"]) == ("report", {"kind": "daily"})
    assert ask("POST", "/api/schedules/daily/pause").status_code == 204
    assert ask("GET", "/api/schedules/daily").json()["paused"] is True
    assert ask("POST", "/api/schedules/daily/resume").status_code == 204
    every = ask("PUT", "/api/schedules/daily", {"topic": "report", "every": 90})
    assert every.json()["every"] == 90
    assert ask("DELETE", "/api/schedules/daily").status_code == 204
    assert refused(ask("GET", "/api/schedules/daily")) == (404, "not_found")


def test_workers_are_listed(web, ask):
    web.app.sessions.start("gold", ["mail"])

    [worker] = ask("GET", "/api/workers").json()["items"]

    assert (worker["worker"], worker["topics"], worker["leases"]) == ("gold", ["mail"], 0)


def test_http_shows_every_field_of_a_job():
    """One that it must not show, or shows under another name, stands in SHOWN_OTHERWISE."""
    assert set(JobShown.__struct_fields__) == set(SHOWN)
    assert set(SHOWN_OTHERWISE) <= set(Job.__struct_fields__)


def test_every_field_of_a_job_stands_in_its_own_place(web):
    """Its answer is made by position, so a change of the order would mix them up."""
    made = web.app.jobs.enqueue("mail", {"a": 1}, key="k", headers={"h": "v"}, max_retries=9)
    counters = [name for name in Job.__struct_fields__ if type(getattr(made, name)) is int]
    job = replace(
        made,
        **{name: number for number, name in enumerate(counters, start=100)},
        duration=timedelta(0),
        result_body="[1]",
        last_error="no",
        progress=0.5,
        progress_message="half",
    )

    shown = job_shown(job)

    converted = {"payload", "headers", "ttr", "duration_ms", "result"}
    for name in SHOWN.keys() - converted:
        assert getattr(shown, name) == attrgetter(SHOWN[name])(job), name
    assert (shown.ttr, shown.duration_ms) == (job.ttr.total_seconds(), 0.0)
    assert (bytes(shown.payload), bytes(shown.result)) == (b'{"a":1}', b"[1]")
    assert (shown.headers, shown.state) == ({"h": "v"}, State.READY)


def test_of_a_job_that_cannot_be_read_the_rest_is_shown(web):
    job = web.app.jobs.enqueue("mail", {"a": 1}, key="k", max_retries=9)
    known = {**asdict(job), "encoding": "newer", "options": UNSET}

    shown = job_shown(UnreadableJob(**known, why="a newer version wrote it"))

    assert (shown.id, shown.key, shown.encoding) == (job.id, "k", "json")
    assert (shown.max_retries, shown.headers, shown.expires_at) == (3, {}, None)


def test_strangers_do_not_share_their_idempotency_keys(make_app, loop):
    app = make_app()
    app.access.set(enqueue_rule="true")
    webs = [Web(app, loop, client) for client in ("203.0.113.1", "203.0.113.2")]
    key = {"headers": {"idempotency-key": "order-1"}}

    one, two = (web.post("/api/jobs/enqueue", {"topic": "a"}, **key) for web in webs)

    assert one.json()["id"] != two.json()["id"]
    for web in webs:
        web.close()


def test_an_idempotency_key_is_for_one_job(web, root):
    said = web.post(
        "/api/jobs/enqueue-many", {"jobs": [{"topic": "a"}]}, as_=root,
        headers={"idempotency-key": "k"},
    )  # fmt: skip

    assert refused(said) == (400, "invalid")


def test_a_caller_that_repeats_an_id_does_not_see_what_became_of_the_job(web, ada):
    web.app.access.set(enqueue_rule=ANY_USER)
    job = web.app.jobs.enqueue("mail", 1)
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.complete(lease, {"secret": 1})

    new = {"topic": "mail", "payload": 1, "id": str(job.id)}
    said = web.post("/api/jobs/enqueue", new, as_=ada)
    many = web.post("/api/jobs/enqueue-many", {"jobs": [new]}, as_=ada)

    assert (said.status_code, said.json()["result"]) == (201, None)
    assert (many.status_code, many.json()["items"]) == (201, [said.json()])


def test_a_task_that_is_known_here_checks_its_arguments_and_brings_its_options(web, root):
    @web.app.task(max_retries=2, priority=7, timeout=5)
    def divide(a: int, b: int = 1) -> float:
        return a / b

    def enqueued(**new):
        return web.post("/api/jobs/enqueue", {"topic": "divide", **new}, as_=root)

    made = enqueued(payload={"a": 6}, priority=9).json()
    assert (made["maxRetries"], made["timeout"], made["priority"]) == (2, 5, 9)
    assert refused(enqueued(payload={"a": "six"})) == (400, "invalid_arguments")
    assert refused(enqueued(payload={"x": 1})) == (400, "invalid_arguments")
    assert refused(enqueued()) == (400, "invalid_arguments")
    many = {"jobs": [{"topic": "divide", "payload": {"a": 1}}, {"topic": "divide", "payload": 5}]}
    assert refused(web.post("/api/jobs/enqueue-many", many, as_=root)) == (400, "invalid_arguments")
    assert len(web.app.jobs.list()) == 1


def test_a_task_without_arguments_needs_no_payload(web, root):
    @web.app.task()
    def tidy() -> None: ...

    said = web.post("/api/jobs/enqueue", {"topic": "tidy"}, as_=root)

    assert (said.status_code, said.json()["payload"]) == (201, {})
