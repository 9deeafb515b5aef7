"""Pages of jobs, within a bound of what one call looks at."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from towpath.model.instants import as_datetime
from towpath.model.job import Job
from towpath.model.pages import JobBrief, Listed, Order, Total
from towpath.store import listing
from towpath.store.listing import LAST, Page, Walk

if TYPE_CHECKING:
    from towpath.app.app import App

T = TypeVar("T")

MOST_LOOKED: Final = 50_000
"""At so many jobs one page looks; a list of which few jobs fit goes on in the next."""

LONGEST: Final = 10.0  # seconds; with long payloads a page looks at fewer jobs


class Listing:
    """Walks through lists of jobs. A caller that is cancelled ends the walk at the next window."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def apage(self, page: Page, most: int, *, counts: bool) -> Listed[Job]:
        """Read a page of jobs."""
        walk = await self._awalk(page, most, counts=counts)
        jobs = await self._app.arun(listing.read(shown(walk), page))
        return await self._alisted(walk, jobs, counts=counts)

    async def abriefs(self, page: Page, most: int, *, counts: bool) -> Listed[JobBrief]:
        """Read what a list shows of a page of jobs."""
        walk = await self._awalk(page, most, counts=counts)
        redact = self._app.settings.redact
        briefs = await self._app.arun(listing.briefs(shown(walk), redact, page))
        return await self._alisted(walk, briefs, counts=counts)

    async def _awalk(self, page: Page, most: int, *, counts: bool) -> Walk:
        """Look until the page is full, the bound is reached, or nothing is left."""
        wanted = most if counts and _by_walk(page) else page.offset + page.limit + 1
        until = time.monotonic() + LONGEST
        walk = await self._app.arun(listing.begin(page))
        while not walk.ended and len(walk.found) < wanted and walk.looked < most:
            walk = await self._app.arun(listing.go_on(walk, most - walk.looked, wanted))
            if time.monotonic() > until:
                break
        return walk

    async def _alisted(self, walk: Walk, items: Sequence[T], *, counts: bool) -> Listed[T]:
        page, numbers = walk.page, shown(walk)
        fits = len(walk.found) <= page.offset + page.limit  # no job is found behind the page
        looked_to: int | None = None
        if fits and not walk.ended:
            looked_to = await self._app.arun(listing.looked_to(walk))
        total: Total | None = None
        if counts and _by_walk(page):
            total = Total(len(walk.found), walk.ended)
        elif counts and page.is_plain:
            total = await self._app.arun(listing.count(page))
        ahead, behind = _on(walk, numbers), _back(page, numbers)
        if page.is_backward:
            ahead, behind = behind, ahead
        return Listed(
            items=list(items),
            next=ahead,
            prev=behind,
            looked=walk.looked,
            looked_to=None if looked_to is None else as_datetime(looked_to),
            total=total,
        )

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def page(self, page: Page, most: int, *, counts: bool) -> Listed[Job]:
        """Read a page of jobs."""
        walk = self._walk(page, most, counts=counts)
        jobs = self._app.run(listing.read(shown(walk), page))
        return self._listed(walk, jobs, counts=counts)

    def briefs(self, page: Page, most: int, *, counts: bool) -> Listed[JobBrief]:
        """Read what a list shows of a page of jobs."""
        walk = self._walk(page, most, counts=counts)
        redact = self._app.settings.redact
        briefs = self._app.run(listing.briefs(shown(walk), redact, page))
        return self._listed(walk, briefs, counts=counts)

    def _walk(self, page: Page, most: int, *, counts: bool) -> Walk:
        """Look until the page is full, the bound is reached, or nothing is left."""
        wanted = most if counts and _by_walk(page) else page.offset + page.limit + 1
        until = time.monotonic() + LONGEST
        walk = self._app.run(listing.begin(page))
        while not walk.ended and len(walk.found) < wanted and (walk.looked < most):
            walk = self._app.run(listing.go_on(walk, most - walk.looked, wanted))
            if time.monotonic() > until:
                break
        return walk

    def _listed(self, walk: Walk, items: Sequence[T], *, counts: bool) -> Listed[T]:
        page, numbers = (walk.page, shown(walk))
        fits = len(walk.found) <= page.offset + page.limit
        looked_to: int | None = None
        if fits and (not walk.ended):
            looked_to = self._app.run(listing.looked_to(walk))
        total: Total | None = None
        if counts and _by_walk(page):
            total = Total(len(walk.found), walk.ended)
        elif counts and page.is_plain:
            total = self._app.run(listing.count(page))
        ahead, behind = (_on(walk, numbers), _back(page, numbers))
        if page.is_backward:
            ahead, behind = (behind, ahead)
        return Listed(
            items=list(items),
            next=ahead,
            prev=behind,
            looked=walk.looked,
            looked_to=None if looked_to is None else as_datetime(looked_to),
            total=total,
        )


def shown(walk: Walk) -> Sequence[int]:
    """Return the numbers of the jobs that a page shows, in its order."""
    page = walk.page
    numbers = walk.found[page.offset : page.offset + page.limit]
    return numbers[::-1] if page.is_backward else numbers


def _by_walk(page: Page) -> bool:
    """Say whether a walk from the beginning counts what fits, as tickets do not tell it."""
    return not page.is_plain and page.start is None


def _on(walk: Walk, numbers: Sequence[int]) -> int | None:
    """Return the number behind which the walk goes on; None if nothing is left."""
    page = walk.page
    if len(walk.found) > page.offset + page.limit:
        return numbers[0 if page.is_backward else -1]
    return None if walk.ended else walk.edge


def _back(page: Page, numbers: Sequence[int]) -> int | None:
    """Return the number before which the walk began; None if that was the beginning."""
    if page.start is None or page.order is Order.NEXT:
        return None
    if numbers:
        return numbers[-1 if page.is_backward else 0]
    step = 1 if page.goes_down else -1
    return min(max(page.start - step, 1), LAST)
