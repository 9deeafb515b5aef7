"""What is not about jobs: set-up, health, numbers, and the description of all this."""

import hmac
from ipaddress import ip_address
from typing import Any, Final

from towpath.errors import InvalidState
from towpath.server.accounts import Email, LoggedIn, Password
from towpath.server.authentication import record_of
from towpath.server.errors import Refusal
from towpath.server.inputs import Input
from towpath.server.metrics import MEDIA
from towpath.server.outputs import ResponseBody
from towpath.server.pages import page
from towpath.server.request import Request
from towpath.server.routes import Answer, Routes

routes: Final = Routes("other")

HTML: Final = "text/html; charset=utf-8"
POLICY: Final = (
    b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    b"connect-src 'self'; frame-ancestors 'none'; form-action 'self'"
)
SET_UP: Final = ("forbidden", "login_required", "invalid_state")
PAGE_HEADERS: Final = ((b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer"))


class SetUp(Input):
    """The first superuser."""

    token: str  # of the link that `towpath serve` has printed
    email: Email
    password: Password


class HealthOutput(ResponseBody):
    """The process is there."""

    status: str


class SetUpQuery(Input):
    """The link that `towpath serve` has printed."""

    token: str = ""


@routes.get("/healthz", is_open=True)
async def health(_: Request) -> HealthOutput:
    """Say that this process answers."""
    return HealthOutput(status="ok")


@routes.get("/readyz", is_open=True, errors=("unavailable",))
async def readiness(request: Request) -> HealthOutput:
    """Say whether the database takes writes, and the worker of this process consumes."""
    if why := await request.shared.readiness.obstacle():
        raise Refusal(503, "unavailable", f"the database takes no writes: {why}")
    if request.shared.worker is not None and (why := request.shared.worker.sick):
        raise Refusal(503, "unavailable", f"the worker does not consume: {why}")
    return HealthOutput(status="ok")


@routes.get("/metrics", media=MEDIA)
async def metrics(request: Request) -> str:
    """Count jobs, workers and answers, for Prometheus."""
    if "metrics" not in request.caller.scopes:
        request.require_superuser()
    return await request.shared.metrics.text(request.app)


@routes.get("/api/openapi.json", is_open=True)
async def openapi(request: Request) -> dict[str, Any]:
    """Describe this API, as OpenAPI 3.1."""
    root: str = request.scope.get("root_path", "")
    return (
        {**request.shared.document, "servers": [{"url": root}]} if root else request.shared.document
    )


@routes.get("/api/docs", is_open=True, media=HTML)
async def docs(request: Request) -> Answer[str]:
    """Describe this API, for people."""
    return Answer(page("docs", request.shared.document), headers=PAGE_HEADERS)


@routes.get("/setup", is_open=True, media=HTML, errors=SET_UP)
async def set_up_page(request: Request, query: SetUpQuery) -> Answer[str]:
    """Ask for the first superuser."""
    await _require_set_up(request, query.token)
    return Answer(page("setup"), headers=PAGE_HEADERS)


@routes.post(
    "/api/setup",
    is_open=True,
    status=201,
    errors=SET_UP,
)
async def set_up(request: Request, body: SetUp) -> LoggedIn:
    """Make the first superuser: once, from this machine, with the link's token."""
    await _require_set_up(request, body.token)
    account = await request.app.accounts.acreate_first(body.email, body.password)
    request.shared.set_up_token = None
    return LoggedIn(token=await request.app.accounts.atoken(account), record=record_of(account))


async def _require_set_up(request: Request, token: str) -> None:
    """Refuse whoever is not on this machine, or does not have the link."""
    if not is_loopback(request.client):
        raise Refusal(403, "forbidden", "the set-up link works on this very machine only")
    shared = request.shared
    if shared.set_up_token is None:
        msg = (
            "there is a superuser already, or nobody has printed a link: `towpath superuser create`"
        )
        raise InvalidState(msg)
    if not hmac.compare_digest(token.encode(), shared.set_up_token.encode()):
        raise Refusal(
            403, "forbidden", "this is not the token of the link that `towpath serve` has printed"
        )
    if await request.app.accounts.acount("_superusers"):
        shared.set_up_token = None
        msg = "there is a superuser already: log in"
        raise InvalidState(msg)


def is_loopback(host: str) -> bool:
    """Say whether an address is this very machine's; a socket file has none."""
    try:
        return not host or ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
