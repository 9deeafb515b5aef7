"""Lists of jobs for people: pages both ways, filters, previews, counts, and how far they look."""

import asyncio
import re
from datetime import timedelta
from urllib.parse import quote

import pytest

from tests.server.conftest import refused
from towpath.app import listing as app_listing
from towpath.server import listing


@pytest.fixture
def ask(web, root):
    """Ask for a list as a superuser."""

    def ask(query, status=200):
        said = web.get(f"/api/jobs?{query}", as_=root)
        assert said.status_code == status, said.text
        return said.json()

    return ask


def payloads(page):
    return [job["payload"] for job in page["items"]]


def numbers(page):
    return [job["seq"] for job in page["items"]]


@pytest.mark.parametrize(
    ("order", "forward", "back"), [("newest", "before", "after"), ("oldest", "after", "before")]
)
def test_pages_go_forward_and_back(web, ask, order, forward, back):
    """US6-1"""
    made = [job.seq for job in web.app.jobs.enqueue_many("mail", range(7))]
    wanted = made if order == "oldest" else made[::-1]
    query = f"order={order}&limit=3&brief=true"

    first = ask(query)
    second = ask(f"{query}&{forward}={first['next']}")
    third = ask(f"{query}&{forward}={second['next']}")

    assert [numbers(each) for each in (first, second, third)] == [
        wanted[:3], wanted[3:6], wanted[6:],
    ]  # fmt: skip
    assert (first["prev"], third["next"]) == (None, None)
    again = ask(f"{query}&{back}={third['prev']}")
    assert numbers(again) == numbers(second)
    assert again["next"] == second["next"]
    assert numbers(ask(f"{query}&{back}={again['prev']}")) == numbers(first)


def test_a_page_of_whole_jobs_goes_back_too(web, ask):
    made = [job.seq for job in web.app.jobs.enqueue_many("mail", range(5))]

    back = ask(f"limit=2&after={made[0]}")

    assert numbers(back) == [made[2], made[1]]
    assert ask(f"limit=2&before={back['next']}")["items"][0]["seq"] == made[0]
    assert numbers(ask(f"limit=2&after={back['prev']}")) == [made[4], made[3]]


def test_a_brief_list_hides_secrets_and_shows_beginnings(web, ask):
    secret = {"to": "ada", "apiToken": "s3cret", "text": "x" * 500}
    web.app.jobs.enqueue("mail", secret, key="k1", max_retries=1)
    [lease] = web.app.jobs.reserve("mail", worker="gpu-1")
    running = ask("brief=true")["items"][0]
    web.app.jobs.fail(lease, "no " * 200)

    text = web.get("/api/jobs?brief=true", as_=root_of(web)).text
    [job] = ask("brief=true")["items"]

    assert "s3cret" not in text
    assert job["preview"].startswith('{"to":"ada","apiToken":"•••"')
    assert (len(job["preview"]), len(job["lastError"])) == (200, 300)
    assert (job["status"], job["state"], job["retries"], job["maxRetries"]) == (
        "failed", "buried", 1, 1,
    )  # fmt: skip
    assert "payload" not in job
    assert job["size"] > 500
    assert (running["worker"], running["state"]) == ("gpu-1", "reserved")


def root_of(web):
    return web.app.accounts.token(web.app.accounts.get("_superusers", "root@example.org"))


def test_a_long_payload_has_no_preview(web, ask):
    web.app.jobs.enqueue("mail", "x" * 100_000)

    [job] = ask("brief=true")["items"]

    assert (job["preview"], job["size"]) == (None, 100_002)


def test_a_job_is_found_by_its_payload_key_or_last_error(web, ask):
    """US6: people look for errors."""
    web.app.jobs.enqueue("mail", "by payload")
    web.app.jobs.enqueue("mail", "b", key="by key 50%")
    web.app.jobs.enqueue("mail", "c", max_retries=1)
    [*_, lease] = web.app.jobs.reserve("mail", limit=3)
    web.app.jobs.fail(lease, "no such host")

    assert payloads(ask("text=BY+PAY")) == ["by payload"]
    assert payloads(ask(f"text={quote('50%')}")) == ["b"]
    assert payloads(ask("text=Such+Host&status=failed")) == ["c"]
    assert payloads(ask("error=host")) == ["c"]
    assert payloads(ask("error=payload")) == []


def test_an_id_or_a_number_alone_finds_that_job(web, ask):
    first = web.app.jobs.enqueue("mail", "first")
    second = web.app.jobs.enqueue("mail", str(first.seq))

    assert payloads(ask(f"text={first.id}")) == ["first"]
    assert payloads(ask(f"text={str(first.id).upper()}&status=failed")) == ["first"]
    assert payloads(ask(f"text={second.seq}")) == [str(first.seq)]
    assert payloads(ask("text=00000000-0000-7000-8000-000000000000")) == []
    assert payloads(ask("text=987654321")) == []


def test_the_id_or_number_of_a_job_of_another_topic_opens_it_to_no_caller(web, ada):
    """US9-3"""
    secret = web.app.jobs.enqueue("payroll", "secret")
    own = web.app.jobs.enqueue("mail", "own")
    web.app.access.set(topics={"mail": {"manage_rule": "@request.auth.id != ''"}})
    key = web.app.keys.create("mail", scopes=["manage"], topics=["mail"])[1]

    for caller in (ada, key):
        for name in (secret.id, secret.seq):
            for brief in ("true", "false"):
                said = web.get(f"/api/jobs?topic=mail&text={name}&brief={brief}", as_=caller)
                assert (said.status_code, said.json()["items"]) == (200, [])
        said = web.get(f"/api/jobs?topic=mail&text={own.seq}", as_=caller)
        assert payloads(said.json()) == ["own"]


def test_jobs_are_listed_by_their_ids(web, ask):
    made = web.app.jobs.enqueue_many("mail", range(3))
    ids = f"{made[0].id},{made[2].id},00000000-0000-7000-8000-000000000000"

    assert payloads(ask(f"ids={ids}")) == [2, 0]
    assert [job["id"] for job in ask(f"ids={ids}&brief=true&limit=1")["items"]] == [
        str(made[2].id), str(made[0].id),
    ]  # fmt: skip
    many = ",".join([str(made[0].id)] * 101)
    for bad in (f"ids={many}", "ids=7", f"ids={ids}&topic=mail"):
        assert refused(web.get(f"/api/jobs?{bad}", as_=root_of(web))) == (400, "invalid")


def test_a_state_is_finer_than_a_status(web, ask):
    """US6-3"""
    web.app.jobs.enqueue("mail", "ready")
    web.app.jobs.enqueue("mail", "delayed", delay=60)

    assert payloads(ask("state=ready")) == ["ready"]
    assert payloads(ask("status=pending&state=delayed")) == ["delayed"]
    assert payloads(ask("status=pending")) == ["delayed", "ready"]
    web.app.jobs.reserve("mail", worker="web 1")
    assert payloads(ask("worker=web%201")) == ["ready"]
    ask("status=failed&state=ready", 400)


def test_jobs_of_a_time_range_are_listed(web, ask, clock):
    for n in range(10):
        web.app.jobs.enqueue("mail", n)
        clock.advance(60)
    at = clock.now - timedelta(seconds=600)
    since, until = (quote((at + timedelta(seconds=60 * n)).isoformat()) for n in (3, 6))

    assert payloads(ask(f"since={since}&until={until}")) == [5, 4, 3]
    assert payloads(ask(f"since={since}&limit=2&order=oldest")) == [3, 4]
    assert payloads(ask(f"until={until}&topic=mail&state=ready")) == [5, 4, 3, 2, 1, 0]
    assert ask(f"since={since}&until={until}&count=true")["total"] == {"count": 3, "exact": True}


def test_the_order_next_is_that_of_reservation(web, ask):
    for priority, topic in ((50, "mail"), (10, "post"), (50, "mail"), (20, "mail")):
        web.app.jobs.enqueue(topic, f"{topic} {priority}", priority=priority)
    web.app.jobs.enqueue("mail", "later", delay=60)
    web.app.jobs.enqueue("mail", "sooner", delay=30)

    line = ask("order=next&state=ready&limit=3")
    assert payloads(line) == ["post 10", "mail 20", "mail 50"]
    assert payloads(ask(f"order=next&state=ready&before={line['next']}")) == ["mail 50"]
    assert payloads(ask("order=next&state=ready&topic=mail&limit=1")) == ["mail 20"]
    assert payloads(ask("order=next&state=delayed")) == ["sooner", "later"]
    taken = [lease.job.payload for lease in web.app.jobs.reserve(["mail", "post"], limit=4)]
    assert taken == ["post 10", "mail 20", "mail 50", "mail 50"]
    for bad in ("order=next", "order=next&state=completed", "order=next&state=ready&text=x"):
        ask(bad, 400)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("limit=9", 6),
        ("status=pending", 3),
        ("topic=mail", 5),
        ("state=buried", 1),
        ("status=completed", 2),
        ("status=completed&topic=post", 0),
        ("text=m", 5),
        ("topic=nowhere", 0),
    ],
)
def test_a_list_tells_how_many_there_are(web, ask, query, count):
    """US6-6"""
    web.app.jobs.enqueue_many("mail", ["m"] * 4)
    web.app.jobs.enqueue("mail", "m", delay=60)
    done, other, aside = web.app.jobs.reserve("mail", limit=3)
    web.app.jobs.complete_many([done, other])
    web.app.jobs.bury(aside)
    web.app.jobs.enqueue("post", "p")

    for brief in ("true", "false"):
        page = ask(f"{query}&count=true&brief={brief}")
        assert page["total"] == {"count": count, "exact": True}
    assert ask(query)["total"] is None


def test_a_search_looks_at_no_more_than_a_bound_and_goes_on(web, ask, monkeypatch):
    """One request looks at a bounded number of jobs; the next goes on from there."""
    monkeypatch.setattr(listing, "MOST_LOOKED", 300)
    old = web.app.jobs.enqueue("mail", "needle")
    web.app.jobs.enqueue_many("mail", range(650))

    for brief in ("false", "true"):
        page, asked = ask(f"text=needle&brief={brief}"), 1
        assert page["items"] == []
        assert page["lookedTo"] is not None
        while not page["items"]:
            page = ask(f"text=needle&brief={brief}&before={page['next']}")
            asked += 1
        assert (numbers(page), asked, page["next"]) == ([old.seq], 3, None)
        assert page["lookedTo"] is None


def test_a_count_of_what_is_searched_says_that_there_are_at_least_so_many(web, ask, monkeypatch):
    monkeypatch.setattr(listing, "MOST_LOOKED", 300)
    web.app.jobs.enqueue_many("mail", ["hay"] * 400)

    assert ask("text=hay&count=true&limit=5")["total"] == {"count": 300, "exact": False}


def test_many_waiting_jobs_are_listed_newest_first(web, ask, monkeypatch):
    monkeypatch.setattr("towpath.store.listing.FEW", 5)
    web.app.jobs.enqueue_many("mail", range(8))
    web.app.jobs.enqueue("mail", "later", delay=60)
    web.app.jobs.enqueue_many("post", [f"post {n}" for n in range(300)])
    web.app.jobs.complete(*web.app.jobs.reserve("mail"))

    assert payloads(ask("state=ready&topic=mail&limit=3")) == [7, 6, 5]
    assert payloads(ask("status=pending&topic=mail&limit=3")) == ["later", 7, 6]
    assert payloads(ask("status=pending&topic=mail&order=oldest&limit=2")) == [1, 2]
    assert payloads(ask("state=ready&text=post+7&limit=2")) == ["post 79", "post 78"]


def test_a_search_ends_when_its_client_has_gone(web, root, loop, monkeypatch):
    """US6: two searches that no browser waits for must not block all lists."""
    web.app.jobs.enqueue_many("mail", range(50))
    begun, held, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    real = app_listing.Listing.abriefs

    async def slow(self, *given, **more):
        begun.set()
        try:
            await held.wait()
        finally:
            ended.set()
        return await real(self, *given, **more)

    monkeypatch.setattr(app_listing.Listing, "abriefs", slow)
    gone = asyncio.Event()

    async def receive():
        if not begun.is_set():
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    async def leave():
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/jobs",
            "query_string": b"text=x&brief=true",
            "headers": [(b"authorization", f"Bearer {root}".encode())],
            "client": ("127.0.0.1", 1),
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "server": ("towpath.test", 80),
        }
        asking = asyncio.ensure_future(web.api(scope, receive, send))
        await begun.wait()
        gone.set()
        await asyncio.wait_for(ended.wait(), 30)
        await asyncio.wait_for(asking, 30)

    asyncio.run_coroutine_threadsafe(leave(), loop).result(60)
    monkeypatch.setattr(app_listing.Listing, "abriefs", real)
    assert len(web.get("/api/jobs?brief=true", as_=root).json()["items"]) == 50


def test_a_user_sees_briefs_of_own_jobs_only(web, ada):
    web.app.access.set(manage_rule="@job.payload.owner = 'ada'")
    web.app.jobs.enqueue_many("mail", [{"owner": "ada"}, {"owner": "bob"}, {"owner": "ada"}])

    page = web.get("/api/jobs?brief=true&limit=1&count=true", as_=ada).json()

    assert page["total"] is None
    assert [re.search("ada|bob", job["preview"])[0] for job in page["items"]] == ["ada"]
    rest = web.get(f"/api/jobs?brief=true&before={page['next']}", as_=ada).json()
    assert len(rest["items"]) == 1
    assert rest["next"] is None
