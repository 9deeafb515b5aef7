"""What a person sees in a browser: never raw JSON."""

import asyncio
import html
import json
import re
import shlex

import httpx
import pytest

from tests.server.conftest import PASSWORD, refused, token_of
from towpath.server.api import document

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
DOCUMENT = document()
OPERATIONS = [
    (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def opened(web, path, **more):
    """Open a path as a browser does; return the status and the text of the page."""
    said = web.request("GET", path, headers=BROWSER, **more)
    assert said.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in said.headers["content-security-policy"]
    return said.status_code, html.unescape(re.sub("<[^>]*>", "", said.text))


def test_a_used_set_up_link_is_a_page_that_says_what_to_do(quick_web):
    token_of(quick_web.app, "_superusers", "root@example.org")

    status, text = opened(quick_web, "/setup?token=used")

    assert status == 409
    assert "Set-up is closed: a superuser exists" in text
    assert "towpath superuser create" in text


def test_a_wrong_set_up_link_is_a_page(quick_web):
    quick_web.api.shared.set_up_token = "right"

    status, text = opened(quick_web, "/setup?token=wrong")

    assert (status, "The token is wrong" in text) == (403, True)


@pytest.mark.parametrize("path", ["/", "/elsewhere", "/api/jobs/<script>"])
def test_a_path_without_a_page_leads_to_the_documentation(quick_web, path):
    said = quick_web.request("GET", path, headers=BROWSER)

    assert '<a href="/api/docs">' in said.text
    assert "<script>" not in said.text


def test_a_page_of_a_mounted_api_leads_to_its_own_documentation(quick_web, loop):
    transport = httpx.ASGITransport(quick_web.api, root_path="/queue")
    client = httpx.AsyncClient(transport=transport, base_url="http://towpath.test")
    opening = client.get("/queue/", headers=BROWSER)

    said = asyncio.run_coroutine_threadsafe(opening, loop).result()

    assert "<h1>Towpath</h1>" in said.text
    assert '<a href="/queue/api/docs">' in said.text


@pytest.mark.parametrize(
    "headers", [{}, {"accept": "*/*"}, {"accept": "application/json, text/html"}]
)
def test_programs_get_json(quick_web, headers):
    assert refused(quick_web.request("GET", "/", headers=headers)) == (404, "not_found")


def test_the_documentation_loads_nothing_from_elsewhere(quick_web):
    page = quick_web.get("/api/docs").text

    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert "@import" not in page
    assert "url(" not in page


def test_every_link_in_the_documentation_leads_somewhere(quick_web):
    page = quick_web.get("/api/docs").text
    ids = re.findall(r' id="([^"]+)"', page)

    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    OPERATIONS,
    ids=[f"{method} {path}" for method, path, _ in OPERATIONS],
)
def test_the_curl_line_of_a_route_is_its_example(quick_web, method, path, operation):
    page = html.unescape(quick_web.get("/api/docs").text)
    section = page[page.index(f'<details class="route" id="{operation["operationId"]}"') :]
    line = re.search(r"<pre>(curl.*?)</pre>", section, re.DOTALL)[1]
    words = [word for word in shlex.split(line) if word.strip()]

    assert ("-X" in words) == (method != "get")
    [url] = [word for word in words if word.startswith("$TOWPATH")]
    endpoint, _ = quick_web.api.paths.find(
        {"path": url.removeprefix("$TOWPATH"), "method": method.upper()}
    )
    assert endpoint.path == path
    assert ("Authorization: Bearer $TOKEN" in words) == (operation.get("security") != [])
    if "requestBody" in operation:
        example = operation["requestBody"]["content"]["application/json"]["example"]
        assert json.loads(words[words.index("-d") + 1]) == example


def test_the_way_to_a_token_works_as_it_is_written(quick_web):
    quick_web.app.accounts.create("_superusers", "root@example.org", PASSWORD)
    page = html.unescape(quick_web.get("/api/docs").text)
    section = page[page.index('<section id="token">') :]
    login = re.search(r"curl.*?TOKEN=", section, re.DOTALL)[0]
    words = [word for word in shlex.split(login.removesuffix("TOKEN=")) if word.strip()]
    [url] = [word for word in words if word.startswith("$TOWPATH")]
    body = json.loads(words[words.index("-d") + 1]) | {"password": PASSWORD}

    said = quick_web.post(url.removeprefix("$TOWPATH"), body)

    assert quick_web.get("/api/keys", as_=said.json()["token"]).status_code == 200
