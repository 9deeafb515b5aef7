"""The dashboard: one HTML file for all its pages, and the files that it loads.

Every path of a page is answered with that file, so that links and reloads work; its script reads
the path. The files are built from `dashboard/` in the sources, by `hatch_build.py`.
"""

import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from msgspec import Struct

from towpath.server.bodies import Receive, Scope
from towpath.server.endpoint import HTML, PAGE_HEADERS, Headers, Written
from towpath.server.errors import Refusal
from towpath.server.pages import TEMPLATES

PAGES: Final = (
    "/",
    "/login",
    "/setup",
    "/jobs",
    "/jobs/{id}",
    "/topics",
    "/topics/{topic}",
    "/workers",
    "/schedules",
    "/schedules/{name}",
    "/flows",
    "/flows/{id}",
    "/channels",
    "/channels/{channel}",
    "/webhooks",
    "/webhooks/deliveries",
    "/webhooks/dead-letters",
    "/activity",
    "/settings",
    "/settings/{part}",
)
FILES: Final = "/static/{name}"
NOT_PAGES: Final = frozenset({"api", "v1", "static", "metrics", "healthz", "readyz"})
OF_PAGES: Final = ("pages.css", "docs.js")  # what the pages without the dashboard load
MEDIA: Final = {
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
}
HASHED: Final = re.compile(r".*-[A-Z0-9]{8}\.(css|js)")
FOR_GOOD: Final = (b"cache-control", b"public, max-age=31536000, immutable")
ASK_AGAIN: Final = (b"cache-control", b"no-cache")
MISSING: Final = (
    "this Towpath has no dashboard: it was installed with TOWPATH_DASHBOARD=none, or runs from "
    "sources in which it was not built; `pip install towpath` brings it, `./dev demo` builds it, "
    "`towpath superuser create` creates a superuser without it"
)


class StaticFile(Struct, frozen=True):
    """A file that a page loads."""

    media: bytes
    content: bytes
    gzipped: bytes | None
    headers: Headers

    def answer(self, scope: Scope) -> Written:
        """Return the file, compressed if the client can read that."""
        asked = dict(scope["headers"])
        if _is_known(asked, self.headers):
            return 304, b"", b"", self.headers
        if self.gzipped is not None and b"gzip" in asked.get(b"accept-encoding", b""):
            headers = (*self.headers, (b"content-encoding", b"gzip"))
            return 200, self.media, self.gzipped, headers
        return 200, self.media, self.content, self.headers


class Dashboard(Struct, frozen=True):
    """The built dashboard."""

    page: str
    files: Mapping[str, StaticFile]

    @property
    def version(self) -> str:
        """What changes with every change of the dashboard: the page names its files by hashes."""
        return hashlib.sha256(self.page.encode()).hexdigest()[:12]

    def answer(self, scope: Scope, status: int = 200) -> Written:
        """Return the HTML of all pages; its links begin where the API is mounted."""
        root = html.escape(scope.get("root_path", ""))
        body = self.page.replace('<base href="/">', f'<base href="{root}/">', 1).encode()
        headers = (*PAGE_HEADERS, ASK_AGAIN, _etag(body))
        if status == 200 and _is_known(dict(scope["headers"]), headers):  # noqa: PLR2004 - HTTP's
            return 304, b"", b"", headers
        return status, HTML.encode(), body, headers


class PageEndpoint:
    """Answers the path of a page."""

    def __init__(self, dashboard: Dashboard, path: str) -> None:
        self.path = path
        self._dashboard = dashboard

    async def answer(
        self, scope: Scope, receive: Receive, parameters: Mapping[str, str]
    ) -> Written:
        """Return the page."""
        del receive, parameters
        return self._dashboard.answer(scope)


class FileEndpoint:
    """Answers the paths of static files."""

    path: Final = FILES

    def __init__(self, dashboard: Dashboard | None) -> None:
        self._files = {**_files_of(TEMPLATES, OF_PAGES), **(dashboard.files if dashboard else {})}

    async def answer(
        self, scope: Scope, receive: Receive, parameters: Mapping[str, str]
    ) -> Written:
        """Return a file."""
        del receive
        found = self._files.get(parameters["name"])
        if found is None:
            raise Refusal(404, "not_found", f"there is no file {parameters['name'][:100]!r}")
        return found.answer(scope)


@cache
def built_dashboard() -> Dashboard | None:
    """Return the dashboard, if this installation has it."""
    folder = files("towpath.server") / "static"
    if not (folder / "index.html").is_file():
        return None
    names = [file.name for file in folder.iterdir() if file.name.rpartition(".")[2] in MEDIA]
    page = (folder / "index.html").read_text("utf-8")
    return Dashboard(page=page, files=_files_of(folder, names))


def is_page(path: str) -> bool:
    """Return whether an unknown path would be one of a page, not of the API."""
    return path.lstrip("/").partition("/")[0] not in NOT_PAGES


def _files_of(folder: Traversable, names: Sequence[str]) -> dict[str, StaticFile]:
    return {name: _file(folder, name) for name in names}


def _file(folder: Traversable, name: str) -> StaticFile:
    content = (folder / name).read_bytes()
    gzipped = folder / f"{name}.gz"
    kept = (FOR_GOOD,) if HASHED.fullmatch(name) else (ASK_AGAIN, _etag(content))
    is_gzipped = gzipped.is_file()
    return StaticFile(
        media=MEDIA[name.rpartition(".")[2]],
        content=content,
        gzipped=gzipped.read_bytes() if is_gzipped else None,
        headers=(*kept, (b"vary", b"accept-encoding")) if is_gzipped else kept,
    )


def _etag(content: bytes) -> tuple[bytes, bytes]:
    return b"etag", f'"{hashlib.sha256(content).hexdigest()[:32]}"'.encode()


def _is_known(asked: Mapping[bytes, bytes], headers: Headers) -> bool:
    """Return whether the client has these very bytes."""
    etag = dict(headers).get(b"etag")
    known = asked.get(b"if-none-match", b"")
    return etag is not None and etag in {
        each.strip().removeprefix(b"W/") for each in known.split(b",")
    }
