"""What is not about jobs: set-up, health, numbers, and the description of all this."""

import hmac
from ipaddress import ip_address
from typing import Any, Final

from towpath.errors import InvalidState
from towpath.server.accounts import Email, LoggedIn, Password
from towpath.server.asked import Asked
from towpath.server.asks import Ask
from towpath.server.callers import record_of
from towpath.server.errors import Refusal
from towpath.server.metrics import MEDIA
from towpath.server.pages import page
from towpath.server.routes import Answer, Routes
from towpath.server.told import Told

routes: Final = Routes("other")

HTML: Final = "text/html; charset=utf-8"
POLICY: Final = (
    b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    b"connect-src 'self'; frame-ancestors 'none'; form-action 'self'"
)
SET_UP: Final = ("forbidden", "login_required", "invalid_state")
PAGE_HEADERS: Final = ((b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer"))


class SetUp(Asked):
    """The first superuser."""

    token: str  # of the link that `towpath serve` has printed
    email: Email
    password: Password


class Health(Told):
    """The process is there."""

    status: str


class SetUpQuery(Asked):
    """The link that `towpath serve` has printed."""

    token: str = ""


@routes.get("/healthz", is_open=True)
async def health(_: Ask) -> Health:
    """Say that this process answers."""
    return Health(status="ok")


@routes.get("/readyz", is_open=True, errors=("unavailable",))
async def readiness(ask: Ask) -> Health:
    """Say whether the database takes writes, and the worker of this process consumes."""
    if why := await ask.gate.readiness.obstacle():
        raise Refusal(503, "unavailable", f"the database takes no writes: {why}")
    if ask.gate.worker is not None and (why := ask.gate.worker.sick):
        raise Refusal(503, "unavailable", f"the worker does not consume: {why}")
    return Health(status="ok")


@routes.get("/metrics", media=MEDIA)
async def metrics(ask: Ask) -> str:
    """Count jobs, workers and answers, for Prometheus."""
    if "metrics" not in ask.caller.scopes:
        ask.require_superuser()
    return await ask.gate.metrics.text(ask.app)


@routes.get("/api/openapi.json", is_open=True)
async def openapi(ask: Ask) -> dict[str, Any]:
    """Describe this API, as OpenAPI 3.1."""
    root: str = ask.scope.get("root_path", "")
    return {**ask.gate.document, "servers": [{"url": root}]} if root else ask.gate.document


@routes.get("/api/docs", is_open=True, media=HTML)
async def docs(ask: Ask) -> Answer[str]:
    """Describe this API, for people."""
    return Answer(page("docs", ask.gate.document), headers=PAGE_HEADERS)


@routes.get("/setup", is_open=True, media=HTML, errors=SET_UP)
async def set_up_page(ask: Ask, query: SetUpQuery) -> Answer[str]:
    """Ask for the first superuser."""
    await _require_set_up(ask, query.token)
    return Answer(page("setup"), headers=PAGE_HEADERS)


@routes.post(
    "/api/setup",
    is_open=True,
    status=201,
    errors=SET_UP,
)
async def set_up(ask: Ask, body: SetUp) -> LoggedIn:
    """Make the first superuser: once, from this machine, with the link's token."""
    await _require_set_up(ask, body.token)
    account = await ask.app.accounts.acreate_first(body.email, body.password)
    ask.gate.set_up_token = None
    return LoggedIn(token=await ask.app.accounts.atoken(account), record=record_of(account))


async def _require_set_up(ask: Ask, token: str) -> None:
    """Refuse whoever is not on this machine, or does not have the link."""
    if not is_loopback(ask.client):
        raise Refusal(403, "forbidden", "the set-up link works on this very machine only")
    gate = ask.gate
    if gate.set_up_token is None:
        msg = (
            "there is a superuser already, or nobody has printed a link: `towpath superuser create`"
        )
        raise InvalidState(msg)
    if not hmac.compare_digest(token.encode(), gate.set_up_token.encode()):
        raise Refusal(
            403, "forbidden", "this is not the token of the link that `towpath serve` has printed"
        )
    if await ask.app.accounts.acount("_superusers"):
        gate.set_up_token = None
        msg = "there is a superuser already: log in"
        raise InvalidState(msg)


def is_loopback(host: str) -> bool:
    """Say whether an address is this very machine's; a socket file has none."""
    try:
        return not host or ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
