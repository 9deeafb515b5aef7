"""What rules, topics and keys allow, and that every change of them holds at once."""

import asyncio
import base64
import contextlib
from uuid import uuid4

import msgspec
import pytest
from msgspec.structs import fields

from tests.conftest import eventually
from tests.server.conftest import Web, refused, token_of
from towpath import App
from towpath.errors import InvalidPayload, InvalidRule
from towpath.model.access import JOB_FIELDS
from towpath.server import bodies
from towpath.server.api import ROUTES
from towpath.server.listing import MOST_BYTES_READ
from towpath.server.outputs import JobShown

ANY_USER = "@request.auth.id != ''"

SCOPES = ("enqueue", "manage", "work", "metrics")
JOB = "/api/jobs/enqueue"
WHO, NOT_YOU, BAD = (401, "login_required"), (403, "forbidden"), (401, "invalid_token")


def may(web, token, topic="mail"):
    """Whether a caller may enqueue and look, by the statuses of both."""
    return (
        web.post(JOB, {"topic": topic}, as_=token).status_code,
        web.get(f"/api/jobs?topic={topic}", as_=token).status_code,
    )


@pytest.mark.parametrize("encoding", ["text", "base64"])
def test_rules_see_the_arguments_however_they_are_sent(web, ada, encoding):
    """For a task runs them, whichever caller has encoded them."""

    @web.app.task(topic="pay", max_retries=1, timeout=7)
    def pay(amount: int, admin: bool = False) -> None:
        """Never run here."""

    rule = "@request.auth.id != '' && @request.body.payload.admin != true"
    web.app.access.set(enqueue_rule=rule, manage_rule="@job.payload.amount < 10")

    def enqueue(text):
        sent = base64.b64encode(text.encode()).decode() if encoding == "base64" else text
        new = {"topic": "pay", "payload": sent, "encoding": encoding}
        said = web.post("/api/jobs/enqueue", new, as_=ada)
        many = web.post("/api/jobs/enqueue-many", {"jobs": [new]}, as_=ada)
        assert said.status_code == many.status_code
        return said

    assert enqueue('{"amount": 1000, "admin": true}').status_code == 403
    assert enqueue('{"amount": "much"}').json()["code"] == "invalid_arguments"
    assert enqueue("hello").json()["code"] == "invalid_arguments"
    allowed = enqueue('{"amount": 5}').json()
    assert (allowed["maxRetries"], allowed["timeout"]) == (1, 7)
    assert web.get(f"/api/jobs/{allowed['id']}", as_=ada).status_code == 200
    bytes_of_another = web.app.jobs.enqueue("pay", b'{"amount": 50}')
    assert web.get(f"/api/jobs/{bytes_of_another.id}", as_=ada).status_code != 200


def test_an_empty_rule_is_for_superusers_only(web, root, ada):
    """US9-1"""
    web.app.access.set(access_rule="")

    assert may(web, None) == (401, 401)
    assert may(web, ada) == (403, 403)
    assert may(web, root) == (201, 200)


def test_true_is_for_everybody(web, root, ada):
    """US9-2"""
    web.app.access.set(access_rule="true")

    assert may(web, None) == may(web, ada) == may(web, root) == (201, 200)


def test_a_rule_about_the_login_is_for_users(web, root, ada):
    """US9-3, US7-7: the rule says whether others than superusers may."""
    web.app.access.set(access_rule="@request.auth.id != ''")

    assert may(web, None) == (401, 401)
    assert may(web, ada) == may(web, root) == (201, 200)


def test_enqueueing_and_managing_have_rules_of_their_own(web, root, ada):
    """US9-4"""
    assert web.patch("/api/access", {"access_rule": "true"}, as_=root).status_code == 200
    changed = web.patch("/api/access", {"manage_rule": "@request.auth.role = 'editor'"}, as_=root)

    assert changed.json()["enqueue_rule"] == "true"
    assert may(web, None) == (201, 401)
    assert may(web, ada) == (201, 200)
    assert refused(web.post("/api/jobs/reserve", {"topics": ["mail"]}, as_=ada))[0] == 403
    web.app.access.set(work_rule="@request.auth.role = 'editor'")
    assert len(web.post("/api/jobs/reserve", {"topics": ["mail"]}, as_=ada).json()["leases"]) == 1


def test_a_bad_rule_is_refused_with_its_position(quick_web, clock):
    web = quick_web
    root = token_of(web.app, "_superusers", "root@example.org")

    said = web.patch("/api/access", {"enqueue_rule": "@request.auth.id = "}, as_=root)

    assert refused(said) == (400, "invalid_rule")
    assert said.json()["details"]["position"] >= 18
    assert web.get("/api/access", as_=root).json()["enqueue_rule"] == ""


def test_rules_see_the_request(web, ada):
    web.app.access.set(
        enqueue_rule="@request.body.payload.public = true || @request.headers.x_team = 'red'",
        manage_rule="@request.method = 'GET' && @request.query.limit = '5'",
    )

    def enqueue(payload, **headers):
        return web.post(JOB, {"topic": "a", "payload": payload}, headers=headers).status_code

    assert enqueue({"public": True}) == 201
    assert enqueue({"public": False}) == 401
    assert enqueue(None, **{"x-team": "red"}) == 201
    assert web.get("/api/jobs?limit=5").status_code == 200
    assert web.get("/api/jobs?limit=6").status_code == 401
    many = {"jobs": [{"topic": "a", "payload": {"public": flag}} for flag in (True, False)]}
    assert web.post("/api/jobs/enqueue-many", many).status_code == 401
    many["jobs"].pop()
    assert web.post("/api/jobs/enqueue-many", many).status_code == 201


def test_a_topic_has_rules_of_its_own(web, root, ada):
    web.app.access.set(access_rule="@request.auth.id != ''")
    rules = {"secret": {"enqueue_rule": "", "manage_rule": ""}, "open": {"enqueue_rule": "true"}}
    assert web.patch("/api/access", {"topics": rules}, as_=root).status_code == 200
    for topic in ("secret", "open", "mail"):
        assert web.post(JOB, {"topic": topic}, as_=root).status_code == 201

    assert may(web, ada, "secret") == (403, 403)
    assert may(web, None, "open") == (201, 401)
    assert may(web, ada, "mail") == (201, 200)
    listed = web.get("/api/jobs", as_=ada).json()["items"]
    assert {job["topic"] for job in listed} == {"open", "mail"}
    assert {each["topic"] for each in web.get("/api/topics", as_=ada).json()["items"]} == {
        "open", "mail",
    }  # fmt: skip


def test_allowed_topics_bound_all_but_superusers(web, root, ada):
    web.app.access.set(access_rule="true", allowed_topics=["mail"])
    _, key = web.app.keys.create("k", scopes=SCOPES)
    every = {"topic": "other", "every": 60}

    for token in (None, ada, key):
        assert may(web, token, "mail")[0] == 201
        assert may(web, token, "other")[0] == 403
        assert refused(web.put("/api/schedules/s", every, as_=token)) == NOT_YOU
    assert may(web, root, "other")[0] == 201
    assert web.put("/api/schedules/s", every, as_=root).status_code == 200
    assert refused(web.post("/api/schedules/s/run", as_=ada)) == NOT_YOU
    web.app.access.set(allowed_topics=[])
    assert may(web, ada, "other")[0] == 201


OWN = "@request.auth.id != '' && @job.payload.owner = @request.auth.id"


def test_a_rule_over_jobs_shows_each_user_only_their_own(web, ada, bob):
    web.app.access.set(enqueue_rule="@request.auth.id != ''", manage_rule=OWN)
    ids = {}
    for name, token in (("ada", ada), ("bob", bob)):
        owner = web.app.accounts.get("users", f"{name}@example.org").id
        said = web.post(JOB, {"topic": "mail", "payload": {"owner": owner}}, as_=token)
        ids[name] = said.json()["id"]
    verbs = [("GET", ""), ("POST", "/requeue"), ("POST", "/cancel"), ("POST", "/kick"),
             ("DELETE", ""), ("GET", "/failures"), ("GET", "/logs"), ("GET", "/stream"),
             ("GET", "/runs")]  # fmt: skip

    for method, verb in verbs:
        path = f"/api/jobs/{ids['bob']}{verb}"
        assert refused(web(method, path, as_=ada)) == (404, "not_found"), path
        assert refused(web(method, path)) == WHO, path
    said = web.patch(f"/api/jobs/{ids['bob']}", {"priority": 1}, as_=ada)
    assert refused(said) == (404, "not_found")
    gone = web.get("/api/jobs/018f0000-0000-7000-8000-000000000000", as_=ada)
    hidden = web.get(f"/api/jobs/{ids['bob']}", as_=ada)
    assert gone.json()["message"][:16] == hidden.json()["message"][:16]
    assert [job["id"] for job in web.get("/api/jobs", as_=ada).json()["items"]] == [ids["ada"]]
    assert web.get(f"/api/jobs/{ids['ada']}", as_=ada).status_code == 200
    assert web.post(f"/api/jobs/{ids['ada']}/cancel", as_=ada).json()["status"] == "cancelled"
    assert web.delete(f"/api/jobs/{ids['bob']}", as_=bob).status_code == 204


def test_pages_go_on_where_most_jobs_are_hidden(web, ada):
    owner = web.app.accounts.get("users", "ada@example.org").id
    web.app.access.set(manage_rule=OWN)
    payloads = [{"owner": owner if n % 25 == 0 else "somebody"} for n in range(200)]
    jobs = web.app.jobs.enqueue_many("mail", payloads)
    wanted = [str(job.id) for job in jobs if job.payload["owner"] == owner][::-1]

    found, cursor = [], ""
    while cursor is not None:
        page = web.get(f"/api/jobs?limit=3{cursor and f'&before={cursor}'}", as_=ada).json()
        assert len(page["items"]) <= 3
        found += [job["id"] for job in page["items"]]
        cursor = page["next"]

    assert found == wanted
    skipped = web.get("/api/jobs?limit=2&offset=3", as_=ada).json()["items"]
    assert [job["id"] for job in skipped] == wanted[3:5]


def test_a_page_of_large_hidden_jobs_ends_before_all_were_looked_at(quick_web):
    """EC: a caller who may see nothing cannot have gigabytes read for one request."""
    ada = token_of(quick_web.app, "users", "ada@example.org")
    quick_web.app.access.set(manage_rule=OWN)
    quick_web.app.jobs.enqueue_many("mail", ["x" * 10**6] * (MOST_BYTES_READ // 10**6 + 51))

    page = quick_web.get("/api/jobs", as_=ada).json()

    assert page["items"] == []
    assert page["next"] is not None
    assert quick_web.get(f"/api/jobs?before={page['next']}", as_=ada).json()["next"] is None


@pytest.mark.parametrize("path", ["/api/jobs/enqueue-many", "/api/jobs"])
def test_a_caller_that_is_judged_for_long_lets_others_have_their_turn(
    quick_web, loop, monkeypatch, path
):
    """EC: a rule may take long; other requests wait for a moment of it only."""
    monkeypatch.setattr(bodies, "TURN", 0)  # any time is long
    ada = token_of(quick_web.app, "users", "ada@example.org")
    quick_web.app.access.set(access_rule="@job.payload.a ?= @job.payload.b")
    jobs = [{"topic": "mail", "payload": {"a": ["x"], "b": ["x", n]}} for n in range(200)]
    quick_web.app.jobs.enqueue_many("mail", [job["payload"] for job in jobs])
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    others = asyncio.run_coroutine_threadsafe(take_turns(), loop)
    asked = {"jobs": jobs} if "many" in path else None
    turns = 0
    said = quick_web("POST" if asked else "GET", path, asked, as_=ada)
    others.cancel()

    assert said.is_success
    assert turns > 50


def test_a_key_sees_only_its_topics(web):
    _, key = web.app.keys.create("k", scopes=["enqueue", "manage", "work"], topics=["mail"])
    mine, other = web.app.jobs.enqueue("mail", 1), web.app.jobs.enqueue("other", 2)
    web.app.schedules.set("mine", topic="mail", every=60)
    web.app.schedules.set("other", topic="other", every=60)

    listed = web.get("/api/jobs", as_=key).json()["items"]
    assert [job["id"] for job in listed] == [str(mine.id)]
    assert [t["topic"] for t in web.get("/api/topics", as_=key).json()["items"]] == ["mail"]
    assert [s["name"] for s in web.get("/api/schedules", as_=key).json()["items"]] == ["mine"]
    assert refused(web.get(f"/api/jobs/{other.id}", as_=key)) == (404, "not_found")
    assert refused(web.get("/api/schedules/other", as_=key)) == (404, "not_found")
    for topics in (["other"], ["mail", "other"]):
        assert refused(web.post("/api/jobs/reserve", {"topics": topics}, as_=key)) == NOT_YOU
    for path in (
        "/api/jobs?topic=other",
        "/api/jobs/stats",
        "/api/jobs/throughput",
        "/api/workers",
    ):
        assert refused(web.get(path, as_=key)) == NOT_YOU
    assert refused(web.post(JOB, {"topic": "other"}, as_=key)) == NOT_YOU
    assert refused(web.post("/api/topics/other/purge", as_=key)) == NOT_YOU
    both = {"jobs": [{"topic": "mail"}, {"topic": "other"}]}
    assert refused(web.post("/api/jobs/enqueue-many", both, as_=key)) == NOT_YOU
    assert len(web.app.jobs.list()) == 2


# ---------------------------------------------------------------- what is hidden


BODIES = {
    "PATCH /api/jobs/{id}": {"priority": 1},
    "POST /api/jobs/{id}/fail": {"epoch": 1, "error": "x"},
    "POST /api/jobs/{id}/notes": {"epoch": 1, "said": 0},
    **{f"POST /api/jobs/{{id}}/{word}": {"epoch": 1} for word in (
        "complete", "release", "bury", "touch")},
}  # fmt: skip
OF_ONE_JOB = [
    f"{route.method} {route.path}"
    for route in ROUTES
    if {"id", "number"} & route.path_types.keys() and route.path.startswith("/api/jobs")
] + ["DELETE /api/jobs/{id}?epoch=1"]
EACH = "@job.payload.userId = @request.auth.id"
HIDING = {
    "from a user by the job": ({"manage_rule": EACH}, "ada"),
    "from a user by the topic": ({"manage_rule": "@request.auth.id != ''"}, "ada"),
    "from strangers by the job": ({"manage_rule": EACH}, None),
    "from strangers by the topic": ({"manage_rule": "true"}, None),
    "from a key": ({}, "key"),
}


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("route", OF_ONE_JOB)
def test_a_hidden_job_is_answered_as_one_that_does_not_exist(quick_web, route, hiding):
    web = quick_web
    rules, caller = HIDING[hiding]
    callers = {
        "ada": token_of(web.app, "users", "ada@example.org"),
        "key": web.app.keys.create("k", scopes=SCOPES, topics=["mail"])[1],
    }
    work_rule = rules.get("manage_rule", "").replace(EACH, "@job.topic = 'mail'")
    own = {"secret": {"manage_rule": "", "work_rule": ""}} if "topic" in hiding else {}
    web.app.access.set(**rules, work_rule=work_rule, topics=own)
    job = web.app.jobs.enqueue("secret", {"userId": "bob"})
    method, _, path = route.partition(" ")

    def answered(id, number):
        url = path.replace("{id}", str(id)).replace("{number}", str(number))
        said = web(method, url, BODIES.get(route), as_=callers.get(caller))
        text = said.text.replace(str(id), "ID").replace(f"job {number}", "job NUMBER")
        return said.status_code, text, said.headers.get("www-authenticate")

    hidden, missing = answered(job.id, job.seq), answered(uuid4(), 10**6)

    assert hidden == missing
    assert hidden[0] in {401, 404}


@pytest.mark.parametrize("path", [JOB, "/api/jobs/enqueue-many"])
def test_a_job_waits_only_for_jobs_that_its_caller_may_see(web, ada, bob, path):
    web.app.access.set(enqueue_rule="@request.auth.id != ''", manage_rule=EACH)
    own = web.app.jobs.enqueue("mail", {"userId": me(web, ada)})
    hidden = web.app.jobs.enqueue("mail", {"userId": me(web, bob)})

    def after(*ids, **more):
        new = {"topic": "mail", "after": [*map(str, ids)], **more}
        said = web.post(path, new if path == JOB else {"jobs": [new]}, as_=ada)
        return said.status_code, said.text.replace(str(ids[-1]), "ID")

    missing = after(uuid4())
    assert missing[0] == 404
    assert "job ID does not exist, so no job can wait for it" in missing[1]
    assert after(hidden.id) == after(own.id, hidden.id) == missing
    assert len(web.app.jobs.list()) == 2
    known = {"id": str(uuid4())}
    assert after(own.id, **known)[0] == 201
    web.app.jobs.delete(own)
    again = [after(id, **known) for id in (own.id, hidden.id, uuid4())]
    assert {status for status, _ in again} == {201}
    assert len({text for _, text in again}) == 1


def test_a_caller_that_may_see_no_job_has_none_wait_for_another(web):
    key = web.app.keys.create("k", scopes=["enqueue"])[1]
    job = web.app.jobs.enqueue("mail", 1)

    for id in (job.id, uuid4()):
        said = web.post(JOB, {"topic": "mail", "after": [str(id)]}, as_=key)
        assert refused(said) == NOT_YOU


def test_a_topic_that_is_closed_to_a_user_is_in_no_answer_about_all_topics(web, ada):
    """US9-3"""
    any_user = "@request.auth.id != ''"
    web.app.access.set(manage_rule=any_user, topics={"secret": {"manage_rule": ""}})
    for topic in ("secret", "mail"):
        web.app.jobs.enqueue(topic, max_retries=1)
        web.app.jobs.fail(*web.app.jobs.reserve(topic), f"no {topic}")
        web.app.jobs.enqueue_many(topic, [f"{topic} by session", f"{topic} by nobody"])
        session = web.app.sessions.start("w", ["secret", "mail"])
        web.app.jobs.reserve(topic, session=session)
        web.app.jobs.reserve(topic)

    for path in (
        "/api/workers", "/api/failures?minutes=60", "/api/topics", "/api/jobs",
        "/api/jobs/throughput?minutes=5&by=topic",
    ):  # fmt: skip
        said = web.get(path, as_=ada).text
        assert ("secret" in said, "mail" in said) == (False, True), path


def test_a_number_that_is_too_large_for_rules_is_refused_and_breaks_no_list(quick_web):
    web = quick_web
    ada = token_of(web.app, "users", "ada@example.org")
    web.app.access.set(access_rule="@request.auth.id != '' && @job.payload.x != 1")
    stored = web.app.jobs.enqueue("mail", {"x": msgspec.Raw(b"1e400")})
    job, headers = '{"topic": "mail", "payload": 1e400}', {"content-type": "application/json"}

    for path, body in ((JOB, job), ("/api/jobs/enqueue-many", f'{{"jobs": [{job}]}}')):
        said = web.post(path, content=body, headers=headers, as_=ada)
        assert refused(said) == (400, "bad_json")
    assert web.get("/api/jobs", as_=ada).json()["items"] == []
    root = token_of(web.app, "_superusers", "root@example.org")
    asked = {"verb": "manage", "job": str(stored.id), "as": {"auth": {"id": "ada"}}}
    assert "too large a number" in web.post("/api/access/try", asked, as_=root).json()["why"]


def test_a_payload_that_is_too_deep_for_rules_is_hidden_and_breaks_no_list(quick_web):
    web = quick_web
    ada = token_of(web.app, "users", "ada@example.org")
    web.app.access.set(
        enqueue_rule="@request.auth.id != '' && @request.body.topic != 'none'",
        manage_rule="@request.auth.id != '' && @job.payload.x != 1",
    )
    headers = {"content-type": "application/json"}
    for depth in range(1_000, 850, -1):
        payload = "[" * depth + "]" * depth
        with contextlib.suppress(InvalidPayload):
            web.app.jobs.enqueue("deep", msgspec.Raw(payload.encode()))
        body = f'{{"topic": "deep", "payload": {payload}}}'
        said = web.post(JOB, content=body, headers=headers, as_=ada)
        assert said.status_code in {201, 400, 403}

    assert web.app.jobs.list(topic="deep")
    assert web.get("/api/jobs?limit=1000", as_=ada).status_code == 200


def test_padded_tokens_are_not_remembered(quick_web):
    web = quick_web
    web.app.access.set(access_rule="true")
    ada = token_of(web.app, "users", "ada@example.org")

    for n in range(5):
        padded = {"authorization": f"Bearer {' ' * 1_000 * (n + 1)}{ada}"}
        assert web.get("/api/jobs", headers=padded).status_code == 200

    assert web.api.shared._authentication._cache == {}


# ---------------------------------------------------------------- changes


def test_changes_hold_at_once(web, root, ada):
    """In this process: for the very next request."""
    web.app.access.set(access_rule="@request.auth.id != ''")
    assert may(web, ada) == (201, 200)
    for rule, status in (("", 403), ("true", 201), ("@request.auth.role = 'none'", 403)):
        web.patch("/api/access", {"access_rule": rule}, as_=root)
        assert web.post(JOB, {"topic": "mail"}, as_=ada).status_code == status
    made = web.post("/api/keys", {"name": "k", "scopes": ["enqueue"]}, as_=root).json()
    assert may(web, made["secret"])[0] == 201
    web.delete(f"/api/keys/{made['id']}", as_=root)
    assert refused(web.post(JOB, {"topic": "mail"}, as_=made["secret"])) == BAD
    user = web.app.accounts.get("users", "ada@example.org")
    web.patch(f"/api/collections/users/records/{user.id}", {"password": "another one"}, as_=root)
    assert refused(web.post(JOB, {"topic": "mail"}, as_=ada)) == BAD


def test_changes_hold_on_another_instance_within_moments(durable_place, loop, quick_passwords):
    url, needed = durable_place
    with App(url, **needed) as one, App(url, **needed) as two:
        here, there = Web(one, loop), Web(two, loop)
        ada = token_of(one, "users", "ada@example.org")
        _, key = one.keys.create("k", scopes=["enqueue"])
        assert may(there, ada) == (403, 403)
        assert may(there, key)[0] == 201

        one.access.set(access_rule="true")
        eventually(lambda: may(there, None) == (201, 200))
        one.access.set(http_enabled=False)
        eventually(lambda: may(there, ada) == (403, 403))
        one.access.set(http_enabled=True)
        one.keys.revoke(one.keys.list()[0].id)
        eventually(lambda: may(there, key)[0] == 401)
        one.accounts.revoke(ada)
        eventually(lambda: may(there, ada)[0] == 401)
        here.close()
        there.close()


def test_a_caller_that_may_only_enqueue_does_not_see_what_another_job_under_its_key_holds(
    web, ada, bob
):
    web.app.access.set(
        enqueue_rule="@request.auth.id != ''",
        manage_rule="@job.payload.userId = @request.auth.id",
    )
    new = {"topic": "mail", "key": "k", "payload": {"userId": me(web, ada), "secret": 1}}
    first = web.post("/api/jobs/enqueue", new, as_=ada)

    own = web.post("/api/jobs/enqueue", {**new, "payload": 2}, as_=ada)
    other = web.post("/api/jobs/enqueue", {"topic": "mail", "key": "k"}, as_=bob)
    many = web.post(
        "/api/jobs/enqueue-many", {"jobs": [{"topic": "mail", "key": "k"}]}, as_=bob
    ).json()["items"]

    assert (own.status_code, own.json()) == (200, first.json())
    assert (other.status_code, other.json()["id"]) == (200, first.json()["id"])
    assert (other.json()["payload"], other.json()["headers"]) == (None, {})
    assert many == [other.json()]


@pytest.mark.parametrize(
    "option",
    [{"unique": "replace", "key": "k"}, {"limit": {"key": "x", "concurrency": 1}}, {"workers": 2},
     {"onlyWorkers": ["gold"]}],
    ids=str,
)  # fmt: skip
def test_what_concerns_other_jobs_is_for_those_who_may_manage(web, ada, option):
    web.app.access.set(enqueue_rule="true")
    new = {"topic": "mail", **option}
    key = web.app.keys.create("service", scopes=["enqueue"])[1]

    assert refused(web.post("/api/jobs/enqueue", new, as_=ada)) == (403, "forbidden")
    said = web.post("/api/jobs/enqueue-many", {"jobs": [new]}, as_=ada)
    assert refused(said) == (403, "forbidden")
    assert web.post("/api/jobs/enqueue", new, as_=key).status_code == 201
    web.app.access.set(manage_rule="@request.auth.id != ''")
    assert web.post("/api/jobs/enqueue", new, as_=ada).status_code in {200, 201}


def me(web, token):
    return web.app.accounts.verify(token).id


def test_what_a_rule_asks_of_a_job_is_not_true_of_a_whole_topic(web, ada):
    web.app.jobs.enqueue("admin", {"confidential": True})
    web.app.access.set(manage_rule=f"{ANY_USER} && @job.payload.confidential != true")

    for method, path in (
        ("POST", "/api/topics/admin/purge"), ("POST", "/api/topics/admin/pause"),
        ("GET", "/api/jobs/stats"), ("GET", "/api/workers"),
    ):  # fmt: skip
        assert refused(web(method, path, as_=ada)) == (403, "forbidden")
    assert web.get("/api/topics", as_=ada).json() == {"items": []}
    assert web.get("/api/jobs", as_=ada).json()["items"] == []


def test_the_topic_alone_is_known_of_a_topic(web, ada):
    web.app.jobs.enqueue("admin", {})
    web.app.jobs.enqueue("mail", {})
    rule = f"{ANY_USER} && @job.topic != 'admin'"
    web.app.access.set(access_rule=rule, work_rule=rule)

    for path in ("/api/topics/{}/pause", "/api/topics/{}/resume"):
        assert web.post(path.format("mail"), as_=ada).status_code == 204
        assert refused(web.post(path.format("admin"), as_=ada)) == (403, "forbidden")
    [topic] = web.get("/api/topics", as_=ada).json()["items"]
    assert topic["topic"] == "mail"
    wanted = {"topics": ["admin"]}
    assert refused(web.post("/api/jobs/reserve", wanted, as_=ada)) == (403, "forbidden")
    assert web.post("/api/jobs/enqueue", {"topic": "mail"}, as_=ada).status_code == 201
    assert refused(web.post("/api/jobs/enqueue", {"topic": "admin"}, as_=ada)) == (403, "forbidden")
    assert refused(web.get("/api/jobs/stats", as_=ada)) == (403, "forbidden")


def test_a_rule_for_enqueue_sees_the_job_that_is_to_be(web, ada):
    me = web.app.accounts.verify(ada).id
    web.app.access.set(access_rule="@job.payload.userId = @request.auth.id")

    own = web.post("/api/jobs/enqueue", {"topic": "a", "payload": {"userId": me}}, as_=ada)
    other = web.post("/api/jobs/enqueue", {"topic": "a", "payload": {"userId": "x"}}, as_=ada)

    assert own.status_code == 201
    assert refused(other) == (403, "forbidden")


@pytest.mark.parametrize("rule", ["@job.statsu = 1", "@job.run_at < @now", "@job.userId = 1"])
def test_a_field_that_no_job_has_is_refused_when_a_rule_is_saved(web, rule):
    with pytest.raises(InvalidRule, match="unknown field @job"):
        web.app.access.set(manage_rule=rule)


def test_a_work_rule_cannot_ask_what_is_not_known_before_a_job_is_reserved(web):
    with pytest.raises(InvalidRule, match=r"a work_rule may use only @job\.topic"):
        web.app.access.set(work_rule="@job.payload.region = @request.auth.region")


def test_rules_know_every_field_that_is_shown():
    assert {field.encode_name for field in fields(JobShown)} == JOB_FIELDS


def key_for(web: Web, *scopes: str, topics: tuple[str, ...] = ()) -> str:
    return web.app.keys.create("k", scopes=scopes, topics=topics)[1]


def test_a_caller_that_may_manage_but_not_enqueue_does_not_enqueue_by_a_schedule(web, root):
    manager = key_for(web, "manage")
    rule = {"topic": "pay", "every": 3600, "payload": {"amount": 1}}

    assert refused(web.put("/api/schedules/s", rule, as_=manager)) == (403, "forbidden")
    assert web.put("/api/schedules/s", rule, as_=root).status_code == 200
    assert refused(web.post("/api/schedules/s/run", as_=manager)) == (403, "forbidden")
    assert web.post("/api/schedules/s/pause", as_=manager).status_code == 204
