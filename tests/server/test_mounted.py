"""The API inside an application of others, and asked by pages of other sites."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from tests.server.conftest import PASSWORD
from towpath import App
from towpath.server import Api
from towpath.server.prefix import Prefixed
from towpath.server.serving import with_origins


@pytest.fixture
def app():
    with App("memory://") as app:
        yield app


@pytest.fixture
def key(app):
    return {"authorization": f"Bearer {app.keys.create('k', scopes=['enqueue', 'manage'])[1]}"}


def asked(web, *requests):
    """Send requests, each a method, a path and more; return the answers."""

    async def ask():
        transport = httpx.ASGITransport(web)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return [await client.request(method, path, **how) for method, path, how in requests]

    return asyncio.run(ask())


def test_it_is_mounted_under_a_path(app, key):
    async def home(request):
        raise AssertionError("it was not asked for")

    web = Starlette(routes=[Mount("/queue", Api(app)), Route("/api/jobs", home)])
    made, listed, nothing = asked(
        web,
        ("POST", "/queue/api/jobs/enqueue", {"json": {"topic": "mail"}, "headers": key}),
        ("GET", "/queue/api/jobs", {"headers": key}),
        ("GET", "/queue/api/nothing", {}),
    )

    assert made.status_code == 201
    assert listed.json()["items"] == [made.json()]
    assert nothing.json()["code"] == "not_found"


def preflight(
    origin: str,
    path: str = "/api/jobs/enqueue",
    sent: str = "authorization,content-type,idempotency-key",
    method: str = "POST",
):
    headers = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": sent,
    }
    return "OPTIONS", path, {"headers": headers}


def test_pages_of_other_sites_ask_only_if_they_are_named(app, key):
    shop, other = "https://shop.example.org", "https://example.net"
    listing = "GET", "/api/jobs", {"headers": {**key, "origin": shop}}

    named, unnamed, listed = asked(
        with_origins(Api(app), [shop]), preflight(shop), preflight(other), listing
    )
    [closed] = asked(Api(app), preflight(shop))

    assert named.headers["access-control-allow-origin"] == shop
    assert "access-control-allow-origin" not in unnamed.headers
    assert (listed.status_code, listed.headers["access-control-allow-origin"]) == (200, shop)
    assert "access-control-allow-credentials" not in listed.headers
    assert closed.status_code == 405


@pytest.mark.parametrize(
    ("path", "sent", "method"),
    [
        ("/v1/stream/chat", "authorization,if-none-match,last-event-id", "GET"),
        ("/v1/stream/chat", "authorization,content-type,producer-id,producer-seq", "POST"),
        ("/v1/stream/chat", "authorization,stream-ttl,stream-forked-from", "PUT"),
        ("/api/channels/chat/events", "authorization,last-event-id", "GET"),
        ("/api/channels/chat/consumers/mailer", "authorization,content-type", "PUT"),
    ],
)
def test_pages_of_other_sites_read_channels_only_if_they_are_named(app, path, sent, method):
    shop = "https://shop.example.org"
    request = preflight(shop, path, sent, method)

    [named] = asked(with_origins(Api(app), [shop]), request)
    [closed] = asked(Api(app), request)

    assert (named.status_code, named.headers["access-control-allow-origin"]) == (200, shop)
    assert not any(name.startswith("access-control") for name in closed.headers)


def test_a_page_of_another_site_follows_a_channel_by_a_pass(app):
    """An EventSource asks no permission before; the answer has to name its origin."""
    secret = app.keys.create("r", scopes=["subscribe"])[1]
    app.events.publish("chat", 1)
    app.events.close("chat")
    shop = "https://shop.example.org"
    headers = {"origin": shop, "accept": "text/event-stream"}

    def followed(path):
        made = app.accounts.issue_pass(secret, ["chat"])
        return "GET", f"{path}pass={made}", {"headers": headers}

    requests = [
        followed("/api/channels/chat/events?"),
        followed("/v1/stream/chat?offset=-1&live=sse&"),
    ]
    named = asked(with_origins(Api(app), [shop]), *requests)

    assert [answer.status_code for answer in named] == [200, 200]
    assert {answer.headers["access-control-allow-origin"] for answer in named} == {shop}


@pytest.mark.parametrize("path", ["", "/queue"], ids=["strips", "keeps"])
def test_a_proxy_strips_the_prefix_or_keeps_it(app, key, path, quick_passwords):
    """S4"""
    app.accounts.create("users", "ada@example.org", PASSWORD)
    login = {"identity": "ada@example.org", "password": PASSWORD, "cookie": True}
    page, unknown, document, stored, escaped, logged_in = asked(
        Prefixed(Api(app), "/queue"),
        ("GET", f"{path}/jobs", {"headers": {"accept": "text/html"}}),
        ("GET", f"{path}/queued", {"headers": {"accept": "text/html"}}),
        ("GET", f"{path}/api/openapi.json", {}),
        ("POST", f"{path}/api/jobs/enqueue", {"headers": key, "json": {"topic": "mail"}}),
        ("GET", f"{path}/api/schedules/a%2Fb", {"headers": key}),
        ("POST", f"{path}/api/collections/users/auth-with-password", {"json": login}),
    )

    assert (page.status_code, unknown.status_code) == (200, 404)
    assert '<base href="/queue/">' in page.text
    assert document.json()["servers"] == [{"url": "/queue"}]
    assert stored.status_code == 201
    assert "'a/b'" in escaped.json()["message"]
    assert "; Path=/queue;" in logged_in.headers["set-cookie"]
