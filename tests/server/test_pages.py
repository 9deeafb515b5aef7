"""What a person sees in a browser: never raw JSON."""

import html
import json
import re
import shlex

import pytest

from tests.server.conftest import PASSWORD, refused
from towpath.server.api import document

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
DOCUMENT = document()
OPERATIONS = [
    (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


@pytest.mark.parametrize("path", ["/api/elsewhere", "/v1/elsewhere", "/api/jobs/<script>"])
def test_a_path_without_a_page_leads_to_the_documentation(quick_web, path):
    said = quick_web.request("GET", path, headers=BROWSER)

    assert '<a href="/api/docs">' in said.text
    assert '<link rel="stylesheet" href="/static/pages.css">' in said.text
    assert "<script>" not in said.text


@pytest.mark.parametrize(
    "headers", [{}, {"accept": "*/*"}, {"accept": "application/json, text/html"}]
)
def test_programs_get_json(quick_web, headers):
    assert refused(quick_web.request("GET", "/nothing", headers=headers)) == (404, "not_found")


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
