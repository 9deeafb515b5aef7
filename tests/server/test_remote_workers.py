"""Workers in any language: reserve by long poll, and the words of a lease."""

import asyncio
from threading import Thread

import pytest

from tests.conftest import eventually
from tests.server.conftest import Web, refused, token_of
from towpath import App
from towpath.errors import Invalid
from towpath.server import work
from towpath.server.work import PORTION


@pytest.fixture
def key(web) -> str:
    """A key that may work."""
    return web.app.keys.create("worker", scopes=["work"])[1]


def reserved(web, key, **more):
    said = web.post("/api/jobs/reserve", {"topics": ["mail"], **more}, as_=key)
    assert said.status_code == 200, said.text
    return said.json()["leases"]


def test_a_job_is_reserved_and_completed(web, key):
    id = str(web.app.jobs.enqueue("mail", {"a": 1}).id)

    [lease] = reserved(web, key)
    said = web.post(f"/api/jobs/{id}/complete", {"epoch": lease["epoch"], "result": [1]}, as_=key)

    assert (lease["job"]["id"], lease["job"]["payload"], lease["epoch"]) == (id, {"a": 1}, 1)
    assert said.status_code == 204
    job = web.app.jobs.get(id)
    assert (job.status, job.returned) == ("completed", [1])


def test_no_job_is_no_lease(web, key):
    assert reserved(web, key) == []


def test_several_topics_and_jobs_at_once_most_urgent_first(web, key):
    web.app.jobs.enqueue("mail", 1)
    web.app.jobs.enqueue("other", 2, priority=1)

    leases = reserved(web, key, topics=["mail", "other"], limit=5)

    assert [lease["job"]["payload"] for lease in leases] == [2, 1]


def test_a_stale_epoch_is_refused_and_changes_nothing(web, key, clock):
    id = web.app.jobs.enqueue("mail", {}, ttr=10).id
    [old] = reserved(web, key)
    clock.advance(11)
    [new] = reserved(web, key)

    more = {"fail": {"error": "x"}, "notes": {"said": 0, "progress": 1}}
    for word in ("complete", "fail", "release", "bury", "touch", "notes"):
        body = {"epoch": old["epoch"], **more.get(word, {})}
        assert refused(web.post(f"/api/jobs/{id}/{word}", body, as_=key)) == (409, "lease_lost")
    assert refused(web.delete(f"/api/jobs/{id}?epoch=1", as_=key)) == (409, "lease_lost")
    assert web.app.jobs.get(id).epoch == new["epoch"]
    assert web.app.jobs.get(id).state == "reserved"
    assert (web.app.jobs.get(id).progress, web.app.jobs.logs(id)) == (None, [])


def test_every_word_of_a_lease(web, key, clock):
    for word, body, state in (
        ("complete", {}, "completed"),
        ("fail", {"error": "no luck"}, "delayed"),
        ("fail", {"error": "no luck", "delay": 0}, "ready"),
        ("release", {}, "ready"),
        ("release", {"delay": 5, "priority": 9}, "delayed"),
        ("bury", {}, "buried"),
    ):
        web.app.jobs.purge("mail")
        id = web.app.jobs.enqueue("mail", {}).id
        [lease] = reserved(web, key)
        said = web.post(f"/api/jobs/{id}/{word}", {"epoch": lease["epoch"], **body}, as_=key)
        assert said.status_code == 204, said.text
        job = web.app.jobs.get(id)
        web.app.upkeep.run()
        assert web.app.jobs.get(id).state == state or job.state == state, word


def test_why_a_try_failed_is_kept(web, key):
    id = web.app.jobs.enqueue("mail", {}).id
    [lease] = reserved(web, key)
    said = {
        "epoch": lease["epoch"],
        "error": "no luck",
        "traceback": "at send (a.ts:1)",
        "delay": 0,
    }
    assert web.post(f"/api/jobs/{id}/fail", said, as_=key).status_code == 204
    [lease] = reserved(web, key)
    said = {"epoch": lease["epoch"], "error": "no such address", "priority": 7}
    assert web.post(f"/api/jobs/{id}/bury", said, as_=key).status_code == 204

    first, last = web.app.jobs.failures(id)
    job = web.app.jobs.get(id)

    assert (first.error, first.traceback) == ("no luck", "at send (a.ts:1)")
    assert (last.error, last.traceback) == ("no such address", None)
    assert (job.state, job.retries, job.priority) == ("buried", 2, 7)


def test_the_same_word_again_holds(web, key):
    id = web.app.jobs.enqueue("mail", {}).id
    [lease] = reserved(web, key)
    body = {"epoch": lease["epoch"], "result": 5}

    said = [web.post(f"/api/jobs/{id}/complete", body, as_=key).status_code for _ in range(2)]

    assert said == [204, 204]


def test_touch_extends_a_lease_and_tells_of_a_cancel(web, key, clock):
    id = web.app.jobs.enqueue("mail", {}, ttr=10).id
    [lease] = reserved(web, key)
    clock.advance(6)

    touched = web.post(f"/api/jobs/{id}/touch", {"epoch": lease["epoch"]}, as_=key).json()
    assert touched["cancelRequested"] is False
    assert touched["until"] > lease["until"]
    web.app.jobs.cancel(id)
    touched = web.post(f"/api/jobs/{id}/touch", {"epoch": lease["epoch"]}, as_=key).json()
    assert touched["cancelRequested"] is True


def test_touch_tells_of_a_cancel_that_arrives_after_the_job_is_read(web, key, monkeypatch):
    id = web.app.jobs.enqueue("mail", {}).id
    [lease] = reserved(web, key)
    touch = web.app.jobs.atouch

    async def cancelled_before(lease):
        await web.app.jobs.acancel(id)
        return await touch(lease)

    monkeypatch.setattr(web.app.jobs, "atouch", cancelled_before)
    touched = web.post(f"/api/jobs/{id}/touch", {"epoch": lease["epoch"]}, as_=key).json()

    assert touched["cancelRequested"] is True


def test_what_a_run_says_is_kept_once_and_can_be_read(web, key, root):
    id = web.app.jobs.enqueue("mail", {}).id
    [lease] = reserved(web, key)
    begun = {"said": 0, "progress": 0.25, "message": "begun", "lines": ["a"], "logged": 0}
    later = {"said": 1, "progress": 0.5, "message": None, "lines": ["b \0", "c"], "logged": 1}
    begun["events"], later["events"] = [{"payload": {"n": 1}, "type": "n"}], [{}]

    messages = []
    for words in (begun, begun, later, later):
        said = web.post(f"/api/jobs/{id}/notes", {"epoch": lease["epoch"], **words}, as_=key)
        stored = 1 if words is begun and not messages[1:] else 2
        assert said.json() == {"said": stored, "cancelRequested": False}
        messages.append(web.app.jobs.get(id).progress_message)

    lines = web.get(f"/api/jobs/{id}/logs", as_=root).json()["items"]
    stream = web.get(f"/api/jobs/{id}/stream", as_=root).json()
    events = stream["events"]
    shown = web.get(f"/api/jobs/{id}", as_=root).json()
    assert [line["text"] for line in lines] == ["a", "b \N{REPLACEMENT CHARACTER}", "c"]
    assert [(event["type"], event["payload"]) for event in events] == [
        ("n", {"n": 1}),
        (None, None),
    ]
    assert (stream["cursor"], stream["current"], stream["ended"]) == (
        events[1]["cursor"],
        True,
        None,
    )
    web.post(f"/api/jobs/{id}/complete", {"epoch": lease["epoch"]}, as_=key)
    rest = web.get(f"/api/jobs/{id}/stream?after={events[1]['cursor']}", as_=root).json()
    assert (rest["events"], rest["ended"]) == ([], "completed")
    assert (shown["progress"], messages) == (0.5, ["begun", "begun", None, None])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({}, "invalid"),
        ({"said": None}, "invalid"),
        ({"said": -1}, "invalid"),
        ({"said": 2**31}, "invalid"),
        ({"epoch": None}, "invalid"),
        ({"progress": 1.5}, "invalid"),
        ({"progress": "half"}, "invalid"),
        ({"message": "half"}, "invalid"),
        ({"lines": "a"}, "invalid"),
        ({"lines": ["a", 1]}, "invalid"),
        ({"lines": ["a"] * 1_001}, "invalid"),
        ({"events": {"a": 1}}, "invalid"),
        ({"events": [1]}, "invalid"),
        ({"events": [{}] * 1_001}, "invalid"),
        ({"events": [{"payload": "x" * 2**20}]}, "payload_too_large"),
        ({"share": 0.5}, "invalid"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_makes_no_sense_is_not_said(web, key, words, code):
    id = web.app.jobs.enqueue("mail", {}).id
    reserved(web, key)

    said = web.post(f"/api/jobs/{id}/notes", {"epoch": 1, "said": 0, **words}, as_=key)

    assert refused(said) == (413 if code == "payload_too_large" else 400, code)
    assert (web.app.jobs.logs(id), web.app.events.read(f"job:{id}").events) == ([], [])


def test_very_much_is_said_in_several_requests(web, key):
    id = web.app.jobs.enqueue("mail", {}).id
    reserved(web, key)

    most = {"lines": ["a"] * 1_000, "logged": 0, "events": [{"payload": "x" * (2**20 - 2)}]}
    said = web.post(f"/api/jobs/{id}/notes", {"epoch": 1, "said": 0, **most}, as_=key)
    assert said.status_code == 200
    words = {"epoch": 1, "said": 1, "logged": 1_000, "lines": ["x" * 2**21]}
    said = web.post(f"/api/jobs/{id}/notes", words, as_=key)
    assert refused(said) == (413, "body_too_large")
    assert len(web.app.jobs.logs(id)) == 1_000


def test_words_that_come_too_early_are_refused_with_the_number_that_is_stored(web, key):
    id = web.app.jobs.enqueue("mail", {}).id
    reserved(web, key)

    words = {"epoch": 1, "said": 2, "events": [{"payload": 3}]}
    said = web.post(f"/api/jobs/{id}/notes", words, as_=key)

    assert refused(said) == (409, "words_missing")
    assert said.json()["details"] == {"said": 0}


def test_the_answer_to_words_says_that_the_job_was_cancelled(web, key):
    id = web.app.jobs.enqueue("mail", {}).id
    reserved(web, key)
    web.app.jobs.cancel(id)

    words = {"epoch": 1, "said": 0, "events": [{"payload": 1}]}
    said = web.post(f"/api/jobs/{id}/notes", words, as_=key)

    assert said.json() == {"said": 1, "cancelRequested": True}


def test_an_epoch_that_no_job_can_have_is_no_fault_of_ours(web, key):
    id = web.app.jobs.enqueue("mail", {}).id
    more = {"fail": {"error": "x"}, "notes": {"said": 0, "lines": ["late"], "logged": 0}}

    for word in ("complete", "fail", "release", "bury", "touch", "notes"):
        for epoch, expected in (
            (2**62, (409, "lease_lost")),
            (2**63 - 1, (409, "lease_lost")),
            (2**63, (400, "invalid")),
            (-1, (400, "invalid")),
        ):
            body = {"epoch": epoch, **more.get(word, {})}
            said = web.post(f"/api/jobs/{id}/{word}", body, as_=key)
            assert refused(said) == expected, (word, epoch)


def test_done_and_gone(web, key):
    id = web.app.jobs.enqueue("mail", {}).id
    [lease] = reserved(web, key)

    assert web.delete(f"/api/jobs/{id}?epoch={lease['epoch']}", as_=key).status_code == 204
    assert web.app.jobs.list() == []


def test_a_repeated_reserve_with_its_token_returns_the_same_leases(web, key):
    for n in range(3):
        web.app.jobs.enqueue("mail", n)

    first, again = (reserved(web, key, token=77, limit=2) for _ in range(2))

    assert first == again
    assert len(first) == 2


def test_many_jobs_come_in_one_answer_and_again_with_its_token(quick_web):
    key = quick_web.app.keys.create("worker", scopes=["work"])[1]
    quick_web.app.jobs.enqueue_many("mail", range(2 * PORTION + 50))

    first, again = (reserved(quick_web, key, token=77, limit=1_000) for _ in range(2))

    assert [lease["job"]["payload"] for lease in first] == list(range(2 * PORTION + 50))
    assert first == again


def test_large_jobs_are_answered_a_portion_at_a_time(quick_web, monkeypatch):
    """EC: a thousand of them would not fit into memory together."""
    monkeypatch.setattr(work, "PORTION", 10)
    key = quick_web.app.keys.create("worker", scopes=["work"])[1]
    quick_web.app.jobs.enqueue_many("mail", ["x" * 10**6] * 40)

    found = [len(reserved(quick_web, key, limit=1_000)) for _ in range(3)]

    assert found == [20, 20, 0]
    assert quick_web.app.jobs.stats().processing == 40


def test_a_long_poll_is_answered_when_a_job_comes(live_web):
    key = live_web.app.keys.create("worker", scopes=["work"])[1]
    found = []
    waiting = Thread(target=lambda: found.extend(reserved(live_web, key, timeout=30)))
    waiting.start()
    eventually(lambda: live_web.app.jobs.stats_waiting().get("mail"))

    live_web.app.jobs.enqueue("mail", "now")

    waiting.join(20)
    assert [lease["job"]["payload"] for lease in found] == ["now"]


def workers(web, root):
    return web.get("/api/workers", as_=root).json()["items"]


def test_a_worker_that_reserves_by_name_is_listed(web, key, root, clock):
    web.app.sessions.start("bronze", ["mail"])
    web.app.jobs.enqueue("mail", {}, ttr=100)
    reserved(web, key)
    assert [worker["worker"] for worker in workers(web, root)] == ["bronze"]
    web.app.jobs.enqueue("mail", {}, ttr=100)

    [lease] = reserved(web, key, worker="gold", topics=["mail", "post"])
    reserved(web, key, worker="silver")
    clock.advance(31)

    said = {worker["worker"]: worker for worker in workers(web, root)}
    known = {name: (worker["leases"], worker["live"]) for name, worker in said.items()}
    assert known == {"bronze": (0, False), "gold": (1, True), "silver": (0, False)}
    assert (said["gold"]["session"], said["gold"]["topics"]) == (None, ["mail", "post"])
    assert (said["gold"]["silent"], said["silver"]["silent"]) == (31, 31)
    touched = web.post(f"/api/jobs/{lease['job']['id']}/touch", {"epoch": 1}, as_=key)
    assert touched.status_code == 200
    assert workers(web, root)[1]["silent"] == 0


def test_every_instance_knows_the_workers_of_all(durable_place, loop, quick_passwords):
    url, needed = durable_place
    with App(url, **needed) as one, App(url, **needed) as two:
        here, there = Web(one, loop), Web(two, loop)
        key = one.keys.create("worker", scopes=["work"])[1]
        reserved(here, key, worker="gold")

        [worker] = workers(there, token_of(two, "_superusers", "root@example.org"))

        assert (worker["worker"], worker["live"]) == ("gold", True)
        here.close()
        there.close()


def test_empty_polls_of_one_worker_are_noted_once_in_a_while(web, key, root, clock):
    """EC: a poll that finds nothing costs no write."""
    for _ in range(3):
        reserved(web, key, worker="gold")
        clock.advance(1)

    assert workers(web, root)[0]["silent"] == 3


def test_a_worker_that_waits_is_noted_again_and_again(make_app, loop, quick_passwords):
    web = Web(make_app(dead_after=0.3, beat_every=0.1), loop)
    key = web.app.keys.create("worker", scopes=["work"])[1]
    waiting = Thread(target=lambda: reserved(web, key, worker="gold", timeout=60))
    waiting.start()
    eventually(web.app.sessions.remote)
    [first] = web.app.sessions.remote()

    eventually(lambda: web.app.sessions.remote()[0].beat_at > first.beat_at)

    web.app.jobs.enqueue("mail", {})
    waiting.join(20)
    assert not waiting.is_alive()
    web.close()


def asking(web, loop, key, body, gone):
    """Ask to reserve as a client that goes away when told."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive():
        for message in messages:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_message):
        """No listener is there."""

    scope = {
        "type": "http", "method": "POST", "path": "/api/jobs/reserve", "root_path": "",
        "query_string": b"", "headers": [(b"authorization", f"Bearer {key}".encode())],
        "scheme": "http", "client": ("127.0.0.1", 1),
    }  # fmt: skip
    return asyncio.run_coroutine_threadsafe(web.api(scope, receive, send), loop)


def test_a_client_that_goes_away_while_it_waits_leaves_nothing_reserved(live_web, loop):
    key = live_web.app.keys.create("worker", scopes=["work"])[1]
    gone = asyncio.Event()
    asked = asking(live_web, loop, key, b'{"topics": ["mail"], "timeout": 30}', gone)
    eventually(lambda: live_web.app.jobs.stats_waiting().get("mail"))

    loop.call_soon_threadsafe(gone.set)
    asked.result(20)
    live_web.app.jobs.enqueue("mail", 1)

    eventually(lambda: not live_web.app.jobs.stats_waiting())
    # The reservation may have begun, and is given back then.
    eventually(lambda: [job.state for job in live_web.app.jobs.list()] == ["ready"])


def test_a_client_that_goes_away_between_two_portions_leaves_nothing_reserved(
    live_web, loop, monkeypatch
):
    monkeypatch.setattr(work, "PORTION", 1)
    key = live_web.app.keys.create("worker", scopes=["work"])[1]
    live_web.app.jobs.enqueue_many("mail", range(1_000))
    gone = asyncio.Event()
    asked = asking(live_web, loop, key, b'{"topics": ["mail"], "limit": 1000}', gone)
    eventually(lambda: live_web.app.jobs.stats().processing)

    loop.call_soon_threadsafe(gone.set)
    asked.result(20)

    eventually(lambda: not live_web.app.jobs.stats().processing)
    assert live_web.app.jobs.stats().pending == 1_000


def test_only_a_caller_that_may_work_works(web, ada):
    id = web.app.jobs.enqueue("mail", {}).id
    other = web.app.keys.create("other", scopes=["enqueue", "manage"])[1]
    elsewhere = web.app.keys.create("elsewhere", scopes=["work"], topics=["reports"])[1]

    for caller, expected in (
        (None, (401, "login_required")),
        (ada, (403, "forbidden")),
        (other, (403, "forbidden")),
        (elsewhere, (403, "forbidden")),
    ):
        said = web.post("/api/jobs/reserve", {"topics": ["mail"]}, as_=caller)
        assert refused(said) == expected
    [lease] = web.app.jobs.reserve("mail")
    said = web.post(f"/api/jobs/{id}/complete", {"epoch": lease.epoch}, as_=elsewhere)
    assert refused(said) == (404, "not_found")
    words = {"epoch": lease.epoch, "said": 0, "events": [{"payload": "a"}]}
    said = web.post(f"/api/jobs/{id}/notes", words, as_=elsewhere)
    assert refused(said) == (404, "not_found")
    web.app.access.set(work_rule="@request.auth.role = 'editor'")
    assert web.post(f"/api/jobs/{id}/notes", words, as_=ada).status_code == 200
    assert web.post(f"/api/jobs/{id}/complete", {"epoch": 1}, as_=ada).status_code == 204


def test_a_client_that_goes_away_as_its_job_comes_leaves_it_ready(web, key, loop):
    """Both are true in the same tick: there is a lease, and no client to have it."""
    web.app.jobs.enqueue("mail", 1)
    messages = [
        {"type": "http.request", "body": b'{"topics": ["mail"]}', "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive():
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message):
        """No client is there."""

    scope = {
        "type": "http", "method": "POST", "path": "/api/jobs/reserve", "root_path": "",
        "query_string": b"", "headers": [(b"authorization", f"Bearer {key}".encode())],
        "scheme": "http", "client": ("127.0.0.1", 1),
    }  # fmt: skip
    asyncio.run_coroutine_threadsafe(web.api(scope, receive, send), loop).result(20)

    eventually(lambda: web.app.jobs.list()[0].state == "ready")


def key_for(web: Web, *scopes: str, topics: tuple[str, ...] = ()) -> str:
    return web.app.keys.create("k", scopes=scopes, topics=topics)[1]


def test_a_token_of_a_reservation_is_its_callers_and_its_topics(web):
    mail, other = (key_for(web, "work", topics=(topic,)) for topic in ("mail", "other"))
    web.app.jobs.enqueue("other", {"secret": 1})

    def reserved(topic, as_):
        wanted = {"topics": [topic], "token": 7}
        return web.post("/api/jobs/reserve", wanted, as_=as_).json()["leases"]

    [lease] = reserved("other", other)
    assert reserved("mail", mail) == []
    assert reserved("other", key_for(web, "work")) == []
    assert reserved("other", other) == [lease]


@pytest.mark.parametrize("name", ["a\0", "", "x" * 256, "\ud800"])
def test_what_is_no_name_of_a_worker_is_refused(web, name):
    with pytest.raises(Invalid):
        web.app.jobs.enqueue("mail", {}, only_workers=[name])
    with pytest.raises(Invalid):
        web.app.jobs.reserve("mail", worker=name)


def test_many_jobs_that_choose_their_workers_are_stored_all_or_none(web, root):
    standing = web.app.jobs.enqueue("mail", 1)
    new = [{"topic": "mail", "workers": 2}, {"topic": "mail", "id": str(standing.id)}]

    said = web.post("/api/jobs/enqueue-many", {"jobs": new}, as_=root)

    assert refused(said) == (409, "job_exists")
    assert web.app.jobs.list() == [standing]


def test_a_key_that_is_revoked_while_it_waits_gets_no_job(live_web):
    key, secret = live_web.app.keys.create("k", scopes=["work"])
    said = []
    wanted = {"topics": ["mail"], "timeout": 30}
    waiting = Thread(
        target=lambda: said.append(live_web.post("/api/jobs/reserve", wanted, as_=secret))
    )
    waiting.start()
    eventually(lambda: live_web.app.jobs.stats_waiting().get("mail"))

    live_web.app.keys.revoke(key.id)
    live_web.app.jobs.enqueue("mail", 1)
    waiting.join(20)

    assert refused(said[0]) == (401, "invalid_token")
    eventually(lambda: live_web.app.jobs.list()[0].state == "ready")
