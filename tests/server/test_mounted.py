"""The API inside an application of others, and asked by pages of other sites."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from towpath import App
from towpath.server import Api
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
        raise AssertionError("nobody asked for it")

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


def preflight(origin: str):
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,idempotency-key",
    }
    return "OPTIONS", "/api/jobs/enqueue", {"headers": headers}


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
