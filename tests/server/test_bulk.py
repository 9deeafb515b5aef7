"""Bulk acts over HTTP."""

import pytest

from tests.server.conftest import refused
from tests.server.test_acts import acts


@pytest.fixture
def failed(web):
    """Failed jobs: three, of which one cannot be requeued."""
    jobs = web.app.jobs.enqueue_many("mail", range(3), max_retries=1)
    keyed = web.app.jobs.enqueue("mail", "hush", max_retries=1, key="one")
    for lease in web.app.jobs.reserve("mail", limit=9):
        web.app.jobs.fail(lease, "no such address")
    web.app.jobs.enqueue("mail", key="one")
    return [*jobs, keyed]


REQUEUE = {"verb": "requeue", "filter": {"topic": "mail", "status": "failed"}}


def begun(web, root, **more):
    up_to = web.post("/api/bulk/preview", REQUEUE, as_=root).json()["upTo"]
    made = web.post("/api/bulk", {**REQUEUE, "upTo": up_to, **more}, as_=root)
    assert made.status_code == 201, made.text
    return made.json()


def test_a_preview_shows_what_would_be_done(web, root, failed):
    said = web.post("/api/bulk/preview", REQUEUE, as_=root)

    assert said.status_code == 200
    found = said.json()
    assert (found["count"], found["exact"], found["refused"]) == (4, True, {"key_taken": 1})
    assert found["upTo"] == failed[-1].seq + 1
    assert found["sample"][0] == {
        "id": str(failed[0].id), "seq": failed[0].seq, "topic": "mail", "status": "failed",
        "state": "buried", "key": None, "lastError": "no such address",
        "createdAt": found["sample"][0]["createdAt"],
    }  # fmt: skip
    assert "hush" not in said.text


def test_a_bulk_act_is_begun_and_carried_out(web, root, clock, failed):
    bulk = begun(web, root)
    assert (bulk["state"], bulk["count"], bulk["by"]) == ("waiting", 4, "root@example.org")
    assert bulk["filter"] == {"topic": "mail", "status": "failed"}

    clock.advance(10)
    web.app.upkeep.run()

    ended = web.get(f"/api/bulk/{bulk['id']}", as_=root).json()
    assert (ended["state"], ended["done"], ended["refusedCount"]) == ("done", 3, 1)
    assert ended["refused"] == [{"id": str(failed[-1].id), "code": "key_taken"}]
    assert web.get("/api/bulk", as_=root).json() == {"items": [ended]}


def test_a_bulk_act_is_undone(web, root, clock, failed):
    bulk = begun(web, root)

    stopped = web.post(f"/api/bulk/{bulk['id']}/stop", as_=root).json()
    clock.advance(10)
    web.app.upkeep.run()

    assert (stopped["state"], stopped["done"]) == ("stopped", 0)
    assert web.app.jobs.get(failed[0]).status == "failed"
    assert web.get(f"/api/bulk/{bulk['id']}", as_=root).json() == stopped


def test_chosen_jobs_and_no_delay(web, root, failed):
    chosen = {"verb": "delete", "ids": [str(failed[0].id)], "upTo": 0, "delay": 0}

    bulk = web.post("/api/bulk", chosen, as_=root).json()
    web.app.upkeep.run()

    assert web.get(f"/api/bulk/{bulk['id']}", as_=root).json()["done"] == 1
    assert web.get(f"/api/jobs/{failed[0].id}", as_=root).status_code == 404


def test_bulk_acts_are_on_record_without_what_was_searched_for(web, root, failed):
    choice = {"filter": {"topic": "mail", "text": "hush"}}
    made = web.post("/api/bulk", {"verb": "delete", **choice, "upTo": 9}, as_=root).json()
    web.post(f"/api/bulk/{made['id']}/stop", as_=root)

    [(begun, said), (stopped, undone)] = acts(web)
    assert (begun, stopped) == ("bulk.begun", "bulk.stopped")
    assert (said["bulk"], said["verb"], said["topic"]) == (made["id"], "delete", "mail")
    assert (said["count"], undone["count"]) == (1, 0)
    assert "hush" not in str(acts(web))


UNKNOWN = "/api/bulk/0199c1de-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/bulk/preview", REQUEUE),
        ("POST", "/api/bulk", {**REQUEUE, "upTo": 1}),
        ("GET", "/api/bulk", None),
        ("GET", UNKNOWN, None),
        ("POST", f"{UNKNOWN}/stop", None),
    ],
)
def test_only_superusers_act_in_bulk(web, ada, method, path, body):
    web.app.access.set(access_rule="@request.auth.id != ''")
    key = web.app.keys.create("ci", scopes=["enqueue", "manage", "work"])[1]

    assert refused(web(method, path, body, as_=ada)) == (403, "forbidden")
    assert refused(web(method, path, body, as_=key)) == (403, "forbidden")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"verb": "requeue"}, "at least one part"),
        ({"verb": "purge", "filter": {"topic": "mail"}}, "verb"),
        ({"verb": "requeue", "filter": {"status": "completed"}}, "is not for jobs that are"),
        ({"verb": "requeue", "filter": {"color": "red"}}, "color"),
        ({"verb": "requeue", "filter": {"since": "2026-01-01"}}, "since"),
        ({"verb": "requeue", "filter": {"topic": "a b"}}, "topic"),
        ({"verb": "delete", "filter": {"error": ""}}, "error"),
        ({"verb": "requeue", "ids": []}, "ids"),
        ({"verb": "requeue", "ids": ["7"]}, "ids"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(web, root, body, said):
    answer = web.post("/api/bulk/preview", body, as_=root)

    assert answer.status_code == 400
    assert said in answer.json()["message"]


def test_an_unknown_bulk_act_is_not_found(web, root):
    assert refused(web.get(UNKNOWN, as_=root)) == (404, "not_found")
    assert refused(web.post(f"{UNKNOWN}/stop", as_=root)) == (404, "not_found")
    assert web.get("/api/bulk/1", as_=root).json()["message"] == "'1' is not an id, which is a UUID"
