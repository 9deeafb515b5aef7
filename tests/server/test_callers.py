"""Who may do what: every route by every kind of caller, and what rules change."""

import pytest

from tests.server.conftest import refused, token_of
from towpath.server.accounts import network_of
from towpath.server.api import ROUTES, document

SCOPES = ("enqueue", "manage", "work", "metrics", "publish", "subscribe", "webhooks")
SECRET = "a-shared-secret-of-more-than-32-bytes"
JOB = "/api/jobs/enqueue"

# What each route asks for while no rule lets callers in: by hand, for every route there is.
NEEDS = {
    "POST /api/jobs/enqueue": "enqueue",
    "POST /api/jobs/enqueue-many": "enqueue",
    "GET /api/jobs": "manage",
    "GET /api/jobs/numbered/{number}": "manage",
    "DELETE /api/jobs/{id}": "manage",
    "POST /api/jobs/{id}/requeue": "manage",
    "POST /api/jobs/{id}/cancel": "manage",
    "POST /api/jobs/{id}/kick": "manage",
    "PATCH /api/jobs/{id}": "manage",
    "GET /api/jobs/{id}/failures": "manage",
    "GET /api/jobs/{id}/logs": "manage",
    "GET /api/jobs/{id}/stream": "manage",
    "GET /api/jobs/{id}/runs": "manage",
    "GET /api/jobs/{id}": "manage",
    "GET /api/jobs/{id}/payload": "manage",
    "GET /api/jobs/{id}/tries": "manage",
    "GET /api/jobs/{id}/why": "manage",
    "GET /api/jobs/{id}/flow": "manage",
    "GET /api/flows": "superuser",
    "POST /api/bulk/preview": "superuser",
    "POST /api/bulk": "superuser",
    "GET /api/bulk": "superuser",
    "GET /api/bulk/{id}": "superuser",
    "POST /api/bulk/{id}/stop": "superuser",
    "GET /api/jobs/stats": "manage",
    "GET /api/jobs/throughput": "manage",
    "GET /api/failures": "manage",
    "GET /api/jobs/durations": "manage",
    "POST /api/jobs/reserve": "work",
    "POST /api/jobs/{id}/complete": "work",
    "POST /api/jobs/{id}/fail": "work",
    "POST /api/jobs/{id}/release": "work",
    "POST /api/jobs/{id}/bury": "work",
    "POST /api/jobs/{id}/touch": "work",
    "POST /api/jobs/{id}/notes": "work",
    "POST /api/topics/{topic}/pause": "manage",
    "POST /api/topics/{topic}/resume": "manage",
    "POST /api/topics/{topic}/kick": "manage",
    "POST /api/topics/{topic}/purge": "manage",
    "GET /api/topics": "manage",
    "GET /api/topics/{topic}": "manage",
    "GET /api/schedules": "manage",
    "POST /api/schedule-preview": "superuser",
    "GET /api/schedules/{name}": "manage",
    "GET /api/schedules/{name}/payload": "manage",
    "PUT /api/schedules/{name}": "manage and enqueue",
    "DELETE /api/schedules/{name}": "manage",
    "POST /api/schedules/{name}/pause": "manage",
    "POST /api/schedules/{name}/resume": "manage",
    "POST /api/schedules/{name}/run": "manage and enqueue",
    "GET /api/workers": "manage",
    "POST /api/workers/{session}/stop": "superuser",
    "POST /api/passes": "subscribe",
    "GET /api/channels": "manage",
    "GET /api/channels/{name}": "subscribe",
    "DELETE /api/channels/{name}": "manage",
    "POST /api/channels/{name}/close": "publish",
    "POST /api/channels/{name}/events": "publish",
    "GET /api/channels/{name}/events": "subscribe",
    "GET /api/channels/{name}/consumers": "manage",
    "PUT /api/channels/{name}/consumers/{consumer}": "subscribe",
    "POST /api/channels/{name}/consumers/{consumer}/ack": "subscribe",
    "POST /api/channels/{name}/consumers/{consumer}/move": "subscribe or manage",
    "DELETE /api/channels/{name}/consumers/{consumer}": "subscribe or manage",
    "PUT /api/channels/{name}/limits": "manage",
    "POST /api/webhooks": "webhooks and subscribe",
    "GET /api/webhooks": "webhooks",
    "GET /api/webhooks/{subscription}": "webhooks",
    "PATCH /api/webhooks/{subscription}": "webhooks",
    "DELETE /api/webhooks/{subscription}": "webhooks",
    "POST /api/webhooks/{subscription}/pause": "webhooks",
    "POST /api/webhooks/{subscription}/resume": "webhooks",
    "POST /api/webhooks/{subscription}/enable": "webhooks",
    "POST /api/webhooks/{subscription}/rotate": "webhooks",
    "POST /api/webhooks/{subscription}/ping": "webhooks",
    "GET /api/webhooks/{subscription}/health": "webhooks",
    "POST /api/webhooks/{subscription}/replay": "webhooks",
    "GET /api/webhooks/sagas": "webhooks",
    "GET /api/webhooks/sagas/{saga}": "webhooks",
    "GET /api/webhooks/sagas/{saga}/attempts": "webhooks",
    "POST /api/webhooks/sagas/{saga}/resend": "webhooks",
    "POST /api/webhooks/sagas/{saga}/cancel": "webhooks",
    "GET /api/webhooks/dead-letters": "webhooks",
    "GET /api/webhooks/dead-letters/{letter}": "webhooks",
    "POST /api/webhooks/dead-letters/{letter}/requeue": "webhooks",
    "DELETE /api/webhooks/dead-letters/{letter}": "webhooks",
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
    "POST /api/access/try": "superuser",
    "GET /api/limits": "superuser",
    "GET /api/doctor": "superuser",
    "GET /api/settings": "superuser",
    "GET /api/me": "superuser",
    "GET /api/live": "superuser",
    "GET /healthz": "nothing",
    "GET /api/health": "nothing",
    "GET /readyz": "nothing",
    "GET /metrics": "metrics",
    "GET /api/openapi.json": "nothing",
    "GET /api/docs": "nothing",
    "POST /api/setup": "nothing",
}
FINE = (200, None)
WHO, NOT_YOU, BAD = (401, "login_required"), (403, "forbidden"), (401, "invalid_token")
EXPECTED = {  # no login, the user, another user, a key with another scope, an invalid token
    "nothing": (FINE, FINE, FINE, FINE, FINE),
    "enqueue": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "manage": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "manage and enqueue": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),  # no key here has both
    "work": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "metrics": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "publish": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "subscribe": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "subscribe or manage": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "webhooks": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "webhooks and subscribe": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "superuser": (WHO, NOT_YOU, NOT_YOU, NOT_YOU, BAD),
    "oneself": (WHO, FINE, NOT_YOU, NOT_YOU, BAD),
    "a login": (WHO, FINE, FINE, BAD, BAD),
}


def test_it_is_known_of_every_route_who_may():
    """US7-6"""
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
        app.events.publish("daily", 1)
        self.known = document()["paths"]

    def ask(self, route, token):
        if route.media == "text/event-stream" and token == self.root:
            return FINE  # an answer without an end; test_watching reads it
        id = self.user if "records" in route.path else self.job
        values = {
            "id": id, "number": 1, "topic": "mail", "name": "daily", "collection": "users",
            "consumer": "mailer", "session": 1, "subscription": 1, "saga": 1, "letter": 1,
        }  # fmt: skip
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
            FINE if scope in needs.split(" or ") else key,
        )
    asked["user"] = (world.ask(route, world.ada), user)
    asked["superuser"] = (world.ask(route, world.root), BAD if needs == "a login" else FINE)
    if route.path.endswith("setup"):  # which no caller may use any more
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


def test_a_header_with_an_underscore_does_not_pass_for_one_with_a_hyphen(web, ada):
    web.app.access.set(manage_rule="@request.headers.x_role = 'admin'")

    honest = web.get("/api/jobs", as_=ada, headers={"x-role": "admin"})
    smuggled = web.get("/api/jobs", as_=ada, headers={"x-role": "user", "x_role": "admin"})

    assert honest.status_code == 200
    assert refused(smuggled) == (403, "forbidden")


def test_clients_of_the_old_protocol_are_told_apart_on_the_new_one():
    assert network_of("::ffff:203.0.113.9") == "203.0.113.9"
