"""What superusers see of the whole: their login, this server, its limits, settings and doctor."""

from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta

from towpath.app.checkup import Verdict
from towpath.server.accounts import Record, token_and_place
from towpath.server.inputs import Input
from towpath.server.job_details import RemedyShown, remedy_shown
from towpath.server.outputs import Items, ResponseBody, all_shown
from towpath.server.request import Request
from towpath.server.routes import Routes
from towpath.server.statistics import MOST_COUNTED
from towpath.settings import settings_now

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


class LimitShown(ResponseBody):
    """A limit in use, and how many jobs it binds."""

    key: str
    concurrency: int | None  # jobs that run at once
    pace: float | None  # seconds from one start to the next
    burst: int
    running: int
    blocked: int
    exact: bool  # if not, more jobs are blocked
    free_at: datetime | None  # when the pace allows the next start


class CheckShown(ResponseBody):
    """A check of the doctor, and its result."""

    name: str
    verdict: Verdict
    code: str
    message: str
    advice: str | None
    about: list[str]  # the topics, workers, schedules or subscriptions that it is about
    remedies: list[RemedyShown]


class CheckupShown(ResponseBody):
    """All checks of the doctor, and when it looked."""

    at: datetime
    healthy: bool  # no check found a problem
    items: list[CheckShown]


class PatienceQuery(Input):
    """How long work may wait before the doctor speaks of it."""

    patience: Annotated[float, Meta(ge=1, le=86_400)] = 60.0


class SettingShown(ResponseBody):
    """A setting of this process; it is changed where the process is started."""

    name: str
    value: bool | int | float | str  # a secret is not shown
    default: bool | int | float | str
    source: str  # default, environment or given
    about: str


@routes.get("/api/limits")
async def list_limits(request: Request) -> Items[LimitShown]:
    """Read the limits in use, and how many jobs of each run and wait.

    Up to 100,000 that wait are counted, of all limits together; if not `exact`, there are more.
    """
    request.require_superuser()
    return Items(
        items=[
            LimitShown(
                key=each.key,
                concurrency=each.concurrency,
                pace=None if each.pace is None else each.pace / 1e6,
                burst=each.burst,
                running=each.running,
                blocked=each.blocked,
                exact=each.exact,
                free_at=each.free_at,
            )
            for each in await request.app.limits.alist(MOST_COUNTED)
        ]
    )


@routes.get("/api/doctor")
async def doctor(request: Request, query: PatienceQuery) -> CheckupShown:
    """Look for problems of the database and of the workers; what was found holds for 30 s."""
    request.require_superuser()
    found = await request.shared.checkups.latest(query.patience)
    return CheckupShown(
        at=found.at,
        healthy=not any(check.verdict is Verdict.PROBLEM for check in found.checks),
        items=[
            CheckShown(
                name=check.name,
                verdict=check.verdict,
                code=check.code,
                message=check.message,
                advice=check.advice,
                about=list(check.about),
                remedies=[remedy_shown(each) for each in check.remedies],
            )
            for check in found.checks
        ],
    )


@routes.get("/api/settings")
async def list_settings(request: Request) -> Items[SettingShown]:
    """Read the settings of this process, without secrets."""
    request.require_superuser()
    return all_shown(SettingShown, settings_now(request.app.settings))


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
