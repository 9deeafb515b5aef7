"""What superusers see of the whole: their login, this server and its database."""

from datetime import datetime
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

from towpath.server.accounts import Record, token_and_place
from towpath.server.outputs import ResponseBody
from towpath.server.request import Request
from towpath.server.routes import Routes

routes: Final = Routes("other")


class DatabaseShown(ResponseBody):
    """The database of the server."""

    kind: str  # sqlite, postgresql or memory
    name: str  # its URL, without passwords


class Me(ResponseBody):
    """The caller's login, and the server that it is at."""

    record: Record
    expires_at: datetime
    version: str
    database: DatabaseShown
    dashboard: str | None  # the hash of the dashboard's files; null: this server has none


@routes.get("/api/me")
async def me(request: Request) -> Me:
    """Read the login of a superuser: its account, and when it ends."""
    request.require_superuser()
    token, _ = token_and_place(request)
    app = request.app
    return Me(
        record=request.caller.auth,
        expires_at=await app.accounts.aexpiry(token),
        version=version("towpath"),
        database=DatabaseShown(kind=_kind(app.database), name=app.database),
        dashboard=request.shared.bundle,
    )


def _kind(url: str) -> str:
    scheme = urlsplit(url).scheme
    return "postgresql" if scheme == "postgres" else scheme
