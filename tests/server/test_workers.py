"""Workers over HTTP: what they run, and to ask one to stop."""

import os

from tests.server.conftest import refused


def test_a_worker_tells_where_it_runs_and_what_it_holds(web, root, clock):
    web.app.jobs.enqueue_many("mail", [{"password": n} for n in range(3)])
    session = web.app.sessions.start("web-1", ["mail"], concurrency=5)
    web.app.jobs.reserve("mail", limit=2, session=session)
    web.app.jobs.reserve("mail")

    said = web.get("/api/workers", as_=root).json()

    [worker] = said["items"]
    assert (worker["worker"], worker["live"], worker["stopping"]) == ("web-1", True, False)
    assert (worker["pid"], worker["concurrency"], worker["leases"]) == (os.getpid(), 5, 2)
    assert [job["preview"] for job in worker["jobs"]] == ['{"password":"•••"}'] * 2
    assert [(each["topic"], each["leases"]) for each in said["unnamed"]] == [("mail", 1)]
    assert not worker["late"]
    clock.advance(web.app.settings.beat_every * 3)
    [worker] = web.get("/api/workers", as_=root).json()["items"]
    assert (worker["live"], worker["late"]) == (True, True)
    clock.advance(web.app.settings.dead_after)
    [worker] = web.get("/api/workers", as_=root).json()["items"]
    assert not worker["live"]


def test_a_worker_is_asked_to_stop_which_is_an_act(web, root):
    session = web.app.sessions.start("web-1", ["mail"])

    assert web.post(f"/api/workers/{session}/stop", as_=root).status_code == 204

    assert web.app.sessions.beat(session).stopping
    assert web.get("/api/workers", as_=root).json()["items"][0]["stopping"]
    [act] = web.app.events.read("system", types=["act.worker.stopped"]).events
    assert act.payload["session"] == str(session)
    assert refused(web.post("/api/workers/1/stop", as_=root)) == (404, "not_found")
    assert refused(web.post("/api/workers/9999999999999999999/stop", as_=root))[0] in {400, 404}
