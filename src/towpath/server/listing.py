"""Lists of jobs over HTTP: only those that the caller may see, and never too much at once."""

from typing import Any, Final, Protocol

from towpath.model.job import Job
from towpath.server.bodies import Turns
from towpath.server.outputs import JobPage, JobShown, job_shown
from towpath.server.request import Request

AT_ONCE: Final = 50  # jobs that are read together
MOST_LOOKED_AT: Final = 2_000  # jobs, where some may be hidden
MOST_BYTES_LOOKED_AT: Final = 64 * 2**20
MOST_BYTES: Final = 8 * 2**20  # of payloads and results in one page


class JobFilter(Protocol):
    """Which jobs are wanted."""

    topic: Any
    status: Any
    key: Any
    text: Any
    limit: int
    offset: int
    before: Any


async def jobs_for(request: Request, query: JobFilter) -> JobPage:
    """Read a page of what the caller may see, from where the page before ended."""
    each = request.judges_each("manage", query.topic)
    if each:
        request.require_some("manage")
    else:
        request.require("manage", query.topic)
    page = VisibleJobs(request, query, judges_each=each)
    await page.fill()
    return JobPage(items=page.shown, next=page.next)


class VisibleJobs:
    """Reads jobs until it is full, has looked at enough, or there are no more."""

    def __init__(self, request: Request, query: JobFilter, *, judges_each: bool) -> None:
        self.shown: list[JobShown] = []
        self.next: str | None = None
        self._request = request
        self._query = query
        self._judges_each = judges_each
        self._skip: int = query.offset
        self._size = 0

    async def fill(self) -> None:
        """Read as much as a page may hold."""
        before: int | None = self._query.before
        looked_at = bytes_looked_at = 0
        turns = Turns()
        while True:
            wanted = self._wanted()
            jobs = await self._read(before, wanted)
            for job in jobs:
                if self._is_full(job):
                    self.next = str(before)
                    return
                self._take(job)
                before = job.seq
                bytes_looked_at += _size(job)
                await turns.next()
            looked_at += len(jobs)
            if len(jobs) < wanted:
                return
            if looked_at >= MOST_LOOKED_AT or bytes_looked_at >= MOST_BYTES_LOOKED_AT:
                self.next = str(before)
                return

    def _wanted(self) -> int:
        """Say how many to read: one more than there is room for tells whether more follow."""
        if self._judges_each:
            return AT_ONCE
        return min(AT_ONCE, self._query.limit - len(self.shown) + 1)

    async def _read(self, before: int | None, limit: int) -> list[Job]:
        query = self._query
        offset = 0
        if not self._judges_each:
            offset, self._skip = self._skip, 0  # the database leaves them out
        return await self._request.app.jobs.alist(
            topic=query.topic,
            status=query.status,
            key=query.key,
            text=query.text,
            before=before,
            limit=limit,
            offset=offset,
        )

    def _is_full(self, job: Job) -> bool:
        if len(self.shown) >= self._query.limit:
            return True
        return bool(self.shown) and self._size + _size(job) > MOST_BYTES

    def _take(self, job: Job) -> None:
        if self._judges_each and not self._request.may("manage", job.topic, job):
            return
        if self._skip:
            self._skip -= 1
            return
        self.shown.append(job_shown(job))
        self._size += _size(job)


def _size(job: Job) -> int:
    return len(job.body) + len(job.result_body or "")
