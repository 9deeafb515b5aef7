"""One job in full over HTTP: exact payloads, hidden values, tries and reasons."""

import msgspec
import pytest

from tests.server.conftest import refused, token_of
from towpath import Limit

EXACT = '{"id": 12345678901234567890, "price": 1.10, "名": "🚤 \u202etfel", "a": {"id": 1}}'
SECRET = '{ "user": 12345678901234567890, "apiToken": {"a": [1, "]"]}, "n": 1.10 }'


def stored(web, payload, **options):
    """Store a job whose payload is this very text."""
    return web.app.jobs.enqueue("mail", msgspec.Raw(payload.encode()), **options)


def body_of(web, root, job, **query):
    return web.get(f"/api/jobs/{job.id}/payload", as_=root, params=query)


def revealed(web):
    """Return what was revealed, as Activity shows it."""
    page = web.app.events.read("system", types=["act.value.revealed"])
    return [event.payload for event in page.events]


def test_a_payload_is_shown_to_the_last_digit(web, root):
    job = stored(web, EXACT)

    said = body_of(web, root, job)

    assert said.text == EXACT
    assert said.headers["content-type"] == "text/plain; charset=utf-8"
    assert said.headers["x-content-type-options"] == "nosniff"
    assert web.get(f"/api/jobs/{job.id}", as_=root).json()["hidden"] == 0


def test_hidden_values_are_hidden_until_they_are_revealed_which_is_an_act(web, root):
    job = stored(web, SECRET)
    hidden = '{ "user": 12345678901234567890, "apiToken": "•••", "n": 1.10 }'

    assert body_of(web, root, job).text == hidden
    assert body_of(web, root, job, download="true").text == hidden
    assert web.get(f"/api/jobs/{job.id}", as_=root).json()["hidden"] == 1
    assert revealed(web) == []
    assert body_of(web, root, job, reveal="true").text == SECRET

    [act] = revealed(web)
    assert (act["job"], act["part"], act["who"]["id"] != "") == (str(job.id), "payload", True)


def test_the_browser_of_a_superuser_gets_no_hidden_value_that_is_not_revealed(quick_web):
    """A browser has the cookie; a token, as workers and scripts have it, gets all of a job."""
    web, root = quick_web, token_of(quick_web.app, "_superusers", "root@example.org")
    cookie = {"cookie": f"towpath_auth={root}", "sec-fetch-site": "same-origin"}
    headers = {"authorization": "Bearer hunter2", "x-trace": "7"}
    job = stored(web, SECRET, headers=headers)
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.complete(lease, {"password": "x", "n": 1})
    failed = stored(web, SECRET, max_retries=1)
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.fail(lease, "no")
    broken = web.app.jobs.enqueue("mail", b'{"password": "hunter2"')
    stored(web, SECRET, key="held")
    payload = msgspec.Raw(SECRET.encode())
    web.app.schedules.set("daily", topic="mail", payload=payload, every=3600, headers=headers)

    own, other = f"/api/jobs/{job.id}", f"/api/jobs/{failed.id}"
    answers = [
        web(method, path, *body, headers=cookie)
        for method, path, *body in [
            ("GET", own),
            ("GET", f"/api/jobs/numbered/{job.seq}"),
            ("GET", "/api/jobs"),
            ("GET", "/api/jobs?brief=true"),
            ("GET", f"{own}/payload"),
            ("GET", f"{own}/payload?part=result"),
            ("GET", f"{own}/payload?part=headers"),
            ("GET", f"{own}/payload?download=true"),
            ("POST", f"{other}/requeue"),
            ("PATCH", other, {"delay": 60}),
            ("POST", f"{other}/kick"),
            ("POST", f"{other}/cancel"),
            ("POST", "/api/jobs/enqueue", {"topic": "mail", "key": "held"}),
            ("GET", "/api/schedules"),
            ("GET", "/api/schedules/daily"),
            ("PUT", "/api/schedules/daily", {"topic": "mail", "every": 60, "keepPayload": True}),
            ("POST", "/api/schedules/daily/run"),
        ]
    ]

    for each in answers:
        assert each.status_code in {200, 201}, each.text
        assert "•••" in each.text, each.url
        for value in ('"]"', '"password":"x"', "hunter2"):
            assert value not in each.text, each.url
    [shown] = [each for each in answers[2].json()["items"] if each["id"] == str(broken.id)]
    assert (shown["payload"], shown["encoding"]) == ("•••", "text")
    assert answers[0].json()["headers"] == {"authorization": "•••", "x-trace": "7"}
    whole = web.get(own, as_=root)
    assert whole.json()["headers"] == headers
    assert '"apiToken": {"a": [1, "]"]}' in whole.text
    assert whole.json()["result"] == {"password": "x", "n": 1}
    assert body_of(web, root, job, reveal="true").text == SECRET
    revealed_headers = body_of(web, root, job, part="headers", reveal="true").json()
    assert (revealed_headers, revealed(web)[-1]["part"]) == (headers, "headers")


def test_a_result_is_shown_in_the_same_way(web, root):
    job = stored(web, "{}")
    assert body_of(web, root, job, part="result").text == ""
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.complete(lease, {"password": "x", "n": 1})

    assert body_of(web, root, job, part="result").text == '{"password":"•••","n":1}'
    assert web.get(f"/api/jobs/{job.id}", as_=root).json()["hidden"] == 1


def test_raw_bytes_are_only_downloaded(web, root):
    job = web.app.jobs.enqueue("mail", b"\x00\xff<script>")

    assert refused(body_of(web, root, job)) == (400, "invalid")
    said = body_of(web, root, job, download="true")

    assert said.content == b"\x00\xff<script>"
    assert said.headers["content-type"] == "application/octet-stream"
    assert said.headers["content-disposition"].startswith('attachment; filename="payload-')


def test_bytes_that_are_text_are_shown_as_text(web, root):
    plain = web.app.jobs.enqueue("mail", b"hello \xf0\x9f\x9a\xa4")
    broken = web.app.jobs.enqueue("mail", b'{"password": "hunter2"')

    assert body_of(web, root, plain).text == "hello 🚤"
    assert body_of(web, root, broken).text == "•••"


def test_a_job_tells_its_options_and_its_lease(web, root):
    parent = web.app.jobs.enqueue("fetch")
    job = web.app.jobs.enqueue(
        "mail", limit=Limit("mailer", concurrency=2, rate="10/s", burst=3), backoff=[1, 5]
    )
    web.app.jobs.enqueue("report", after=[job, parent])
    chosen = web.app.jobs.enqueue("deploy", workers=2, only_workers=["a", "b"])
    session = web.app.sessions.start("web-1")
    web.app.jobs.reserve("mail", session=session)

    said = web.get(f"/api/jobs/{job.id}", as_=root).json()

    assert said["limit"] == {"key": "mailer", "concurrency": 2, "rate": "10/s", "burst": 3}
    assert said["backoff"]["waits"] == [1, 5]
    assert (said["session"], said["worker"], said["begun"]) == (str(session), "web-1", False)
    assert said["startedAt"] == said["reservedAt"]
    assert (said["parents"], said["children"]) == (0, 1)
    said = web.get(f"/api/jobs/{chosen.id}", as_=root).json()
    assert (said["workers"], said["onlyWorkers"]) == (2, ["a", "b"])
    assert (said["session"], said["worker"], said["startedAt"]) == (None, None, None)


def test_tries_and_reasons_are_told(web, root):
    job = web.app.jobs.enqueue("mail", max_retries=1)
    [lease] = web.app.jobs.reserve("mail", worker="node-7")
    web.app.jobs.fail(lease, "no")

    [tried] = web.get(f"/api/jobs/{job.id}/tries", as_=root).json()["items"]
    [reason] = web.get(f"/api/jobs/{job.id}/why", as_=root).json()["items"]

    assert (tried["worker"], tried["outcome"], tried["error"]) == ("node-7", "error", "no")
    assert (reason["code"], reason["jobs"], reason["limit"]) == ("failed", [], None)
    remedy = reason["remedies"][0]
    assert web(remedy["method"], remedy["path"], remedy["body"], as_=root).status_code == 200
    [*_, reason] = web.get(f"/api/jobs/{job.id}/why", as_=root).json()["items"]
    assert reason["before"] == {"count": 0, "exact": True}


@pytest.mark.parametrize("part", ["", "/payload", "/tries", "/why"])
def test_a_user_reads_only_jobs_that_it_may_manage(web, part):
    web.app.access.set(manage_rule="@job.payload.owner = @request.auth.id")
    ada = token_of(web.app, "users", "ada@example.org")
    own = web.app.accounts.get("users", "ada@example.org").id
    mine = web.app.jobs.enqueue("mail", {"owner": own})
    other = web.app.jobs.enqueue("mail", {"owner": "bob"})

    assert web.get(f"/api/jobs/{mine.id}{part}", as_=ada).status_code == 200
    assert refused(web.get(f"/api/jobs/{other.id}{part}", as_=ada)) == (404, "not_found")


def test_a_flow_shows_a_user_only_jobs_that_it_may_manage(web, root):
    web.app.access.set(manage_rule="@job.payload.owner = @request.auth.id")
    ada = token_of(web.app, "users", "ada@example.org")
    own = web.app.accounts.get("users", "ada@example.org").id
    hidden = web.app.jobs.enqueue("fetch", {"owner": "bob"})
    mine = [web.app.jobs.enqueue("mail", {"owner": own}, after=[hidden]) for _ in range(2)]
    last = web.app.jobs.enqueue("mail", {"owner": own}, after=mine)

    flow = web.get(f"/api/jobs/{last.id}/flow", as_=ada).json()

    assert {node["id"] for node in flow["nodes"]} == {str(job.id) for job in (*mine, last)}
    assert len(flow["edges"]) == 2
    assert not flow["whole"]
    why = f"/api/jobs/{mine[0].id}/why"
    assert "waits for 1 job" in web.get(why, as_=ada).text
    assert str(hidden.id) not in web.get(why, as_=ada).text
    assert str(mine[0].id) in web.get(f"/api/jobs/{last.id}/why", as_=ada).text
    web.app.jobs.cancel(hidden)
    assert "the fetch job" not in web.get(why, as_=ada).text
    assert "the fetch job" in web.get(why, as_=root).text


def test_flows_are_told_as_graphs_and_as_a_list(web, root):
    first = web.app.jobs.enqueue("fetch", {"password": "x"})
    last = web.app.jobs.enqueue("pack", after=[first])

    flow = web.get(f"/api/jobs/{last.id}/flow", as_=root).json()
    page = web.get("/api/flows", as_=root, params={"limit": 1}).json()

    assert [node["id"] for node in flow["nodes"]] == [str(last.id), str(first.id)]
    assert flow["edges"] == [{"parent": str(first.id), "child": str(last.id)}]
    assert flow["nodes"][1]["preview"] == '{"password":"•••"}'
    assert page["items"][0]["job"]["id"] == str(last.id)
    assert page["items"][0]["jobs"] == {"ready": 1, "blocked": 1}
    assert page["next"] is None
