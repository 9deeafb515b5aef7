"""Schedules over HTTP: an edit loses nothing, previews, and what became of the last fires."""

import msgspec
import pytest

from tests.server.conftest import refused, token_of

EVERYTHING = {
    "priority": 7,
    "ttr": 9.5,
    "key": "k",
    "task": "sweep-up",
    "maxRetries": 8,
    "maxCrashes": 2,
    "timeout": 30.0,
    "retention": 3600.0,
    "expiresAfter": None,
    "backoff": {
        "first": 5.0, "factor": 3.0, "most": 3600.0, "step": 1.0, "jitter": 0.5, "waits": [],
    },
    "limit": None,
    "workers": 2,
    "onlyWorkers": ["a", "b"],
    "pingInterval": 1.0,
    "workerTimeout": 5.0,
    "maxUnexpectedRetries": 1,
    "unexpectedRetryDelay": 2.0,
    "headers": {"a": "b"},
}  # fmt: skip
LIMITED = {
    "expiresAfter": 60.0,
    "limit": {"key": "shop", "concurrency": 2, "rate": "10/s", "burst": 3},
}


@pytest.mark.parametrize("options", [EVERYTHING, LIMITED, {}, {"backoff": {"waits": [1, 5]}}])
def test_an_edit_that_gives_what_it_was_told_loses_nothing(web, root, options):
    """P4 of the dashboard"""
    rule = {"topic": "clean", "every": 60, "payload": {"n": 1}, "options": options}
    made = web.put("/api/schedules/sweep", rule, as_=root).json()
    assert {name: made["options"][name] for name in options if name != "backoff"} == {
        name: value for name, value in options.items() if name != "backoff"
    }
    stored = web.app.schedules.get("sweep")

    told = web.get("/api/schedules/sweep", as_=root).json()
    names = ("topic", "payload", "encoding", "options", "catchUp")
    edit = {**{name: told[name] for name in names}, "every": 120}
    again = web.put("/api/schedules/sweep", edit, as_=root).json()

    assert again["options"] == made["options"]
    now = web.app.schedules.get("sweep")
    assert (now.options, now.key, now.ttr) == (stored.options, stored.key, stored.ttr)
    assert (now.body, now.priority) == (stored.body, stored.priority)


@pytest.mark.parametrize("payload", [b"\x00\xff", b"text"])
def test_an_edit_keeps_a_payload_of_bytes(web, root, payload):
    web.app.schedules.set("sweep", topic="clean", every=60, payload=payload)
    told = web.get("/api/schedules/sweep", as_=root).json()

    edit = {name: told[name] for name in ("topic", "payload", "encoding", "options", "every")}
    assert web.put("/api/schedules/sweep", edit, as_=root).status_code == 200

    assert web.app.schedules.get("sweep").payload == payload


SECRET = '{ "user": 12345678901234567890, "apiToken": "hunter2", "n": 1.10 }'


def test_hidden_values_of_a_payload_are_revealed_by_an_act(web, root):
    """J2 of the dashboard"""
    rule = f'{{"topic": "clean", "every": 60, "payload": {SECRET}}}'
    assert web.put("/api/schedules/sweep", content=rule, as_=root).status_code == 200

    def told(**query):
        return web.get("/api/schedules/sweep/payload", as_=root, params=query).text

    def acts():
        return web.app.events.read("system", types=["act.value.revealed"]).events

    assert told() == '{ "user": 12345678901234567890, "apiToken": "•••", "n": 1.10 }'
    assert acts() == []
    assert told(reveal="true") == SECRET
    [act] = acts()
    assert (act.payload["schedule"], act.payload["topic"]) == ("sweep", "clean")


def test_what_a_browser_was_told_in_place_of_a_hidden_value_is_not_stored(quick_web):
    web = quick_web
    token = token_of(web.app, "_superusers", "root@example.org")
    cookie = {"cookie": f"towpath_auth={token}", "sec-fetch-site": "same-origin"}
    sent = {"authorization": "Bearer hunter2", "x-trace": "7"}
    hidden = {"apiToken": "hunter2"}
    web.app.schedules.set("sweep", topic="clean", every=60, payload=hidden, headers=sent)
    told = web.get("/api/schedules/sweep", headers=cookie).json()
    assert told["options"]["headers"] == {"authorization": "•••", "x-trace": "7"}
    edit = {"topic": "clean", "every": 120, "payload": told["payload"], "options": told["options"]}

    said = web.put("/api/schedules/sweep", edit, headers=cookie)
    assert refused(said) == (400, "invalid")
    assert "`keepPayload`" in said.json()["message"]
    edit["payload"] = {"apiToken": "hunter3"}
    assert web.put("/api/schedules/sweep", edit, headers=cookie).status_code == 200
    assert dict(web.app.schedules.get("sweep").options.headers) == sent
    said = web.put("/api/schedules/other", edit, headers=cookie)
    assert (refused(said), "authorization" in said.text) == ((400, "invalid"), True)


@pytest.mark.parametrize("payload", [msgspec.Raw(SECRET.encode()), b"\x00\xff", b"text"])
def test_an_edit_can_keep_the_payload_without_reading_it(web, root, payload):
    web.app.schedules.set("sweep", topic="clean", every=60, payload=payload)
    before = web.app.schedules.get("sweep")
    edit = {"topic": "tidy", "every": 120, "keepPayload": True}

    assert web.put("/api/schedules/sweep", edit, as_=root).status_code == 200
    now = web.app.schedules.get("sweep")
    assert (now.topic, now.body, now.encoding) == ("tidy", before.body, before.encoding)
    assert refused(web.put("/api/schedules/other", edit, as_=root)) == (400, "invalid")


def test_a_kept_payload_must_be_allowed_as_a_given_one(web, root, ada):
    """A rule of enqueue sees the payload that the schedule will enqueue."""
    rules = {
        "manage_rule": "@request.auth.id != ''",
        "enqueue_rule": "@request.body.payload.safe = true",
    }
    web.patch("/api/access", rules, as_=root)
    edit = {"topic": "clean", "every": 120, "keepPayload": True, "payload": {"safe": True}}
    for is_safe, status in ((False, 403), (True, 200)):
        web.app.schedules.set("sweep", topic="clean", every=60, payload={"safe": is_safe})

        assert web.put("/api/schedules/sweep", edit, as_=ada).status_code == status


@pytest.mark.parametrize("text", [b"1e400", b"[" * 2_000 + b"]" * 2_000])
def test_a_payload_that_no_rule_can_read_is_refused_or_no_matter(quick_web, text):
    web = quick_web
    root, ada = (token_of(web.app, of, f"{of}@example.org") for of in ("_superusers", "users"))
    rules = {
        "manage_rule": "@request.auth.id != ''",
        "enqueue_rule": "@request.body.payload.x != 1",
    }
    web.patch("/api/access", rules, as_=root)
    web.app.schedules.set("sweep", topic="clean", every=60, payload={"x": msgspec.Raw(text)})
    edit = {"topic": "clean", "every": 120, "keepPayload": True}

    assert refused(web.put("/api/schedules/sweep", edit, as_=root)) == (400, "invalid_payload")
    assert web.post("/api/schedules/sweep/run", as_=root).status_code == 200
    for said in (
        web.put("/api/schedules/sweep", edit, as_=ada),
        web.post("/api/schedules/sweep/run", as_=ada),
    ):
        assert refused(said) == (400, "bad_json")


def test_a_schedule_tells_its_fires_and_their_jobs(web, root, clock):
    web.app.schedules.set("sweep", topic="clean", cron="*/5 * * * *")
    clock.advance(300)
    web.app.upkeep.run()

    told = web.get("/api/schedules/sweep", as_=root).json()
    [listed] = web.get("/api/schedules?details=true", as_=root).json()["items"]
    [plain] = web.get("/api/schedules", as_=root).json()["items"]

    assert told["words"] == "every 5 minutes, UTC"
    assert len(told["nextFires"]) == 5
    assert told["nextFires"][0] == told["nextAt"]
    assert (told["history"][0]["state"], told["declared"]) == ("ready", None)
    assert listed == told
    assert (plain["words"], plain["nextFires"], plain["history"]) == (told["words"], [], [])
    web.post("/api/schedules/sweep/pause", as_=root)
    assert web.get("/api/schedules/sweep", as_=root).json()["nextFires"] == []


def test_a_rule_is_tried_before_it_is_stored(web, root):
    rule = {"cron": "30 2 * * *", "tz": "Europe/Zurich", "from": "2026-03-28T12:00:00Z", "count": 2}

    said = web.post("/api/schedule-preview", rule, as_=root).json()

    assert said["fires"] == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    assert said["words"] == "at 02:30 every day, Europe/Zurich"
    for wrong in ({"cron": "0 0 30 2 *"}, {"cron": "x"}, {}, {"every": 60, "tz": "UTC"}):
        put = web.put("/api/schedules/sweep", {"topic": "clean", **wrong}, as_=root)
        tried = web.post("/api/schedule-preview", wrong, as_=root)
        assert refused(tried) == (400, "invalid")
        assert tried.json()["message"] == put.json()["message"]
