"""Routes that are not about jobs: set-up, health, metrics and API documentation."""

import hmac
from ipaddress import ip_address
from typing import Any, Final

from towpath.errors import InvalidState
from towpath.server import pages
from towpath.server.accounts import (
    Email,
    LoggedIn,
    Password,
    logged_in,
    refuse_foreign_cookie,
)
from towpath.server.authentication import caller_of
from towpath.server.endpoint import HTML, PAGE_HEADERS
from towpath.server.errors import Refusal
from towpath.server.inputs import Input
from towpath.server.metrics import MEDIA
from towpath.server.outputs import ResponseBody
from towpath.server.request import Request
from towpath.server.routes import Answer, Routes

routes: Final = Routes("other")

SET_UP_ERRORS: Final = ("forbidden", "login_required", "invalid_state", "csrf_refused")


class SetUp(Input):
    """The first superuser."""

    token: str  # of the link that `towpath serve` prints
    email: Email
    password: Password
    cookie: bool = False  # also log in by a cookie that scripts cannot read


class HealthOutput(ResponseBody):
    """The health of the server."""

    status: str


class PocketBaseHealth(ResponseBody):
    """The health of the server, as PocketBase's clients read it."""

    code: int
    message: str
    data: dict[str, Any]


@routes.get("/healthz", is_open=True)
async def health(_: Request) -> HealthOutput:
    """Answer that this process is up."""
    return HealthOutput(status="ok")


@routes.get("/api/health", is_open=True)
async def pocketbase_health(_: Request) -> PocketBaseHealth:
    """Answer that this process is up, to PocketBase's clients."""
    return PocketBaseHealth(code=200, message="API is healthy.", data={})


@routes.get("/readyz", is_open=True, errors=("unavailable",))
async def readiness(request: Request) -> HealthOutput:
    """Answer whether the database takes writes and the worker of this process runs jobs."""
    if reason := await request.shared.readiness.problem():
        raise Refusal(503, "unavailable", f"the database takes no writes: {reason}")
    if request.shared.worker is not None and (reason := request.shared.worker.sick):
        raise Refusal(503, "unavailable", f"the worker runs no jobs: {reason}")
    return HealthOutput(status="ok")


@routes.get("/metrics", media=MEDIA)
async def metrics(request: Request) -> str:
    """Count jobs, workers and requests, in Prometheus' text format."""
    if "metrics" not in request.caller.scopes:
        request.require_superuser()
    made = request.shared.deliveries
    return await request.shared.metrics.text(request.app, made.outcomes if made else {})


@routes.get("/api/openapi.json", is_open=True)
async def openapi(request: Request) -> dict[str, Any]:
    """Read the OpenAPI 3.1 document of this API."""
    root: str = request.scope.get("root_path", "")
    return (
        {**request.shared.document, "servers": [{"url": root}]} if root else request.shared.document
    )


@routes.get("/api/docs", is_open=True, media=HTML)
async def docs(request: Request) -> Answer[str]:
    """Show the documentation of this API as a web page."""
    return Answer(pages.docs_page(request.shared.document), headers=PAGE_HEADERS)


@routes.post(
    "/api/setup",
    is_open=True,
    status=201,
    errors=SET_UP_ERRORS,
)
async def set_up(request: Request, body: SetUp) -> Answer[LoggedIn]:
    """Create the first superuser: once, from the server's machine, with the token of the link."""
    if body.cookie:
        refuse_foreign_cookie(request)
    await _require_set_up(request, body.token)
    account = await request.app.accounts.acreate_first(body.email, body.password)
    request.shared.set_up_token = None
    request.caller = caller_of(account)
    await request.acted("account.created", collection=account.collection, account=account.id)
    token = await request.app.accounts.atoken(account)
    return logged_in(request, account, token, as_cookie=body.cookie)


async def _require_set_up(request: Request, token: str) -> None:
    """Refuse a client on another machine, or without the token of the link."""
    if not is_loopback(request.client):
        raise Refusal(403, "forbidden", "open the set-up link on the machine of the server")
    shared = request.shared
    if shared.set_up_token is None:
        msg = (
            "set-up is closed: a superuser exists, or this server printed no link; "
            "log in, or run `towpath superuser create`"
        )
        raise InvalidState(msg)
    if not hmac.compare_digest(token.encode(), shared.set_up_token.encode()):
        message = "the token is wrong; use the link that `towpath serve` printed last"
        raise Refusal(403, "forbidden", message)
    if await request.app.accounts.acount("_superusers"):
        shared.set_up_token = None
        msg = "a superuser exists already; log in"
        raise InvalidState(msg)


def is_loopback(host: str) -> bool:
    """Return whether an address is of this machine; a client of a socket file has none."""
    try:
        return not host or ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
