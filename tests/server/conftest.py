"""The API over every database, asked by any caller that a test chooses."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from towpath import App
from towpath.model.sealing import new_key
from towpath.server import Api
from towpath.server.dashboard import FileEndpoint, PageEndpoint
from towpath.server.errors import Refusal
from towpath.server.streams import PATH as STREAM_PATH

PASSWORD = "correct horse"
WEBHOOK_KEY = new_key()


class Web:
    """Asks the API, as ASGI and without a network; `as_` is a token or a key."""

    def __init__(
        self, app: App, loop: asyncio.AbstractEventLoop, client: str = "127.0.0.1"
    ) -> None:
        self.app = app
        self.api = Api(app)
        self._loop = loop
        transport = httpx.ASGITransport(self.api, client=(client, 4711))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://towpath.test")

    def __call__(
        self, method: str, path: str, json: Any = None, *, as_: str | None = None, **more: Any
    ) -> httpx.Response:
        headers = {**more.pop("headers", {})}
        if as_ is not None:
            headers["authorization"] = f"Bearer {as_}"
        if json is not None:
            more["json"] = json
        return self.request(method, path, headers=headers, **more)

    def request(self, method: str, url: str, **more: Any) -> httpx.Response:
        """Send what may be no good request at all."""
        asking = self._client.request(method, url, **more)
        response = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        self._check(response)
        return response

    def _check(self, response: httpx.Response) -> None:
        """Whatever a test is about: the status is one that the OpenAPI document names."""
        request = response.request
        try:
            url = request.url
            scope = {"path": url.path, "raw_path": url.raw_path, "method": request.method}
            endpoint, _ = self.api.paths.find(scope)
        except Refusal as refusal:
            is_page = response.headers["content-type"].startswith("text/html")
            code = refusal.code if is_page else response.json()["code"]
            expected = refusal.status, refusal.code
            assert (response.status_code, code) == expected
            return
        if endpoint.path == STREAM_PATH or isinstance(endpoint, PageEndpoint | FileEndpoint):
            return  # the protocol names them; pages are not part of the API
        method = "get" if request.method == "HEAD" else request.method.lower()
        documented = self.api.shared.document["paths"][endpoint.path][method]["responses"]
        assert str(response.status_code) in documented, (endpoint.path, response.text)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self("GET", path, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self("POST", path, json, **more)

    def patch(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self("PATCH", path, json, **more)

    def put(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self("PUT", path, json, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self("DELETE", path, **more)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()


@pytest.fixture
def web(make_app, clock, loop, quick_passwords) -> Iterator[Web]:
    """The API, whose clock the test moves."""
    web = Web(make_app(clock=clock, webhook_key=WEBHOOK_KEY), loop)
    yield web
    web.close()


@pytest.fixture
def quick_web(clock, loop, quick_passwords) -> Iterator[Web]:
    """The API on memory only, where the database does not matter."""
    with App("memory://", clock=clock, webhook_key=WEBHOOK_KEY) as app:
        web = Web(app, loop)
        yield web
        web.close()


@pytest.fixture
def live_web(make_app, loop, quick_passwords) -> Iterator[Web]:
    """The API on real time, for callers that wait."""
    web = Web(make_app(), loop)
    yield web
    web.close()


def token_of(app: App, collection: str, email: str, **fields: Any) -> str:
    account = app.accounts.create(collection, email, PASSWORD, fields=fields)
    return app.accounts.token(account)


@pytest.fixture
def root(web) -> str:
    """The token of a superuser."""
    return token_of(web.app, "_superusers", "root@example.org")


@pytest.fixture
def ada(web) -> str:
    """The token of a user."""
    return token_of(web.app, "users", "ada@example.org", role="editor")


@pytest.fixture
def bob(web) -> str:
    """The token of another user."""
    return token_of(web.app, "users", "bob@example.org")


@pytest.fixture
def revoked(web) -> str:
    """A key with every scope, which has ended."""
    key, secret = web.app.keys.create("old", scopes=["enqueue", "manage", "work", "metrics"])
    web.app.keys.revoke(key.id)
    return secret


def refused(response: httpx.Response) -> tuple[int, str]:
    """The status and code of a refusal; it has the one shape."""
    said = response.json()
    assert set(said) == {"code", "message", "details"}
    assert "Traceback" not in response.text
    return response.status_code, said["code"]
