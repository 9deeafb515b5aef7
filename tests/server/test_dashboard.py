"""The pages of the dashboard as the server answers them: paths, headers and files."""

import asyncio
import gzip
import re
import shutil

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import hatch_build
from tests.server.conftest import refused
from towpath import App
from towpath.server import Api, dashboard
from towpath.server.dashboard import PAGES, built_dashboard

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def asked(web, path, method="GET", **headers):
    """Ask for a path; return the answer."""
    return web.request(method, path, headers=headers)


def loaded(page):
    """Return the script and the style that a page loads."""
    return re.findall(r'(?:src|href)="(static/app-[^"]+)"', page.text)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("accept", [None, "*/*", "application/json", BROWSER["accept"]])
def test_every_page_is_the_same_file_whatever_the_client_accepts(quick_web, path, accept):
    headers = {"accept": accept} if accept else {}
    said = asked(quick_web, re.sub("{[a-z]+}", "some", path), **headers)

    assert said.status_code == 200
    assert said.headers["content-type"] == "text/html; charset=utf-8"
    assert said.text == asked(quick_web, "/").text
    assert len(loaded(said)) == 2


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/setup?token=x",
        "/elsewhere",
        "/api/docs",
        "/api/elsewhere",
        "/api/jobs/1",
        "/v1/stream/orders",
    ],
)
def test_every_page_has_the_one_policy(quick_web, path):
    """X2"""
    said = asked(quick_web, path, **BROWSER)

    assert said.headers["content-type"] == "text/html; charset=utf-8"
    assert said.headers["content-security-policy"] == POLICY
    assert said.headers["referrer-policy"] == "no-referrer"
    assert said.headers["cross-origin-opener-policy"] == "same-origin"
    assert "unsafe-inline" not in said.headers["content-security-policy"]
    assert not re.search(r"<style|<script>| style=| on[a-z]+=", said.text)


def test_the_server_knows_the_pages_that_the_dashboard_has():
    text = (hatch_build.DASHBOARD / "src" / "pages.ts").read_text()
    shown = set(re.findall(r'path: "([^"]+)", title: "[^"]+", under:', text))

    assert {*PAGES} == shown - {"/jobs/new"} | {"/login", "/setup"}  # it is one of /jobs/{id}


@pytest.mark.parametrize("path", ["/elsewhere", "/webhooks/elsewhere", "/webhooks/sagas/7"])
def test_an_unknown_page_is_not_found_and_still_a_page(quick_web, path):
    said = asked(quick_web, path, **BROWSER)

    assert said.status_code == 404
    assert loaded(said) == loaded(asked(quick_web, "/"))


@pytest.mark.parametrize("path", ["/api/elsewhere", "/v1/elsewhere", "/metrics/elsewhere"])
def test_an_unknown_path_of_the_api_is_no_page_of_the_dashboard(quick_web, path):
    said = asked(quick_web, path, **BROWSER)

    assert said.status_code == 404
    assert not loaded(said)
    assert refused(asked(quick_web, path)) == (404, "not_found")


def test_what_is_not_a_page_stays_as_it_is(quick_web):
    for path in ("/healthz", "/readyz", "/api/health", "/api/openapi.json"):
        assert asked(quick_web, path, **BROWSER).headers["content-type"] == "application/json"


def test_a_browser_keeps_the_files_of_a_build_for_good(quick_web):
    for path in loaded(asked(quick_web, "/")):
        said = asked(quick_web, f"/{path}", **{"accept-encoding": "identity"})

        assert said.status_code == 200
        assert said.headers.get_list("cache-control") == ["public, max-age=31536000, immutable"]
        assert said.headers["x-content-type-options"] == "nosniff"
        assert "content-encoding" not in said.headers


def test_files_are_compressed_for_a_client_that_reads_that(quick_web):
    [path, *_] = loaded(asked(quick_web, "/"))

    plain = asked(quick_web, f"/{path}", **{"accept-encoding": "identity"})
    small = asked(quick_web, f"/{path}", **{"accept-encoding": "gzip, br"})

    assert small.headers["content-encoding"] == "gzip"
    assert small.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert small.content == plain.content  # httpx has unpacked it
    assert int(small.headers["content-length"]) == len(built_dashboard().files[path[7:]].gzipped)
    assert gzip.decompress(built_dashboard().files[path[7:]].gzipped) == plain.content


@pytest.mark.parametrize("path", ["/", "/jobs", "/static/favicon.svg", "/static/pages.css"])
def test_a_browser_asks_again_for_what_has_no_hash_in_its_name(quick_web, path):
    first = asked(quick_web, path)
    again = asked(quick_web, path, **{"if-none-match": first.headers["etag"]})

    assert first.headers.get_list("cache-control") == ["no-cache"]
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert asked(quick_web, path, **{"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/static/nothing.js", "/static/..%2Fdashboard.py", "/static/.stamp", "/static/"]
)
def test_there_are_no_other_files(quick_web, path):
    assert refused(asked(quick_web, path)) == (404, "not_found")


def test_a_head_of_a_page_is_that_of_its_get(quick_web):
    for path in ("/", "/jobs", "/static/pages.css"):
        head, get = asked(quick_web, path, "HEAD"), asked(quick_web, path)

        assert (head.status_code, head.headers) == (get.status_code, get.headers)
    assert refused(asked(quick_web, "/jobs", "POST")) == (405, "method_not_allowed")


def test_the_openapi_document_lists_no_pages(quick_web):
    paths = quick_web.api.shared.document["paths"]

    assert not {"/", "/jobs", "/setup", "/static/{name}"} & set(paths)


def mounted(web, *paths, **headers):
    """Ask an application for paths; return the answers."""

    async def ask():
        transport = httpx.ASGITransport(web)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return [await client.get(path, headers=headers) for path in paths]

    return asyncio.run(ask())


def test_a_mounted_dashboard_begins_at_its_prefix():
    with App("memory://") as app:
        web = Starlette(routes=[Mount("/queue", Api(app))])
        home, jobs, style = mounted(web, "/queue/", "/queue/jobs", "/queue/static/pages.css")
        [wrong] = mounted(web, "/queue/api/nothing", **BROWSER)

    assert '<base href="/queue/">' in home.text
    assert jobs.text == home.text
    assert style.status_code == 200
    assert '<link rel="stylesheet" href="/queue/static/pages.css">' in wrong.text


def test_a_prefix_is_text_not_html():
    with App("memory://") as app:
        transport = httpx.ASGITransport(Api(app), root_path='/"><script>')
        page = asyncio.run(_get(transport, '/"><script>/'))

    assert "<script>" not in page.text
    assert "&quot;&gt;&lt;script&gt;" in page.text


async def _get(transport, path):
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return await client.get(path)


def test_an_api_may_do_without_the_dashboard():
    with App("memory://") as app:
        home, jobs, docs = mounted(Api(app, dashboard=False), "/", "/jobs", "/api/docs", **BROWSER)

    assert (home.status_code, jobs.status_code, docs.status_code) == (404, 404, 200)
    assert "<h1>Towpath</h1>" in home.text
    assert "app-" not in jobs.text
    assert '<a href="/api/docs">' in home.text


def test_without_a_build_the_first_page_says_how_to_get_it(monkeypatch, tmp_path):
    """S3"""
    shutil.copytree(dashboard.TEMPLATES, tmp_path / "pages")
    monkeypatch.setattr(dashboard, "files", lambda _: tmp_path)
    built_dashboard.cache_clear()
    with App("memory://") as app:
        home, setup = mounted(Api(app), "/", "/setup?token=x", **BROWSER)
        [program] = mounted(Api(app), "/")
    built_dashboard.cache_clear()

    for page in (home, setup):
        assert page.status_code == 404
        assert "This Towpath has no dashboard" in page.text
        assert "<code>pip install towpath</code>" in page.text
        assert page.headers["content-security-policy"] == POLICY
    assert program.json()["code"] == "not_found"
    assert "no dashboard" in program.json()["message"]


def test_a_name_in_a_path_may_hold_an_escaped_slash(web, root):
    web.app.schedules.set("a/b%2f c", topic="mail", every=60)

    assert web.get("/api/schedules/a%2fb%252f%20c", as_=root).json()["name"] == "a/b%2f c"
    assert web.get("/api/schedules/a/b%252f%20c", as_=root).status_code == 404
    assert web.get("/schedules/a%2Fb", headers={"accept": "text/html"}).status_code == 200
