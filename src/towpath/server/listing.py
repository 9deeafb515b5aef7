"""Lists of jobs over HTTP: only jobs that the caller may manage, in pages of bounded size."""

from typing import Any, Final, Protocol

from towpath.model.job import Job
from towpath.server.bodies import Turns
from towpath.server.outputs import JobPage, JobShown, job_shown
from towpath.server.request import Request

AT_ONCE: Final = 50  # jobs per query
MOST_READ: Final = 2_000  # jobs per request, hidden ones included
MOST_BYTES_READ: Final = 64 * 2**20
MOST_BYTES: Final = 8 * 2**20  # of payloads and results in one page


class JobFilter(Protocol):
    """The filter of a list of jobs."""

    topic: Any
    status: Any
    key: Any
    text: Any
    limit: int
    offset: int
    before: Any


async def jobs_for(request: Request, query: JobFilter) -> JobPage:
    """Read a page of the jobs that the caller may manage, from the end of the last page."""
    checks_each = request.depends_on_job("manage", query.topic)
    if checks_each:
        request.require_some("manage")
    else:
        request.require("manage", query.topic)
    page = VisibleJobs(request, query, checks_each=checks_each)
    await page.fill()
    return JobPage(items=page.shown, next=page.next)


class VisibleJobs:
    """Reads jobs until the page is full, a bound is reached, or no more follow."""

    def __init__(self, request: Request, query: JobFilter, *, checks_each: bool) -> None:
        self.shown: list[JobShown] = []
        self.next: str | None = None
        self._request = request
        self._query = query
        self._checks_each = checks_each
        self._skip: int = query.offset
        self._size = 0

    async def fill(self) -> None:
        """Read the jobs of one page."""
        before: int | None = self._query.before
        jobs_read = bytes_read = 0
        turns = Turns()
        while True:
            wanted = self._wanted()
            jobs = await self._read(before, wanted)
            for job in jobs:
                if self._is_full(job):
                    self.next = str(before)
                    return
                self._add(job)
                before = job.seq
                bytes_read += _size(job)
                await turns.next()
            jobs_read += len(jobs)
            if len(jobs) < wanted:
                return
            if jobs_read >= MOST_READ or bytes_read >= MOST_BYTES_READ:
                self.next = str(before)
                return

    def _wanted(self) -> int:
        """Return how many jobs to read: one more than fit shows whether more follow."""
        if self._checks_each:
            return AT_ONCE
        return min(AT_ONCE, self._query.limit - len(self.shown) + 1)

    async def _read(self, before: int | None, limit: int) -> list[Job]:
        query = self._query
        offset = 0
        if not self._checks_each:
            offset, self._skip = self._skip, 0  # the database skips them
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

    def _add(self, job: Job) -> None:
        if self._checks_each and not self._request.may("manage", job.topic, job):
            return
        if self._skip:
            self._skip -= 1
            return
        self.shown.append(job_shown(job))
        self._size += _size(job)


def _size(job: Job) -> int:
    return len(job.body) + len(job.result_body or "")
