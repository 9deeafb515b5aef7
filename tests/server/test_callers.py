"""Who may do what: every route by every kind of caller, and what rules change."""

import re
import time

import jwt
import pytest

from tests.conftest import eventually
from tests.server.conftest import PASSWORD, Web, refused, token_of
from towpath import App
from towpath.server.api import ROUTES, document

SCOPES = ("enqueue", "manage", "work", "metrics")
SECRET = "a-shared-secret-of-more-than-32-bytes"
JOB = "/api/jobs/enqueue"

# Who may, while no rule lets anybody in: by hand, for every route there is.
NEEDS = {
    "POST /api/jobs/enqueue": "enqueue",
    "POST /api/jobs/enqueue-many": "enqueue",
    "GET /api/jobs": "manage",
    "GET /api/jobs/stats": "manage",
    "GET /api/jobs/throughput": "manage",
    "GET /api/jobs/{id}": "manage",
    "DELETE /api/jobs/{id}": "manage",
    "POST /api/jobs/{id}/requeue": "manage",
    "POST /api/jobs/{id}/cancel": "manage",
    "POST /api/jobs/{id}/kick": "manage",
    "PATCH /api/jobs/{id}": "manage",
    "GET /api/jobs/{id}/failures": "manage",
    "GET /api/jobs/{id}/logs": "manage",
    "GET /api/jobs/{id}/events": "manage",
    "GET /api/jobs/{id}/runs": "manage",
    "POST /api/jobs/reserve": "work",
    "POST /api/jobs/{id}/complete": "work",
    "POST /api/jobs/{id}/fail": "work",
    "POST /api/jobs/{id}/release": "work",
    "POST /api/jobs/{id}/bury": "work",
    "POST /api/jobs/{id}/touch": "work",
    "GET /api/topics": "manage",
    "POST /api/topics/{topic}/pause": "manage",
    "POST /api/topics/{topic}/resume": "manage",
    "POST /api/topics/{topic}/kick": "manage",
    "POST /api/topics/{topic}/purge": "manage",
    "GET /api/schedules": "manage",
    "GET /api/schedules/{name}": "manage",
    "PUT /api/schedules/{name}": "manage",
    "DELETE /api/schedules/{name}": "manage",
    "POST /api/schedules/{name}/pause": "manage",
    "POST /api/schedules/{name}/resume": "manage",
    "POST /api/schedules/{name}/run": "manage",
    "GET /api/workers": "manage",
    "POST /api/collections/{collection}/auth-with-password": "nothing",
    "POST /api/collections/{collection}/auth-refresh": "a login",
    "POST /api/collections/{collection}/auth-logout": "a login",
    "GET /api/collections/{collection}/records": "superuser",
    "POST /api/collections/{collection}/records": "superuser",
    "GET /api/collections/{collection}/records/{id}": "oneself",
    "PATCH /api/collections/{collection}/records/{id}": "superuser",
    "DELETE /api/collections/{collection}/records/{id}": "superuser",
    "GET /api/keys": "superuser",
    "POST /api/keys": "superuser",
    "DELETE /api/keys/{id}": "superuser",
    "GET /api/access": "superuser",
    "PATCH /api/access": "superuser",
    "GET /healthz": "nothing",
    "GET /readyz": "nothing",
    "GET /metrics": "metrics",
    "GET /api/openapi.json": "nothing",
    "GET /api/docs": "nothing",
    "GET /setup": "nothing",
    "POST /api/setup": "nothing",
}
FINE = (200, None)
WHO, NOT_YOU, BAD = (401, "login_required"), (403, "forbidden"), (401, "invalid_token")
EXPECTED = {  # nobody, the user, another user, a key with another scope, a token that does not hold
    "nothing": (FINE, FINE, FINE, FINE, FINE),
    "enqueue": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "manage": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "work": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "metrics": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "superuser": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "oneself": (WHO, FINE, NOT_YOU, NOT_YOU, BAD),
    "a login": (WHO, FINE, FINE, BAD, BAD),
}


def test_us7_6_it_is_known_of_every_route_who_may():
    assert list(NEEDS) == [f"{route.method} {route.path}" for route in ROUTES]


class World:
    """One of each thing that a path can name, and one of each caller."""

    def __init__(self, web, clock):
        self.web = web
        app = web.app
        self.expired = token_of(app, "_superusers", "gone@example.org")
        clock.advance("8d")
        self.root = token_of(app, "_superusers", "root@example.org")
        self.ada = token_of(app, "users", "ada@example.org")
        self.bob = token_of(app, "users", "bob@example.org")
        self.keys = {scope: app.keys.create(scope, scopes=[scope])[1] for scope in SCOPES}
        old, self.revoked = app.keys.create("old", scopes=SCOPES)
        app.keys.revoke(old.id)
        head, claims, signature = self.root.split(".")
        self.tampered = f"{head}.{claims[:-2]}AA.{signature}"
        self.user = app.accounts.get("users", "ada@example.org").id
        self.job = str(app.jobs.enqueue("mail", {}).id)
        app.schedules.set("daily", topic="mail", every=60)
        self.known = document()["paths"]

    def ask(self, route, token):
        id = self.user if "records" in route.path else self.job
        values = {"id": id, "topic": "mail", "name": "daily", "collection": "users"}
        operation = self.known[route.path][route.method.lower()]
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        path = route.path.format(**values)
        said = self.web(route.method, path, body.get("example"), as_=token)
        if said.status_code in {401, 403}:
            return refused(said)
        return FINE  # let in, to whatever end


@pytest.fixture
def world(quick_web, clock):
    return World(quick_web, clock)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_closed_to_whom_it_should_be(world, route):
    needs = NEEDS[f"{route.method} {route.path}"]
    nobody, user, other, key, wrong = EXPECTED[needs]
    asked = {}

    for which in ("revoked", "expired", "tampered"):
        asked[which] = (world.ask(route, getattr(world, which)), wrong)
    asked["nobody"] = (world.ask(route, None), nobody)
    asked["another user"] = (world.ask(route, world.bob), other)
    for scope in SCOPES:
        asked[f"key for {scope}"] = (
            world.ask(route, world.keys[scope]),
            FINE if scope == needs else key,
        )
    asked["user"] = (world.ask(route, world.ada), user)
    asked["superuser"] = (world.ask(route, world.root), BAD if needs == "a login" else FINE)
    if route.path.endswith("setup"):  # which is for nobody any more, for another reason
        asked = {}

    assert {who: said for who, (said, _) in asked.items()} == {
        who: expected for who, (_, expected) in asked.items()
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_http_enabled_false_lets_in_superusers_only(world, route):
    world.web.app.access.set(access_rule="true", work_rule="true", http_enabled=False)
    needs = NEEDS[f"{route.method} {route.path}"]
    if needs == "nothing":
        return
    closed = (403, "http_disabled")

    assert world.ask(route, None) == closed
    assert world.ask(route, world.ada) == closed
    assert {world.ask(route, key) for key in world.keys.values()} == {closed}
    assert world.ask(route, world.root) == (BAD if needs == "a login" else FINE)


# ---------------------------------------------------------------- rules


def may(web, token, topic="mail"):
    """Whether somebody may enqueue and look, by the statuses of both."""
    return (
        web.post(JOB, {"topic": topic}, as_=token).status_code,
        web.get(f"/api/jobs?topic={topic}", as_=token).status_code,
    )


def test_us9_1_an_empty_rule_is_for_superusers_only(web, root, ada):
    web.app.access.set(access_rule="")

    assert may(web, None) == (401, 401)
    assert may(web, ada) == (403, 403)
    assert may(web, root) == (201, 200)


def test_us9_2_true_is_for_everybody(web, root, ada):
    web.app.access.set(access_rule="true")

    assert may(web, None) == may(web, ada) == may(web, root) == (201, 200)


def test_us9_3_a_rule_about_the_login_is_for_users(web, root, ada):
    web.app.access.set(access_rule="@request.auth.id != ''")

    assert may(web, None) == (401, 401)
    assert may(web, ada) == may(web, root) == (201, 200)


def test_us9_4_enqueueing_and_managing_have_rules_of_their_own(web, root, ada):
    assert web.patch("/api/access", {"access_rule": "true"}, as_=root).status_code == 200
    changed = web.patch("/api/access", {"manage_rule": "@request.auth.role = 'editor'"}, as_=root)

    assert changed.json()["enqueue_rule"] == "true"
    assert may(web, None) == (201, 401)
    assert may(web, ada) == (201, 200)
    assert refused(web.post("/api/jobs/reserve", {"topics": ["mail"]}, as_=ada))[0] == 403
    web.app.access.set(work_rule="@request.auth.role = 'editor'")
    assert len(web.post("/api/jobs/reserve", {"topics": ["mail"]}, as_=ada).json()["leases"]) == 1


def test_us7_7_a_bad_rule_is_refused_with_its_position(quick_web, clock):
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
             ("DELETE", ""), ("GET", "/failures"), ("GET", "/logs"), ("GET", "/events"),
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


# ---------------------------------------------------------------- cookies


@pytest.fixture
def cookie(quick_web):
    """A login by cookie, as its header."""
    web = quick_web
    web.app.access.set(access_rule="@request.auth.id != ''")
    web.app.accounts.create("users", "ada@example.org", PASSWORD)
    said = web.post(
        "/api/collections/users/auth-with-password",
        {"identity": "ada@example.org", "password": PASSWORD, "cookie": True},
    )
    set_cookie = said.headers["set-cookie"]
    name, _, attributes = set_cookie.partition("; ")
    assert set(attributes.split("; ")) == {
        "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=604800",
    }  # fmt: skip
    web._client.cookies.clear()
    return name


OURS = {"origin": "http://towpath.test"}


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({}, False),
        (OURS, True),
        ({"origin": "https://towpath.test"}, True),
        ({"origin": "http://evil.test"}, False),
        ({"origin": "http://towpath.test.evil.test"}, False),
        ({"origin": "http://towpath.test:81"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({**OURS, "sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://evil.test", "sec-fetch-site": "same-origin"}, True),
    ],
    ids=str,
)
def test_with_a_cookie_only_our_own_pages_may_change_anything(quick_web, cookie, headers, is_ours):
    headers = {"cookie": cookie, **headers}

    said = quick_web.post(JOB, {"topic": "mail"}, headers=headers)

    assert quick_web.get("/api/jobs", headers=headers).status_code == 200
    if is_ours:
        assert said.status_code == 201
    else:
        assert refused(said) == (403, "csrf_refused")
        assert quick_web.app.jobs.list() == []


def test_a_cookie_is_refreshed_and_taken_away(quick_web, cookie):
    web, headers = quick_web, {"cookie": cookie, **OURS}
    refreshed = web.post("/api/collections/users/auth-refresh", headers=headers)
    assert "HttpOnly" in refreshed.headers["set-cookie"]
    assert refreshed.json()["token"] in refreshed.headers["set-cookie"]

    ended = web.post("/api/collections/users/auth-logout", headers=headers)

    assert ended.status_code == 204
    assert re.match(r"towpath_auth=;.*Max-Age=0", ended.headers["set-cookie"])
    web._client.cookies.clear()
    assert refused(web.get("/api/jobs", headers=headers)) == WHO


def test_a_cookie_over_https_is_for_https_only(quick_web):
    web = quick_web
    web.app.accounts.create("users", "ada@example.org", PASSWORD)
    body = {"identity": "ada@example.org", "password": PASSWORD, "cookie": True}

    said = web.post("https://towpath.test/api/collections/users/auth-with-password", body)

    assert said.headers["set-cookie"].endswith("; Secure")


def test_a_login_without_the_wish_sets_no_cookie(quick_web):
    web = quick_web
    web.app.accounts.create("users", "ada@example.org", PASSWORD)
    body = {"identity": "ada@example.org", "password": PASSWORD}

    said = web.post("/api/collections/users/auth-with-password", body)

    assert "set-cookie" not in said.headers
    assert set(said.json()) == {"token", "record"}
    assert "password" not in said.json()["record"]
    bare = web.get("/api/jobs", headers={"authorization": said.json()["token"]})
    assert refused(bare) == NOT_YOU  # PocketBase's clients send it without Bearer


# ---------------------------------------------------------------- logins


def log_in(web, email, password, collection="users"):
    body = {"identity": email, "password": password}
    return web.post(f"/api/collections/{collection}/auth-with-password", body)


def test_a_wrong_address_and_a_wrong_password_look_the_same(web, ada, root):
    wrong = [
        log_in(web, "ada@example.org", "wrong"),
        log_in(web, "nobody@example.org", PASSWORD),
        log_in(web, "root@example.org", PASSWORD),  # who is no user
        log_in(web, "not an address", PASSWORD),
        log_in(web, "", ""),
    ]

    assert {refused(said) for said in wrong} == {(400, "login_refused")}
    assert len({said.text for said in wrong}) == 1
    assert log_in(web, "ADA@example.org", PASSWORD).status_code == 200


def test_too_many_logins_are_told_to_wait(web, ada, clock):
    statuses = [log_in(web, "ada@example.org", f"wrong {n}").status_code for n in range(50)]
    last = log_in(web, "ada@example.org", PASSWORD)

    assert refused(last) == (429, "too_many_logins")
    assert statuses[0] == 400
    seconds = int(last.headers["retry-after"])
    clock.advance(seconds)
    assert log_in(web, "ada@example.org", PASSWORD).status_code == 200


def external_token(secret=SECRET, **claims):
    said = {"sub": "u1", "exp": int(time.time()) + 600, "role": "editor", **claims}
    return jwt.encode(said, secret, "HS256")


def test_external_tokens_are_taken_where_a_secret_is_set(make_app, loop, quick_passwords):
    web = Web(make_app(jwt_secret=SECRET), loop)
    web.app.access.set(access_rule="@request.auth.role = 'editor' && @request.auth.id = 'u1'")

    assert may(web, external_token()) == (201, 200)
    assert may(web, external_token(sub="u2")) == (403, 403)
    assert may(web, external_token(role="reader")) == (403, 403)
    for bad in (
        external_token(exp=int(time.time()) - 60),
        external_token("another-secret-of-more-than-32-bytes"),
        jwt.encode({"sub": "u1", "exp": 2**32, "role": "editor"}, None, "none"),
    ):
        assert refused(web.post(JOB, {"topic": "mail"}, as_=bad)) == BAD
    assert (
        refused(web.get("/api/keys", as_=external_token(collectionName="_superusers"))) == NOT_YOU
    )
    refresh = web.post("/api/collections/users/auth-refresh", as_=external_token())
    assert refused(refresh) == BAD
    assert may(web, token_of(web.app, "_superusers", "root@example.org")) == (201, 200)
    web.close()


def test_external_tokens_are_refused_where_none_is_set(quick_web):
    quick_web.app.access.set(access_rule="@request.auth.id != ''")

    assert refused(quick_web.post(JOB, {"topic": "mail"}, as_=external_token())) == BAD


# ---------------------------------------------------------------- the set-up link


FIRST = {"token": "from-the-link", "email": "root@example.org", "password": PASSWORD}


def test_the_first_superuser_is_made_once_by_the_link(web):
    web.api.gate.set_up_token = "from-the-link"

    for token in ("", "wrong", "from-the-lin", "from-the-link ", "é"):
        assert refused(web.post("/api/setup", {**FIRST, "token": token})) == WHO
        assert refused(web.get("/setup", params={"token": token})) == WHO
    page = web.get("/setup?token=from-the-link")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["referrer-policy"] == "no-referrer"
    made = web.post("/api/setup", FIRST)

    assert made.status_code == 201
    assert web.get("/api/keys", as_=made.json()["token"]).status_code == 200
    assert refused(web.post("/api/setup", FIRST)) == (409, "invalid_state")
    assert refused(web.get("/setup?token=from-the-link")) == (409, "invalid_state")
    assert web.app.accounts.count("_superusers") == 1


def test_the_link_ends_when_a_superuser_is_made_elsewhere(quick_web):
    quick_web.api.gate.set_up_token = "from-the-link"
    token_of(quick_web.app, "_superusers", "other@example.org")

    assert refused(quick_web.post("/api/setup", FIRST)) == (409, "invalid_state")
    assert quick_web.app.accounts.count("_superusers") == 1


@pytest.mark.parametrize("client", ["192.168.1.5", "10.0.0.1", "::2", "203.0.113.9", "unknown"])
def test_the_link_is_for_this_machine_only(quick_web, loop, client):
    web = Web(quick_web.app, loop, client=client)
    web.api.gate.set_up_token = "from-the-link"

    assert refused(web.post("/api/setup", FIRST)) == NOT_YOU
    assert refused(web.get("/setup?token=from-the-link")) == NOT_YOU
    assert web.app.accounts.count("_superusers") == 0
    web.close()


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.8.8", "::1"])
def test_every_address_of_this_machine_will_do(quick_web, loop, client):
    web = Web(quick_web.app, loop, client=client)
    web.api.gate.set_up_token = "from-the-link"

    assert web.post("/api/setup", FIRST).status_code == 201
    web.close()


def test_without_a_link_there_is_no_set_up(quick_web):
    assert refused(quick_web.post("/api/setup", FIRST)) == (409, "invalid_state")
