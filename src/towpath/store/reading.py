"""Reading the log: what a channel has behind a cursor, or why the reader cannot go on from there.

A read tells the channel and its events by one snapshot, so a reader never sees a hole: it gets all
events up to the cursor of its page, or CursorReset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import CursorReset, NotFound
from towpath.model.channels import job_of
from towpath.model.cursor import START, Cursor, writer
from towpath.model.durable import JSON
from towpath.model.event import EventPage
from towpath.model.states import State
from towpath.operation import Answer, Batch, Mode, Operation, Steps
from towpath.statement import Statements, pairs, rows
from towpath.store.event_rows import ReadRow, event_from
from towpath.store.events import GONE, gone
from towpath.store.rows import uuid_from

DELETED: Final = "deleted"
EXPIRED: Final = "expired"
ENDED: Final[Mapping[str, str]] = {  # how the stream of a job has ended that lies there
    State.COMPLETED: "completed",
    State.BURIED: "failed",
    State.CANCELLED: "cancelled",
}
ENDS: Final = frozenset({*ENDED.values(), EXPIRED})


class SilentJob(NamedTuple):
    """The job of a stream that has no channel."""

    id: Any
    state: str
    expired: bool | int


class sql(Statements):
    """The statements of reading.sql."""

    read = pairs("nth", ReadRow)
    read_fork = pairs("upto", ReadRow)
    moved = rows(str)
    states_of = rows(SilentJob)


class ReadFrom(Struct, frozen=True):
    """Which events to read."""

    channel: str
    after: Cursor = START
    most: int = 1_000
    most_bytes: int = 2**20  # the page ends with the event that exceeds this


class Found(Struct, frozen=True):
    """What a read has found."""

    page: Answer[EventPage]
    posted: bool = False  # events wait for their numbers: place them and read again
    media: str | None = None  # None: there is no stream
    renews: bool = False  # to read it prolongs its life
    ttl: int | None = None

    @property
    def is_current(self) -> bool:
        """Whether there was no event with a number behind the page."""
        return isinstance(self.page, EventPage) and self.page.is_current


def read(reads: Sequence[ReadFrom]) -> Operation[list[Found]]:
    """Read events behind cursors, oldest first."""

    def steps() -> Steps[list[Found]]:
        found = yield from _read(reads)
        absent = [
            (nth, job)
            for nth, each in enumerate(reads)
            if found[nth][0].channel is None and (job := job_of(each.channel)) is not None
        ]
        states = (yield from _states(job for _, job in absent)) if absent else {}
        # The job may have spoken and ended between the two statements: look again.
        over = [nth for nth, job in absent if states.get(job) in ENDS]
        if over:
            again = yield from _read([reads[nth] for nth in over])
            found |= {nth: again[place] for place, nth in enumerate(over)}
        jobs = dict(absent)
        answers: list[Found] = []
        for nth, each in enumerate(reads):
            first = found[nth][0]
            if nth in jobs and first.channel is None:
                answers.append(_of_silent_job(each, jobs[nth], states.get(jobs[nth])))
            elif _is_inherited(each.after, first):
                answers.append((yield from _read_fork(each)))
            else:
                answers.append(_found(each, found[nth]))
        return answers

    return Operation("read", steps, Mode.READ, autocommit=True, batch=Batch(reads, read))


def moved(cursors: Mapping[str, str], *, silent: bool) -> Operation[set[str]]:
    """Name the channels of which a read behind these cursors would tell something new.

    A job that has said nothing has no channel. Its end is found if `silent`, at a higher price.
    """

    def steps() -> Steps[set[str]]:
        text, start = msgspec.json.encode(cursors).decode(), str(START)
        found = set((yield from sql.moved(cursors=text, start=start)))
        if silent:
            unborn = [name for name, cursor in cursors.items() if cursor == start]
            found |= yield from _over(name for name in unborn if name not in found)
        return found

    return Operation("moved", steps, Mode.READ, autocommit=True)


def _over(names: Iterable[str]) -> Steps[set[str]]:
    """Name those of these channels that are of jobs which have ended, or are gone."""
    jobs = {name: job for name in names if (job := job_of(name)) is not None}
    states = (yield from _states(jobs.values())) if jobs else {}
    return {name for name, job in jobs.items() if states.get(job, DELETED) in {DELETED, *ENDS}}


def _is_inherited(after: Cursor, row: ReadRow) -> bool:
    """Say whether a fork is read from before its own events, which are those of its source."""
    return row.fork_at is not None and (after.channel != row.channel or after.seq < row.fork_at)


def _read_fork(each: ReadFrom) -> Steps[Found]:
    found = yield from sql.read_fork(
        name=each.channel,
        channel=each.after.channel,
        after=each.after.seq,
        most=each.most,
        most_bytes=each.most_bytes,
    )
    if not found:  # it was deleted just now
        return Found(_reset(each, "channel", "was deleted", START, START))
    # A cursor of the source fits, up to where the fork begins.
    upto, first = found[0]
    after = each.after
    if first.channel is not None and after.seq <= upto:
        after = after._replace(channel=first.channel)
    return _found(msgspec.structs.replace(each, after=after), [row for _, row in found])


def _read(reads: Sequence[ReadFrom]) -> Steps[dict[int, list[ReadRow]]]:
    items = [
        {
            "nth": nth,
            "name": each.channel,
            "after": each.after.seq,
            "most": each.most,
            "most_bytes": each.most_bytes,
        }
        for nth, each in enumerate(reads)
    ]
    found: dict[int, list[ReadRow]] = {}
    for nth, row in (yield from sql.read(items)):
        found.setdefault(nth, []).append(row)
    return found


def _states(jobs: Iterable[UUID]) -> Steps[dict[UUID, str]]:
    """Return how these jobs ended, or the states of those that have not."""
    found = yield from sql.states_of([{"id": id} for id in dict.fromkeys(jobs)])
    return {
        uuid_from(row.id): EXPIRED if row.expired else ENDED.get(row.state, row.state)
        for row in found
    }


def _of_silent_job(each: ReadFrom, job: UUID, state: str | None) -> Found:
    """Return the page of a job that has said nothing: its stream ends with it."""
    if state is not None:
        if each.after != START:
            msg = "begins again, as its job does"
            return Found(_reset(each, "channel", msg, START, START), media=JSON)
        return Found(_empty(each, state if state in ENDS else None), media=JSON)
    if each.after == START:
        return Found(NotFound(f"there is no job {job}"))
    return Found(_empty(each, DELETED), media=JSON)


def _empty(each: ReadFrom, ended: str | None = None) -> EventPage:
    at = str(each.after)
    return EventPage(events=[], after=at, cursor=at, oldest=at, head=at, ended=ended)


def _found(each: ReadFrom, rows: list[ReadRow]) -> Found:
    first = rows[0]
    if first.channel is None or first.head is None or first.low is None:
        page: Answer[EventPage] = _empty(each)
        if each.after != START:
            page = _reset(each, "channel", "was deleted", START, START)
        return Found(page, bool(first.posted))
    if first.ended == GONE:
        return Found(gone(each.channel))
    at = partial(Cursor, first.era, first.channel)
    oldest, head = at(first.low), at(first.head)
    if reason := _why_reset(each.after, oldest, head):
        return Found(_reset(each, *reason, oldest, head), bool(first.posted), first.media)
    text = writer(first.era, first.channel)
    events = [event_from(each.channel, text(row.seq), row) for row in rows if row.seq is not None]
    # The beginning may be behind the first number.
    after = str(oldest if each.after == START else each.after)
    cursor = (events[-1].cursor if events else None) or after
    page = EventPage(
        events=events,
        after=after,
        cursor=cursor,
        oldest=str(oldest),
        head=str(head),
        ended=first.ended if cursor == str(head) else None,
    )
    return Found(page, bool(first.posted), first.media, _renews(first), first.ttl)


def _renews(row: ReadRow) -> bool:
    """Say whether a read prolongs the life of a channel enough to be worth a write."""
    if row.ttl is None or row.expires_at is None:
        return False
    return row.expires_at - row.now < row.ttl - row.ttl // 20


def _why_reset(after: Cursor, oldest: Cursor, head: Cursor) -> tuple[str, str] | None:
    if after == START:
        return None
    if after.era != head.era:
        return "era", "was restored from a backup"
    if after.channel != head.channel:
        return "channel", "was deleted and made again"
    if after.seq < oldest.seq:
        return "retention", "has deleted the events behind this cursor"
    if after.seq > head.seq:
        return "ahead", "has not so many events"
    return None


def _reset(each: ReadFrom, reason: str, why: str, oldest: Cursor, head: Cursor) -> CursorReset:
    msg = f"channel {each.channel!r} {why}; read again from `oldest` or from `head`"
    return CursorReset(msg, reason, str(oldest), str(head))


def refusal(channel: str, after: Cursor, oldest: Cursor, head: Cursor) -> CursorReset | None:
    """Return why a reader cannot go on from a cursor, if it cannot."""
    reason = _why_reset(after, oldest, head)
    return _reset(ReadFrom(channel), *reason, oldest, head) if reason else None
