"""The verbs of bulk acts."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack
from uuid import UUID

from towpath.app.checks import JobRef, at_least_one, job_id, key_of, refuse_unknown, seq_of
from towpath.errors import Invalid
from towpath.model.bulk import Bulk, BulkPreview, BulkVerb, JobChoice
from towpath.model.ids import uuid7
from towpath.model.instants import Duration, instant, microseconds
from towpath.model.payload import clean_text
from towpath.model.states import State, Status
from towpath.model.topics import checked
from towpath.store import bulk

if TYPE_CHECKING:
    from towpath.app.app import App

MOST_IDS: Final = 1_000
MOST_TEXT: Final = 255  # characters
MOST_LISTED: Final = 1_000


class Choice(TypedDict, total=False):
    """Which jobs a bulk act is for: ids, or a filter."""

    ids: Sequence[JobRef] | None  # these, and no filter
    topic: str | None  # of this topic
    state: State | str | None  # such as buried
    status: Status | str | None  # such as failed
    key: str | None  # with this key
    text: str | None  # with this text in the payload, the key or the last error
    error: str | None  # with this text in the last error
    since: datetime | None  # enqueued then or later
    until: datetime | None  # enqueued before


class BulkActs:
    """One verb for many jobs: preview it, begin it after a delay, stop it."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def apreview(
        self, verb: BulkVerb | str, *, up_to: int | None = None, **choice: Unpack[Choice]
    ) -> BulkPreview:
        """Count the jobs that a bulk act would cover, and show some.

        It looks at up to 50,000 jobs, the newest first.
        """
        number = None if up_to is None else seq_of(up_to)
        return await self._app.arun(bulk.preview(_verb(verb), _choice(verb, choice), number))

    async def abegin(
        self,
        verb: BulkVerb | str,
        *,
        up_to: int,
        by: str = "",
        delay: Duration = 10,
        **choice: Unpack[Choice],
    ) -> Bulk:
        """Do something to many jobs, after a delay in which `stop` undoes it.

        It covers jobs up to the number `up_to`, as the preview gives it, and none that does not
        exist yet; with ids, these. Upkeep carries it out, in any process. A job that is refused
        stays as it is, and is reported.
        """
        chosen = _choice(verb, choice)
        seen = await self._app.arun(bulk.preview(_verb(verb), chosen, seq_of(up_to)))
        new = bulk.NewBulk(
            id=uuid7(),
            verb=_verb(verb),
            choice=chosen,
            up_to=seen.up_to,
            by=by,
            delay=microseconds(delay, "delay"),
            count=seen.count,
            exact=seen.exact,
        )
        return await self._app.arun(bulk.make(new))

    async def aget(self, id: UUID | str) -> Bulk:
        """Read a bulk act."""
        return await self._app.arun(bulk.get(job_id(id)))

    async def alist(self, limit: int = 50) -> list[Bulk]:
        """Read bulk acts, the newest first; ended ones are kept for 30 days."""
        return await self._app.arun(bulk.list_acts(min(at_least_one(limit, "limit"), MOST_LISTED)))

    async def astop(self, id: UUID | str) -> Bulk:
        """End a bulk act where it is; before it begins, that undoes it."""
        return await self._app.arun(bulk.stop(job_id(id)))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def preview(
        self, verb: BulkVerb | str, *, up_to: int | None = None, **choice: Unpack[Choice]
    ) -> BulkPreview:
        """Count the jobs that a bulk act would cover, and show some.

        It looks at up to 50,000 jobs, the newest first.
        """
        number = None if up_to is None else seq_of(up_to)
        return self._app.run(bulk.preview(_verb(verb), _choice(verb, choice), number))

    def begin(
        self,
        verb: BulkVerb | str,
        *,
        up_to: int,
        by: str = "",
        delay: Duration = 10,
        **choice: Unpack[Choice],
    ) -> Bulk:
        """Do something to many jobs, after a delay in which `stop` undoes it.

        It covers jobs up to the number `up_to`, as the preview gives it, and none that does not
        exist yet; with ids, these. Upkeep carries it out, in any process. A job that is refused
        stays as it is, and is reported.
        """
        chosen = _choice(verb, choice)
        seen = self._app.run(bulk.preview(_verb(verb), chosen, seq_of(up_to)))
        new = bulk.NewBulk(
            id=uuid7(),
            verb=_verb(verb),
            choice=chosen,
            up_to=seen.up_to,
            by=by,
            delay=microseconds(delay, "delay"),
            count=seen.count,
            exact=seen.exact,
        )
        return self._app.run(bulk.make(new))

    def get(self, id: UUID | str) -> Bulk:
        """Read a bulk act."""
        return self._app.run(bulk.get(job_id(id)))

    def list(self, limit: int = 50) -> list[Bulk]:
        """Read bulk acts, the newest first; ended ones are kept for 30 days."""
        return self._app.run(bulk.list_acts(min(at_least_one(limit, "limit"), MOST_LISTED)))

    def stop(self, id: UUID | str) -> Bulk:
        """End a bulk act where it is; before it begins, that undoes it."""
        return self._app.run(bulk.stop(job_id(id)))


def _verb(verb: BulkVerb | str) -> BulkVerb:
    try:
        return BulkVerb(verb)
    except ValueError:
        msg = f"unknown verb {verb!r}; known verbs: {', '.join(BulkVerb)}"
        raise Invalid(msg) from None


def _choice(verb: BulkVerb | str, given: Choice) -> JobChoice:
    """Check which jobs are chosen, and that the verb is for some of them."""
    refuse_unknown(given.keys(), Choice.__optional_keys__)
    named: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not named:
        msg = "give `ids`, or a filter with at least one part, such as `topic`"
        raise Invalid(msg)
    if "ids" in named:
        return JobChoice(ids=_ids(named.pop("ids"), named))
    chosen = JobChoice(**{name: _READ[name](value) for name, value in named.items()})
    chosen.states(_verb(verb))
    return chosen


def _ids(given: Sequence[JobRef], beside: Mapping[str, object]) -> list[UUID]:
    if beside:
        msg = f"give `ids` or a filter, not both; `{min(beside)}` is part of a filter"
        raise Invalid(msg)
    ids = list(dict.fromkeys(map(job_id, given)))
    if not 1 <= len(ids) <= MOST_IDS:
        msg = f"`ids` has {len(ids)} ids; give 1 to {MOST_IDS:,}, or a filter"
        raise Invalid(msg)
    return ids


def _known(kind: type[State] | type[Status], name: str, value: Any) -> State | Status:
    try:
        return kind(value)
    except ValueError:
        msg = f"unknown {name} {value!r}; known: {', '.join(kind)}"
        raise Invalid(msg) from None


def _search(name: str, text: str) -> str:
    if not text:  # it would be in every job
        msg = f"`{name}` is empty; give the text to look for, or leave `{name}` out"
        raise Invalid(msg)
    return clean_text(text, MOST_TEXT)


def _time(name: str, value: datetime) -> datetime:
    instant(value, name)
    return value


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "topic": checked,
    "state": partial(_known, State, "state"),
    "status": partial(_known, Status, "status"),
    "key": key_of,
    "text": partial(_search, "text"),
    "error": partial(_search, "error"),
    "since": partial(_time, "since"),
    "until": partial(_time, "until"),
}
