"""Bulk acts over HTTP: one verb for many jobs. Only for superusers."""

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from msgspec import Meta

from towpath.model.bulk import Bulk, BulkState
from towpath.model.states import State, Status
from towpath.server.bulk_outputs import BulkPreviewShown, BulkShown, bulk_shown, sample_shown
from towpath.server.inputs import MOST_AT_ONCE, Input, Instant, Key, Seconds, Topic
from towpath.server.outputs import Items
from towpath.server.request import Request
from towpath.server.routes import Routes

routes: Final = Routes("jobs")

Verb = Literal["requeue", "kick", "cancel", "delete"]
Search = Annotated[str, Meta(max_length=255)]
Ids = Annotated[list[UUID], Meta(min_length=1, max_length=MOST_AT_ONCE)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class BulkFilter(Input):
    """Which jobs; all parts that are given must fit."""

    topic: Topic | None = None
    state: State | None = None
    status: Status | None = None
    key: Key | None = None
    text: Search | None = None  # in the payload, the key or the last error
    error: Search | None = None  # in the last error
    since: Instant | None = None  # enqueued then or later
    until: Instant | None = None  # enqueued before


class BulkQuestion(Input):
    """A verb, and the jobs that it is for: ids, or a filter with at least one part."""

    verb: Verb
    ids: Ids | None = None
    filter: BulkFilter | None = None

    def choice(self) -> dict[str, Any]:
        """Return the ids and the parts of the filter that are given."""
        parts = self.filter
        named: dict[str, Any] = {"ids": self.ids}
        if parts is not None:
            named |= {name: getattr(parts, name) for name in parts.__struct_fields__}
        return {name: value for name, value in named.items() if value is not None}


class BulkInput(BulkQuestion, kw_only=True):
    """A bulk act to begin."""

    up_to: Number  # as the preview gave it: later jobs are not covered
    delay: Seconds = 10.0  # seconds until it begins; until then it can be undone


class BulkQuery(Input):
    """How many bulk acts to list."""

    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 50


@routes.post("/api/bulk/preview")
async def preview_bulk(request: Request, body: BulkQuestion) -> BulkPreviewShown:
    """Count the jobs that a bulk act would cover, and show ten of them.

    A filter finds only jobs in states that the verb is for. At most 50,000 jobs are looked at, the
    newest first; if there are more, `exact` is false.
    """
    request.require_superuser()
    found = await request.app.bulk.apreview(body.verb, **body.choice())
    return BulkPreviewShown(
        count=found.count,
        exact=found.exact,
        sample=[sample_shown(job) for job in found.sample],
        up_to=found.up_to,
        refused=dict(found.refused),
    )


@routes.post("/api/bulk", status=201)
async def begin_bulk(request: Request, body: BulkInput) -> BulkShown:
    """Requeue, kick, cancel or delete many jobs, after a delay in which it can be stopped.

    It covers jobs up to the number `upTo`. Upkeep carries it out, 100 jobs at a time. A job that is
    refused stays as it is, and is reported.
    """
    request.require_superuser()
    bulk = await request.app.bulk.abegin(
        body.verb,
        up_to=body.up_to,
        by=request.person["name"],
        delay=body.delay,
        **body.choice(),
    )
    await _acted(request, "begun", bulk, bulk.count)
    return bulk_shown(bulk)


@routes.get("/api/bulk")
async def list_bulk(request: Request, query: BulkQuery) -> Items[BulkShown]:
    """List bulk acts, the newest first; ended ones are kept for 30 days."""
    request.require_superuser()
    return Items(items=[bulk_shown(each) for each in await request.app.bulk.alist(query.limit)])


@routes.get("/api/bulk/{id}")
async def get_bulk(request: Request, id: UUID) -> BulkShown:
    """Read a bulk act, and how far it is."""
    request.require_superuser()
    return bulk_shown(await request.app.bulk.aget(id))


@routes.post("/api/bulk/{id}/stop")
async def stop_bulk(request: Request, id: UUID) -> BulkShown:
    """End a bulk act where it is; before it begins, that undoes it. One that has ended stays so."""
    request.require_superuser()
    bulk = await request.app.bulk.astop(id)
    if bulk.state is BulkState.STOPPED:
        await _acted(request, "stopped", bulk, bulk.done)
    return bulk_shown(bulk)


async def _acted(request: Request, what: str, bulk: Bulk, count: int) -> None:
    """Post an act without what was searched for, which may be a secret."""
    choice = bulk.choice
    about = {"topic": choice.topic, "status": choice.status, "state": choice.state}
    await request.acted(f"bulk.{what}", bulk=bulk.id, verb=bulk.verb, count=count, **about)
