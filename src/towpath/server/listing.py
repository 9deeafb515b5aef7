"""Lists of jobs over HTTP: only jobs that the caller may manage, in pages of bounded size."""

import asyncio
import contextlib
import re
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from towpath.app.checks import ORDERS, STATUSES, Filters, page
from towpath.app.listing import MOST_LOOKED
from towpath.errors import Invalid, NotFound
from towpath.model.job import Job
from towpath.model.pages import Listed
from towpath.model.states import STATUS, State
from towpath.server.bodies import Turns
from towpath.server.inputs import MOST_AT_ONCE, Input, Key, Topic
from towpath.server.outputs import (
    BriefPage,
    JobPage,
    JobShown,
    TotalShown,
    brief_shown,
    job_shown,
)
from towpath.server.request import Request

AT_ONCE: Final = 100  # jobs per query
MOST_READ: Final = 2_000  # jobs per request, hidden ones included
MOST_BYTES_READ: Final = 64 * 2**20
MOST_BYTES: Final = 8 * 2**20  # of payloads and results in one page
MOST_IDS: Final = 100

Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Searched = Annotated[str, Meta(max_length=255)]


class ListInput(Input):
    """The filter of a list of jobs."""

    topic: Topic | None = None
    status: Annotated[str, Meta(extra_json_schema={"enum": [*STATUSES]})] | None = None
    state: State | None = None
    key: Key | None = None
    text: (
        Annotated[
            Searched,
            Meta(
                description="In the payload, the key or the last error. The id or the number "
                "of a job finds that job alone."
            ),
        ]
        | None
    ) = None
    error: Annotated[Searched, Meta(description="In the last error.")] | None = None
    worker: (
        Annotated[Searched, Meta(description="The name of the worker that has it now.")] | None
    ) = None
    since: datetime | None = None
    until: datetime | None = None
    ids: (
        Annotated[
            str,
            Meta(
                description="The ids of up to 100 jobs, with commas; without other filters.",
                extra_json_schema={"pattern": "^[0-9A-Fa-f-]{36}(,[0-9A-Fa-f-]{36}){0,99}$"},
            ),
        ]
        | None
    ) = None
    order: Annotated[str, Meta(extra_json_schema={"enum": ORDERS})] = ORDERS[0]
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 50
    offset: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    before: Number | None = None
    after: Number | None = None
    brief: bool = False
    count: bool = False


async def jobs_for(request: Request, query: ListInput) -> JobPage | BriefPage:
    """Read a page of the jobs that the caller may manage.

    The search ends when the client has gone.
    """
    checks_each = request.depends_on_job("manage", query.topic)
    if checks_each:
        request.require_some("manage")
    else:
        request.require("manage", query.topic)
    reading = asyncio.ensure_future(_read(request, query, checks_each=checks_each))
    gone = asyncio.ensure_future(request.disconnected())
    try:
        await asyncio.wait((reading, gone), return_when=asyncio.FIRST_COMPLETED)
        # Nothing is sent to a client that has gone.
        return await reading if reading.done() else JobPage(items=[])
    finally:
        reading.cancel()
        gone.cancel()


async def _read(request: Request, query: ListInput, *, checks_each: bool) -> JobPage | BriefPage:
    filters = await _filters(request, query)
    if "ids" in filters and query.topic is not None:
        # A job that `text` names may lie outside the topic, whose jobs the caller may manage.
        checks_each = request.caller.kind != "superuser"
    jobs = request.app.jobs
    if query.brief and not checks_each:
        listed = await jobs.abriefs(most=MOST_LOOKED, counts=query.count, **filters)
        return BriefPage(items=[brief_shown(each) for each in listed.items], **_places(listed))
    visible = VisibleJobs(request, filters, checks_each=checks_each)
    await visible.fill(counts=query.count and not checks_each)
    found = visible.listed()
    if not query.brief:
        turns, items = Turns(), list[JobShown]()
        for job in found.items:
            items.append(job_shown(job, request.redact))
            await turns.next()
        return JobPage(items=items, **_places(found))
    briefs = (await jobs.abriefs(ids=found.items, order=query.order)).items if found.items else []
    return BriefPage(items=[brief_shown(each) for each in briefs], **_places(found))


def _places(listed: Listed[Any]) -> dict[str, Any]:
    total = listed.total
    return {
        "next": None if listed.next is None else str(listed.next),
        "prev": None if listed.prev is None else str(listed.prev),
        "looked_to": listed.looked_to,
        "total": None if total is None else TotalShown(count=total.count, exact=total.exact),
    }


class VisibleJobs:
    """Reads jobs until the page is full, a bound is reached, or no more follow."""

    def __init__(self, request: Request, filters: Filters, *, checks_each: bool) -> None:
        self._request = request
        self._filters = filters
        self._page = page(filters)
        self._checks_each = checks_each
        self._shown: list[Job] = []
        self._size = 0
        self._skip = self._page.offset
        self._edge: int | None = None  # the number up to which it has looked
        self._first: Listed[Job] | None = None
        self._looked_to: datetime | None = None

    async def fill(self, *, counts: bool) -> None:
        """Read the jobs of one page."""
        jobs_read = bytes_read = looked = 0
        edge: int | None = None
        turns, is_backward = Turns(), self._page.is_backward
        while True:
            found = await self._read(edge, MOST_LOOKED - looked, counts=counts)
            self._first, counts = self._first or found, False
            for job in reversed(found.items) if is_backward else found.items:
                if self._is_full(job):
                    self._edge = edge
                    return
                self._add(job)
                edge = job.seq
                bytes_read += _size(job)
                await turns.next()
            jobs_read += len(found.items)
            looked += found.looked
            edge = found.prev if is_backward else found.next
            if edge is None:
                return
            if (
                found.looked_to is not None
                or looked >= MOST_LOOKED
                or jobs_read >= MOST_READ
                or bytes_read >= MOST_BYTES_READ
            ):
                self._edge, self._looked_to = edge, found.looked_to
                return

    def listed(self) -> Listed[Job]:
        """Return the page."""
        first, jobs = self._first, self._shown
        ahead, behind = self._edge, None
        if first is not None:
            behind = first.next if self._page.is_backward else first.prev
        if self._page.is_backward:
            jobs = jobs[::-1]
            ahead, behind = behind, ahead
        return Listed(
            items=jobs,
            next=ahead,
            prev=behind,
            looked_to=self._looked_to,
            total=first.total if first else None,
        )

    async def _read(self, edge: int | None, most: int, *, counts: bool) -> Listed[Job]:
        """Read on from an edge; one more job than fits shows whether more follow."""
        filters = self._filters.copy()
        if self._checks_each:
            filters["limit"], filters["offset"] = AT_ONCE, 0
        else:
            filters["limit"] = min(AT_ONCE, self._page.limit - len(self._shown) + 1)
            filters["offset"], self._skip = self._skip, 0  # the database skips them
        if edge is not None:
            filters["before" if self._page.goes_down else "after"] = edge
        return await self._request.app.jobs.apage(most=most, counts=counts, **filters)

    def _is_full(self, job: Job) -> bool:
        if len(self._shown) >= self._page.limit:
            return True
        return bool(self._shown) and self._size + _size(job) > MOST_BYTES

    def _add(self, job: Job) -> None:
        if self._checks_each and not self._request.may("manage", job.topic, job):
            return
        if self._skip:
            self._skip -= 1
            return
        self._shown.append(job)
        self._size += _size(job)


async def _filters(request: Request, query: ListInput) -> Filters:
    """Return the filters of a query; the id or the number of a job as a text is that job."""
    status = query.status
    if query.state is not None:
        if status not in {None, query.state, STATUS[query.state]}:
            msg = f"no job has status {status!r} and state {str(query.state)!r}; give one of them"
            raise Invalid(msg)
        status = query.state
    named = await _named(request, query.text)
    if named is not None:
        return Filters(ids=named)
    filters = Filters(
        topic=query.topic,
        status=status,
        key=query.key,
        text=query.text,
        error=query.error,
        worker=query.worker,
        since=query.since,
        until=query.until,
        order=query.order,
        before=query.before,
        after=query.after,
        limit=query.limit,
        offset=query.offset,
    )
    if query.ids is not None:
        filters["ids"] = ids = [_id(text) for text in query.ids.split(",")]
        if len(ids) > MOST_IDS:
            msg = f"`ids` has {len(ids)} ids; at most {MOST_IDS} are allowed"
            raise Invalid(msg)
    return filters


async def _named(request: Request, text: str | None) -> list[UUID] | None:
    """Return the id of the job that a text names, if it is an id, or the number of a job."""
    if text is None:
        return None
    with contextlib.suppress(msgspec.ValidationError):
        return [msgspec.convert(text.strip().lower(), UUID)]
    if re.fullmatch("[0-9]{1,18}", text.strip()):
        with contextlib.suppress(NotFound):
            return [(await request.app.jobs.anumbered(int(text))).id]
    return None


def _id(text: str) -> UUID:
    try:
        return msgspec.convert(text, UUID)
    except msgspec.ValidationError:
        msg = f"{text[:100]!r} in `ids` is not the id of a job"
        raise Invalid(msg) from None


def _size(job: Job) -> int:
    return len(job.body) + len(job.result_body or "")
