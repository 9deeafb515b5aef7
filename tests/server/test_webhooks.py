"""Webhooks over HTTP: what callers may do, and what they are told."""

import pytest

from tests.behaviour.test_webhooks import BAD_HEADERS, BAD_URLS, BLOCKED_URLS
from tests.server.conftest import Web, refused
from tests.webhooks.delivering import deliver
from towpath.errors import Invalid, InvalidRule
from towpath.model.signatures import new_secret
from towpath.server.api import ROUTES
from towpath.webhooks.memory import MemoryReceiver

URL = "https://receiver.example/hook"
OWN = "@request.auth.id != '' && @subscription.owner = @request.auth.id"
NEW = {"channel": "orders", "url": URL}


class Hooks:
    """A subscription of a user, with what can be read of its deliveries."""

    def __init__(self, web, loop, owner):
        self.web, self.loop = web, loop
        self.receiver = MemoryReceiver(URL)
        self.id = web.app.webhooks.create("orders", URL, waits=[], owner=owner)[0].id

    def publish(self, *answers):
        """Deliver an event; return its saga."""
        self.receiver.answers(*answers)
        self.web.app.events.publish("orders", {"n": 1}, type="paid")
        deliver(self.web.app, self.loop, self.receiver)
        return self.web.app.webhooks.sagas.list(subscription=self.id, limit=1)[0]

    def letter(self):
        """Return a new dead letter."""
        self.publish(500)
        return self.web.app.webhooks.dead_letters.list(limit=1)[0]


@pytest.fixture
def ada_id(web, ada):
    return web.app.accounts.list("users")[0].id


@pytest.fixture
def hooks(web, loop, ada_id):
    return Hooks(web, loop, ada_id)


@pytest.fixture
def callers(web, root, ada, bob):
    """The callers, by name."""
    web.app.access.set(webhook_rule=OWN, channels={"orders": {"subscribe_rule": "true"}})

    def key(*scopes, **bound):
        return web.app.keys.create("k", scopes=scopes, **bound)[1]

    return {
        "superuser": root,
        "owner": ada,
        "other": bob,
        "key": key("webhooks", "subscribe"),
        "key without": key("manage", "subscribe", "publish", "enqueue", "work", "metrics"),
        "key elsewhere": key("webhooks", "subscribe", channels=["chat"]),
        "anonymous": None,
    }


REFUSED = {
    "other": (404, "not_found"),
    "key without": (403, "forbidden"),
    "key elsewhere": (404, "not_found"),
    "anonymous": (401, "login_required"),
}
LISTS = {"other": 200, "key without": (403, "forbidden"), "key elsewhere": 200}
TABLE = {  # route: status, and how it is asked for, with what it needs; who is answered otherwise
    ("POST", "/api/webhooks"): (201, NEW, {"other": 201, "key elsewhere": (403, "forbidden")}),
    ("GET", "/api/webhooks"): (200, None, {**LISTS, "anonymous": 200}),
    ("GET", "/api/webhooks/{subscription}"): (200, None, {}),
    ("PATCH", "/api/webhooks/{subscription}"): (200, {"timeout": 5}, {}),
    ("DELETE", "/api/webhooks/{subscription}"): (204, None, {}),
    ("POST", "/api/webhooks/{subscription}/pause"): (200, None, {}),
    ("POST", "/api/webhooks/{subscription}/resume"): (200, None, {}),
    ("POST", "/api/webhooks/{subscription}/enable"): (200, None, {}),
    ("POST", "/api/webhooks/{subscription}/rotate"): (200, {}, {}),
    ("POST", "/api/webhooks/{subscription}/ping"): (201, None, {}),
    ("GET", "/api/webhooks/{subscription}/health"): (200, None, {}),
    ("POST", "/api/webhooks/{subscription}/replay"): (200, {"status": "Completed"}, {}),
    ("GET", "/api/webhooks/sagas"): (200, "?subscription={subscription}", {}),
    ("GET", "/api/webhooks/sagas/{saga}"): (200, None, {}),
    ("GET", "/api/webhooks/sagas/{saga}/attempts"): (200, None, {}),
    ("POST", "/api/webhooks/sagas/{saga}/resend"): (201, {"confirm": True}, {}),
    ("POST", "/api/webhooks/sagas/{saga}/cancel"): ((409, "conflict"), None, {}),
    ("GET", "/api/webhooks/dead-letters"): (200, "?subscription={subscription}", {}),
    ("GET", "/api/webhooks/dead-letters/{letter}"): (200, None, {}),
    ("POST", "/api/webhooks/dead-letters/{letter}/requeue"): (201, None, {}),
    ("DELETE", "/api/webhooks/dead-letters/{letter}"): (204, None, {}),
}


def test_the_table_names_every_route():
    named = {(route.method, route.path) for route in ROUTES if route.group == "webhooks"}

    assert named == TABLE.keys()


@pytest.mark.parametrize("route", TABLE, ids=" ".join)
def test_each_route_is_for_the_owner_the_key_and_superusers(web, hooks, callers, ada_id, route):
    """Check 27, WH-9 at the door: a subscription of others is as one that does not exist."""
    method, path = route
    good, given, otherwise = TABLE[route]
    for name, token in callers.items():
        if path == "/api/webhooks/{subscription}" and method == "DELETE":
            hooks = Hooks(web, hooks.loop, ada_id)
        values = {"subscription": hooks.id}
        if "{letter}" in path:
            values["letter"] = hooks.letter().id
        elif "{saga}" in path:
            values["saga"] = hooks.publish(200).id
        query = given if isinstance(given, str) else ""
        body = None if isinstance(given, str) else given
        said = web(method, (path + query).format(**values), body, as_=token)
        expected = otherwise.get(name, REFUSED.get(name, good))
        answer = said.status_code if isinstance(expected, int) else refused(said)
        assert answer == expected, (name, said.text)


def test_lists_of_all_are_for_callers_that_may_see_all(web, hooks, callers):
    """Check 27."""
    hooks.letter()
    for path in ("/api/webhooks/sagas", "/api/webhooks/dead-letters"):
        for name, token in callers.items():
            said = web.get(path, as_=token)
            if name in {"superuser", "key"}:
                assert len(said.json()["items"]) == 1
            else:
                assert said.status_code == (401 if name == "anonymous" else 403), name


def test_a_list_has_only_what_the_caller_may_manage(web, callers, monkeypatch):
    """Check 27."""
    monkeypatch.setattr("towpath.server.webhooks.AT_ONCE", 3)
    root, ada, bob = (callers[name] for name in ("superuser", "owner", "other"))
    made = [web.post("/api/webhooks", NEW, as_=[ada, bob][n % 2]).json()["id"] for n in range(8)]

    first = web.get("/api/webhooks?limit=3", as_=ada).json()
    assert [each["id"] for each in first["items"]] == made[0:6:2]
    rest = web.get(f"/api/webhooks?after={first['next']}", as_=ada).json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == (made[6:7], None)
    assert len(web.get("/api/webhooks", as_=root).json()["items"]) == 8
    assert web.get("/api/webhooks", as_=callers["key elsewhere"]).json()["items"] == []
    owner = first["items"][0]["owner"]
    assert len(web.get(f"/api/webhooks?owner={owner}", as_=root).json()["items"]) == 4


def test_a_creator_needs_the_right_to_read_the_channel(web, root, ada, callers):
    """A subscription is a way to read a channel."""
    web.app.access.set(channels={"secret": {"subscribe_rule": ""}, "": {"subscribe_rule": "true"}})
    alone = web.app.keys.create("alone", scopes=["webhooks"])[1]

    def create(channel, token):
        return web.post("/api/webhooks", {"channel": channel, "url": URL}, as_=token).status_code

    assert (create("open", ada), create("secret", ada), create("secret", root)) == (201, 403, 201)
    assert (create("open", callers["key"]), create("open", alone)) == (201, 403)
    job = web.app.jobs.enqueue("mail")
    for channel in ("system", f"job:{job.id}"):
        for name in ("owner", "key", "anonymous"):
            assert create(channel, callers[name]) in {401, 403}, (channel, name)
    assert create("system", root) == 201


def test_a_user_owns_what_it_makes(web, root, ada, ada_id, callers):
    made = web.post("/api/webhooks", NEW, as_=ada).json()
    path = f"/api/webhooks/{made['id']}"

    assert made["owner"] == ada_id
    assert refused(web.post("/api/webhooks", {**NEW, "owner": "bob"}, as_=ada))[0] == 403
    assert refused(web.patch(path, {"owner": "bob"}, as_=ada)) == (403, "forbidden")
    assert refused(web.patch(path, {"owner": None}, as_=ada)) == (403, "forbidden")
    assert web.patch(path, {"owner": ada_id}, as_=ada).status_code == 200
    web.app.access.set(webhook_rule="@request.auth.id != ''")  # which says nothing of owners
    assert refused(web.patch(path, {"owner": "bob"}, as_=ada)) == (403, "forbidden")
    web.app.access.set(webhook_rule=OWN)
    assert web.post("/api/webhooks", {**NEW, "owner": "x"}, as_=callers["key"]).status_code == 201
    assert web.patch(path, {"owner": "bob"}, as_=root).json()["owner"] == "bob"
    assert web.get(path, as_=ada).status_code == 404


def test_the_subscriptions_of_a_deleted_account_are_paused(web, loop, hooks, root, ada_id):
    other = web.app.webhooks.create("orders", URL, owner="another")[0].id
    done = hooks.publish()
    assert web.delete(f"/api/collections/users/records/{ada_id}", as_=root).status_code == 204

    assert [web.app.webhooks.get(id).paused for id in (hooks.id, other)] == [True, False]
    assert hooks.publish().status == "Held"
    assert web.app.webhooks.sagas.get(done.id).status == "Completed"
    web.app.webhooks.resume(hooks.id)
    deliver(web.app, loop, hooks.receiver)
    assert web.app.webhooks.health(hooks.id).held == 0


def test_rules_see_the_subscription(web, ada):
    rule = "@subscription.channel ~ 'orders%' && @subscription.url ~ 'https://receiver.example/%'"
    web.app.access.set(webhook_rule=rule, channels={"": {"subscribe_rule": "true"}})

    def create(channel, url):
        return web.post("/api/webhooks", {"channel": channel, "url": url}, as_=ada).status_code

    assert (create("orders:1", URL), create("chat", URL)) == (201, 403)
    assert create("orders:1", "https://other.example/") == 403
    assert len(web.app.webhooks.list()) == 1
    assert [channel.name for channel in web.app.events.list()] == ["orders:1"]


def test_a_rule_judges_a_subscription_as_it_will_be_stored(web, ada):
    """By the defaults of what is omitted, and by what a change makes of it."""
    rule = "@subscription.concurrency <= 10 && @subscription.url ~ 'https://receiver.example/%'"
    web.app.access.set(webhook_rule=rule, channels={"": {"subscribe_rule": "true"}})

    made = web.post("/api/webhooks", NEW, as_=ada)
    assert (made.status_code, made.json()["concurrency"]) == (201, 10)
    path = f"/api/webhooks/{made.json()['id']}"
    for change in ({"concurrency": 11}, {"url": "https://other.example/"}):
        assert refused(web.patch(path, change, as_=ada)) == (403, "forbidden")
        assert refused(web.post("/api/webhooks", {**NEW, **change}, as_=ada))[0] == 403
    assert web.patch(path, {"concurrency": 9}, as_=ada).json()["concurrency"] == 9
    after = web.get(path, as_=ada).json()
    assert (after["concurrency"], after["url"]) == (9, URL)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("@subscription.secret = 'x'", "unknown field @subscription.secret"),
        ("@job.topic = 'x'", "unknown name @job.topic"),
        ("owner = 'x'", "write @subscription.owner"),
        ("@subscription = 'x'", "lacks the name of a field"),
    ],
)
def test_a_rule_of_webhooks_that_cannot_be_read_is_refused(quick_web, rule, why):
    with pytest.raises(InvalidRule, match=why):
        quick_web.app.access.set(webhook_rule=rule)
    with pytest.raises(InvalidRule, match="unknown name @subscription"):
        quick_web.app.access.set(manage_rule="@subscription.owner = 'x'")
    with pytest.raises(Invalid):
        quick_web.app.access.set(webhook_rule=7)


def test_a_subscription_is_made_changed_and_delivered_to(web, loop, root):
    """WH-2"""
    new = {
        **NEW, "types": ["order.*"], "filterRule": "@event.payload.n > 1", "timeout": 5,
        "concurrency": 2, "rate": "10/s", "burst": 2, "ordered": True, "waits": [60],
        "finalStatuses": [422], "body": "payload", "headers": {"x-key": "hush"}, "owner": "me",
        "description": "a shop",
    }  # fmt: skip
    made = web.post("/api/webhooks", new, as_=root).json()
    shown = {name: made[name] for name in new if name not in {"rate", "headers"}}
    assert shown == {name: new[name] for name in shown}
    assert made["pace"] == 0.1
    path = f"/api/webhooks/{made['id']}"
    assert web.get(path, as_=root).json() == {
        name: value for name, value in made.items() if name != "secret"
    }
    changed = web.patch(path, {"rate": None, "filterRule": None, "waits": []}, as_=root).json()
    assert (changed["pace"], changed["filterRule"], changed["waits"]) == (None, None, [])
    receiver = MemoryReceiver(URL)
    receiver.answers(204, 500)
    for _ in range(2):
        web.app.events.publish("orders", {"n": 1, "apiToken": "hunter2"}, type="order.paid")
    deliver(web.app, loop, receiver)

    assert receiver.requests[0].body == b'{"n":1,"apiToken":"hunter2"}'
    assert receiver.requests[0].headers["x-key"] == "hush"
    receiver.requests[0].verified(made["secret"])
    failed, done = web.get("/api/webhooks/sagas", as_=root).json()["items"]
    assert (failed["status"], done["status"]) == ("DeadLettered", "Completed")
    [attempt] = web.get(f"/api/webhooks/sagas/{done['id']}/attempts", as_=root).json()["items"]
    assert (attempt["number"], attempt["responseStatus"]) == (1, 204)
    [letter] = web.get("/api/webhooks/dead-letters", as_=root).json()["items"]
    assert "payload" not in letter
    at = f"/api/webhooks/dead-letters/{letter['id']}"
    whole = web.get(at, as_=root).json()
    assert (whole["payload"]["apiToken"], whole["errorCode"]) == ("hunter2", "http_500")
    shown = web.get(at, headers={"cookie": f"towpath_auth={root}"}).json()
    assert shown["payload"] == {"n": 1, "apiToken": "•••"}
    health = web.get(f"{path}/health", as_=root).json()
    assert (health["failures"], health["waiting"]) == (1, 0)
    assert (health["recent"], health["lastError"]) == (2, "http_500")
    assert 0 <= health["p50Ms"] <= health["p95Ms"]
    again = web.post(f"/api/webhooks/dead-letters/{letter['id']}/requeue", as_=root).json()
    assert (again["event"], again["status"]) == (failed["event"], "Pending")
    assert web.post(f"{path}/pause", as_=root).json() == {"underWay": 0}
    assert refused(web.post(f"{path}/ping", as_=root)) == (409, "conflict")


def test_a_replay_is_counted_and_then_a_job(web, hooks, root):
    hooks.letter()
    path = f"/api/webhooks/{hooks.id}/replay"

    assert web.post(path, {"preview": True}, as_=root).json() == {"count": 1, "job": None}
    assert web.app.jobs.list() == []
    asked = web.post(path, {"types": ["paid"], "rate": "100/s"}, as_=root).json()
    [job] = web.app.jobs.list(topic="webhooks-replay")
    assert asked == {"count": 1, "job": str(job.id)}
    since = {"since": "2200-01-01T00:00:00Z", "preview": True}
    assert web.post(path, since, as_=root).json()["count"] == 0
    for wrong in ({"status": "Pending"}, {"types": []}, {"since": "x"}, {"rate": "9999/s"}):
        assert refused(web.post(path, wrong, as_=root)) == (400, "invalid")


def test_nothing_but_the_app_itself_enqueues_and_runs_replays(web, hooks, root, ada):
    """A job of that topic acts on any subscription, whichever user owns it."""
    hooks.letter()
    job = web.app.webhooks.replay(hooks.id)
    [lease] = web.app.jobs.reserve("webhooks-replay")
    web.app.access.set(enqueue_rule="true", manage_rule="true", work_rule="true")
    key = web.app.keys.create("k", scopes=["enqueue", "work", "manage"])[1]
    new = {"topic": "webhooks-replay", "payload": job.payload}
    calls = [
        ("/api/jobs/enqueue", new),
        ("/api/jobs/enqueue-many", {"jobs": [new]}),
        ("/api/jobs/reserve", {"topics": ["webhooks-replay"]}),
        (f"/api/jobs/{job.id}/complete", {"epoch": lease.epoch}),
    ]
    for caller in (ada, key, root):
        for path, body in calls:
            answer = web.post(path, body, as_=caller)
            assert refused(answer) == (403, "forbidden")
            assert "belongs to Towpath" in answer.text
        schedule = {**new, "every": 60}
        assert refused(web.put("/api/schedules/s", schedule, as_=caller)) == (403, "forbidden")
        assert web.get(f"/api/jobs/{job.id}", as_=caller).json()["status"] == "processing"
    assert len(web.app.jobs.list()) == 1


def test_a_secret_is_answered_once(web, root):
    given = new_secret()
    made = web.post(
        "/api/webhooks", {**NEW, "secret": given, "headers": {"x-key": "hush-1"}}, as_=root
    )
    path = f"/api/webhooks/{made.json()['id']}"
    assert made.json()["secret"] == given
    rotated = web.post(f"{path}/rotate", {"overlap": 60}, as_=root).json()["secret"]

    later = [
        web.get(path, as_=root),
        web.get("/api/webhooks", as_=root),
        web.patch(path, {"headers": {"x-key": "hush-2"}}, as_=root),
        web.post(f"{path}/resume", as_=root),
        web.post(f"{path}/ping", as_=root),
        web.get("/api/webhooks/sagas", as_=root),
        web.get(f"{path}/health", as_=root),
        web.post(f"{path}/rotate", {"secret": f"{rotated}?"}, as_=root),
        web.patch(path, {"headers": {"host": "hush-3"}}, as_=root),
    ]
    for said in later:
        for secret in (given, rotated, "hush-1", "hush-2", "hush-3"):
            assert secret.removeprefix("whsec_") not in said.text


def test_what_is_wrong_is_refused_and_nothing_is_stored(quick_web):
    web = quick_web
    root = web.app.keys.create("all", scopes=["webhooks", "subscribe"])[1]

    def create(**given):
        return refused(web.post("/api/webhooks", {**NEW, **given}, as_=root))

    for url in (each for each in BAD_URLS if isinstance(each, str)):
        assert create(url=url) == (400, "invalid_target"), url
    for url in BLOCKED_URLS:
        assert create(url=url) == (400, "blocked_target"), url
    texts = (
        each for each in BAD_HEADERS if all(isinstance(v, str) for v in (*each, *each.values()))
    )
    for headers in texts:
        assert create(headers=headers) == (400, "invalid_header"), headers
    for given in (
        {"types": []}, {"types": "x"}, {"timeout": 0.1}, {"timeout": 61}, {"concurrency": 0},
        {"concurrency": 1e9}, {"rate": "0/s"}, {"rate": "9999/s"}, {"waits": [0]}, {"waits": [1e9]},
        {"burst": -1}, {"body": "thin"}, {"finalStatuses": [200]}, {"owner": ""}, {"url": None},
        {"url": 7}, {"headers": {"x": 7}}, {"unknown": 1}, {"description": "x" * 1_001},
    ):  # fmt: skip
        assert create(**given) == (400, "invalid"), given
    for rule in ("@event.x =", "@request.auth.id = ''", "(" * 60):
        assert create(filterRule=rule) == (400, "invalid_rule"), rule
    for secret in ("whsec_", "whsec_!", "plain"):
        assert create(secret=secret) == (400, "invalid_secret"), secret
    assert create(channel="a b") == (400, "invalid_channel")
    assert web.app.webhooks.list() == []
    assert web.app.events.list() == []


def test_what_is_not_there_is_answered_by_name(quick_web):
    web = quick_web
    root = web.app.keys.create("all", scopes=["webhooks", "subscribe"])[1]
    for path in ("/api/webhooks/7", "/api/webhooks/sagas/7", "/api/webhooks/dead-letters/7"):
        assert refused(web.get(path, as_=root)) == (404, "not_found")
    for path in ("/api/webhooks/x", "/api/webhooks/-1", "/api/webhooks/sagas/1.5"):
        assert refused(web.get(path, as_=root)) == (400, "invalid")
    assert refused(web.get(f"/api/webhooks/{2**63}", as_=root))[0] == 400
    assert refused(web.post("/api/webhooks/dead-letters/7/requeue", as_=root))[0] == 404
    assert refused(web.delete("/api/webhooks/dead-letters/7", as_=root))[0] == 404
    assert refused(web.get("/api/webhooks/sagas?status=done", as_=root)) == (400, "invalid")


def test_a_missing_key_is_said(make_app, loop):
    web = Web(make_app(), loop)
    root = web.app.keys.create("all", scopes=["webhooks", "subscribe"])[1]
    said = web.post("/api/webhooks", NEW, as_=root)
    web.close()

    assert refused(said) == (500, "key_missing")
    assert "TOWPATH_WEBHOOK_KEY" in said.json()["message"]
    assert web.app.webhooks.list() == []


def test_what_a_deleted_subscription_has_left_can_be_read(web, hooks, root, ada, callers):
    letter = hooks.letter()
    assert web.delete(f"/api/webhooks/{hooks.id}", as_=ada).status_code == 204

    assert refused(web.get(f"/api/webhooks/{hooks.id}", as_=ada)) == (404, "not_found")
    for token in (ada, root, callers["key"]):
        path = f"/api/webhooks/dead-letters/{letter.id}"
        assert web.get(path, as_=token).json()["payload"] == {"n": 1}
        assert refused(web.post(f"{path}/requeue", as_=token)) == (409, "conflict")
        found = web.get(f"/api/webhooks/sagas?subscription={hooks.id}", as_=token).json()
        assert [each["status"] for each in found["items"]] == ["DeadLettered"]
