"""Lists of jobs: pages, counts, and the order of reservation.

A list is a walk over the numbers of jobs, a window at a time. Each window is one statement that
reads no more rows than it has. So a list with a rare topic or text can stop after any window, and
go on later from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from towpath.model.instants import as_datetime, as_timedelta
from towpath.model.job import Job
from towpath.model.pages import (
    MOST_ERROR,
    MOST_PREVIEWED,
    JobBrief,
    Order,
    Total,
    preview_of,
    shortened,
)
from towpath.model.states import STATUS, State, Status
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statement, Statements, rows
from towpath.store.lookup import containing
from towpath.store.rows import Located, known_options, listed_from, uuid_from

FIRST_WINDOW: Final = 200  # rows, where not each of them fits
MOST_WINDOW: Final = 5_000
GROWTH: Final = 4
FEW: Final = 10_000  # waiting jobs, or jobs of one key, that are all looked at
MOST_COUNTED: Final = 100_000
SLACK: Final = 60_000_000  # microseconds by which a job may be older than one of a lower number
LAST: Final = 2**63 - 1


class BriefRow(NamedTuple):
    """What a list shows of a job."""

    seq: int
    id: UUID | bytes | str
    topic: str
    state: str
    priority: int
    key: str | None
    encoding: str
    options: str | None
    created_at: int
    run_at: int
    finished_at: int | None
    duration: int | None
    epoch: int
    retries: int
    crashes: int
    cancel_requested: bool | int
    progress: float | None
    progress_message: str | None
    session: int | None
    worker: str | None
    last_error: str | None
    payload: str | None
    size: int


class FoundRow(NamedTuple):
    """A job that fits, if any does, beside the window of numbers that was looked at."""

    seq: int | None
    low: int | None
    high: int | None
    number: int


class EndsRow(NamedTuple):
    """The first and the last number."""

    low: int | None
    high: int | None


class CreatedRow(NamedTuple):
    """When a job was enqueued."""

    seq: int
    created_at: int


class CountRow(NamedTuple):
    """How many of the rows that were looked at fit."""

    fitting: int
    looked: int


class LineRow(NamedTuple):
    """A job in the line of its topic."""

    place: int
    seq: int


class sql(Statements):
    """The statements of listing.sql."""

    look_any = rows(FoundRow)
    search_any = rows(FoundRow)
    look_waiting = rows(FoundRow)
    look_few_waiting = rows(FoundRow)
    look_delayed = rows(FoundRow)
    look_blocked = rows(FoundRow)
    look_reserved = rows(FoundRow)
    look_buried = rows(FoundRow)
    look_completed = rows(FoundRow)
    look_cancelled = rows(FoundRow)
    look_keyed = rows(FoundRow)
    count_few_waiting = rows(int)
    count_keyed = rows(int)
    count_ready = rows(CountRow)
    count_delayed = rows(CountRow)
    count_blocked = rows(CountRow)
    count_buried = rows(CountRow)
    count_reserved = rows(CountRow)
    count_completed = rows(CountRow)
    count_cancelled = rows(CountRow)
    line_ready = rows(LineRow)
    line_delayed = rows(LineRow)
    line_buried = rows(LineRow)
    place_ready = rows(int)
    place_delayed = rows(int)
    place_buried = rows(int)
    topics = rows(str)
    numbers_of = rows(int)
    ends = rows(EndsRow)
    created_from = rows(CreatedRow)
    read_jobs = rows(Located)
    read_briefs = rows(BriefRow)


class Page(Struct, frozen=True, kw_only=True):
    """Which jobs to list, and which part of the list."""

    topic: str | None = None
    status: Status | State | None = None
    key: str | None = None
    text: str | None = None  # in the payload, the key or the last error
    error: str | None = None  # in the last error
    worker: str | None = None  # the name of the worker that has it now
    since: int | None = None  # enqueued then or later
    until: int | None = None  # enqueued before
    ids: Sequence[UUID] | None = None  # these jobs, whatever else is asked
    before: int | None = None  # with smaller numbers
    after: int | None = None  # with larger numbers
    order: Order = Order.NEWEST
    limit: int = 50
    offset: int = 0

    @property
    def is_backward(self) -> bool:
        """Whether it is the page before a number, so that the walk goes against the order."""
        ahead, behind = self.before, self.after
        if self.order is Order.OLDEST:
            ahead, behind = behind, ahead
        return ahead is None and behind is not None

    @property
    def goes_down(self) -> bool:
        """Whether the walk goes from large numbers to small ones."""
        return (self.order is Order.OLDEST) == self.is_backward

    @property
    def start(self) -> int | None:
        """The number at which the walk begins, if one was given."""
        return self.before if self.goes_down else self.after

    @property
    def is_plain(self) -> bool:
        """Whether the states and topics of tickets tell all that it asks for."""
        return self.worker is None and not self.is_deep

    @property
    def is_deep(self) -> bool:
        """Whether it asks for more than tickets know."""
        asked = (self.key, self.text, self.error, self.since, self.until, self.ids)
        return any(each is not None for each in asked)

    @property
    def states(self) -> frozenset[State]:
        """The states of the jobs that it asks for."""
        if self.status is None or isinstance(self.status, State):
            return frozenset(State if self.status is None else (self.status,))
        return frozenset(state for state, status in STATUS.items() if status == self.status)


class Walk(Struct, frozen=True, kw_only=True):
    """How far a list has been walked."""

    page: Page
    source: Statement[FoundRow] | None  # None: all is found
    at_once: bool  # one step looks at all there is
    filters: Mapping[str, Any]
    low: int  # what is left is above this number
    high: int  # and below this one
    window: int
    looked: int = 0  # at so many jobs
    found: tuple[int, ...] = ()  # the numbers of those that fit
    ended: bool = False  # nothing is left

    @property
    def edge(self) -> int:
        """The number up to which it has looked."""
        return self.high if self.page.goes_down else self.low


_TABLES: Final[Mapping[State, Statement[FoundRow]]] = {
    State.DELAYED: sql.look_delayed,
    State.BLOCKED: sql.look_blocked,
    State.RESERVED: sql.look_reserved,
    State.BURIED: sql.look_buried,
    State.COMPLETED: sql.look_completed,
    State.CANCELLED: sql.look_cancelled,
}
_COUNTS: Final[Mapping[State, Statement[CountRow]]] = {
    State.READY: sql.count_ready,
    State.DELAYED: sql.count_delayed,
    State.BLOCKED: sql.count_blocked,
    State.RESERVED: sql.count_reserved,
    State.BURIED: sql.count_buried,
    State.COMPLETED: sql.count_completed,
    State.CANCELLED: sql.count_cancelled,
}
LINES: Final[Mapping[State, tuple[Statement[LineRow], Statement[int]]]] = {
    State.READY: (sql.line_ready, sql.place_ready),
    State.DELAYED: (sql.line_delayed, sql.place_delayed),
    State.BURIED: (sql.line_buried, sql.place_buried),
}
"""The states whose jobs stand in a line, with what reads it, and what finds a place in it."""


def list_jobs(page: Page) -> Operation[list[Job]]:
    """Read a page of jobs; one that this version cannot read spoils no other."""

    def steps() -> Steps[list[Job]]:
        wanted = page.offset + page.limit
        walk = yield from _begin(page)
        while not walk.ended and len(walk.found) < wanted:
            walk = yield from _look(walk, MOST_WINDOW, wanted)
        numbers = walk.found[page.offset : wanted]
        return (yield from _read(numbers[::-1] if page.is_backward else numbers, page.states))

    return Operation("list_jobs", steps, Mode.SCAN, autocommit=True)


def begin(page: Page) -> Operation[Walk]:
    """Find where a list begins."""
    return Operation("begin_list", lambda: _begin(page), Mode.SCAN, autocommit=True)


def go_on(walk: Walk, most: int, wanted: int) -> Operation[Walk]:
    """Look at the next window, of at most `most` rows, until so many jobs are found in all."""
    return Operation("list_on", lambda: _look(walk, most, wanted), Mode.SCAN, autocommit=True)


def read(numbers: Sequence[int], page: Page) -> Operation[list[Job]]:
    """Read the jobs of a page that are still what it asks for, in this order."""
    return Operation("read_jobs", lambda: _read(numbers, page.states), Mode.SCAN, autocommit=True)


def briefs(
    numbers: Sequence[int], redact: str, page: Page | None = None
) -> Operation[list[JobBrief]]:
    """Read what a list shows of jobs, in this order, with the fields named by `redact` hidden."""

    def steps() -> Steps[list[JobBrief]]:
        bounds = {"most_error": MOST_ERROR + 1, "most_payload": MOST_PREVIEWED}
        found = yield from sql.read_briefs([{"seq": seq} for seq in numbers], **bounds)
        by_number = {row.seq: row for row in found}
        states = page.states if page else frozenset(State)
        return [
            _brief(row, redact)
            for row in map(by_number.get, numbers)
            if row is not None and row.state in states
        ]

    return Operation("read_briefs", steps, Mode.SCAN, autocommit=True)


def looked_to(walk: Walk) -> Operation[int | None]:
    """Say when the job was enqueued up to which a walk has looked."""

    def steps() -> Steps[int | None]:
        found = yield from sql.created_from(seq=walk.edge)
        return found[0].created_at if found else None

    return Operation("looked_to", steps, Mode.READ, autocommit=True)


def count(page: Page) -> Operation[Total]:
    """Count the jobs of a topic and a status, up to a bound for each state."""

    def steps() -> Steps[Total]:
        total, exact = 0, True
        both = {State.COMPLETED, State.CANCELLED} <= page.states  # they lie in one table
        for state in sorted(page.states - {State.CANCELLED} if both else page.states):
            asked = {"topic": page.topic, "most": MOST_COUNTED, "cancelled": both}
            [row] = yield from _COUNTS[state](**asked)
            total += int(row.fitting)
            exact = exact and row.looked < MOST_COUNTED
        return Total(total, exact)

    return Operation("count_jobs", steps, Mode.SCAN, autocommit=True)


def between(page: Page) -> Steps[tuple[int, int]]:
    """Return the two numbers between which the jobs of a page are."""
    low, high = page.after or 0, page.before or LAST
    if page.since is not None:
        low = max(low, (yield from _number_at(page.since - SLACK)) - 1)
    if page.until is not None:
        high = min(high, (yield from _number_at(page.until + SLACK)))
    return low, high


def has_few_of_key(page: Page) -> Steps[bool]:
    """Say whether so few jobs have the key of a page that all are looked at."""
    [number] = yield from sql.count_keyed(topic=page.topic, key=page.key, most=FEW + 1)
    return number <= FEW


def few_wait(page: Page) -> Steps[bool]:
    """Say whether so few jobs of a page are ready, or wait, that all are looked at."""
    pending = State.DELAYED in page.states
    [number] = yield from sql.count_few_waiting(topic=page.topic, pending=pending, most=FEW + 1)
    return number <= FEW


def _begin(page: Page) -> Steps[Walk]:
    low, high = yield from between(page)
    walk = Walk(
        page=page,
        source=None,
        at_once=True,
        filters=filters(page),
        low=low,
        high=high,
        window=page.offset + page.limit + 1,
    )
    if page.ids is not None:
        numbers = yield from sql.numbers_of([{"id": id} for id in page.ids])
        in_order = sorted(numbers, reverse=page.order is not Order.OLDEST)
        return replace(walk, found=tuple(in_order), looked=len(in_order), ended=True)
    if page.order is Order.NEXT:
        found = yield from _line(page)
        return replace(walk, found=found, looked=len(found), ended=True)
    if page.key is not None and page.worker is None and (yield from has_few_of_key(page)):
        return replace(walk, source=sql.look_keyed)
    waits = (
        page.states <= {State.READY, State.DELAYED, State.BLOCKED} and State.READY in page.states
    )
    if waits:
        if (yield from few_wait(page)):
            return replace(walk, source=sql.look_few_waiting)
        source = sql.look_waiting
    elif len(page.states) == 1:
        [state] = page.states
        source = _TABLES[state]
    else:
        source = sql.look_any if page.is_plain else sql.search_any
    is_plain = page.is_plain and page.topic is None and not waits
    window = walk.window if is_plain else max(walk.window, FIRST_WINDOW)
    return replace(walk, source=source, at_once=False, window=window)


def filters(page: Page) -> dict[str, Any]:
    """Return what the statements of windows are given about a page."""
    return {
        "topic": page.topic,
        "key": page.key,
        "text": None if page.text is None else containing(page.text),
        "error": None if page.error is None else containing(page.error),
        "since": page.since,
        "until": page.until,
        "worker": page.worker,
        "deep": page.is_deep,
        "pending": State.DELAYED in page.states,
        "states": None if page.status is None else sorted(page.states),
    }


def _look(walk: Walk, most: int, wanted: int) -> Steps[Walk]:
    """Look at the next window."""
    if walk.source is None or walk.ended:
        return walk
    down, limit = walk.page.goes_down, wanted - len(walk.found)
    window = min(walk.window, most)
    found = yield from walk.source(
        **walk.filters, low=walk.low, high=walk.high, down=down, window=window, limit=limit
    )
    numbers = [row.seq for row in found if row.seq is not None]
    looked, first, last = found[0].number, found[0].low, found[0].high
    is_cut = len(numbers) == limit  # there may be more in the window behind the last
    edge = numbers[-1] if is_cut else first if down else last
    if edge is not None:
        walk = replace(walk, high=edge) if down else replace(walk, low=edge)
    return replace(
        walk,
        looked=walk.looked + looked,
        found=(*walk.found, *numbers),
        window=min(walk.window * GROWTH, max(walk.window, MOST_WINDOW)),
        ended=not is_cut and (walk.at_once or looked < window),
    )


def _line(page: Page) -> Steps[tuple[int, ...]]:
    """Read the numbers of a page in the order of the line, and one more if more follow."""
    [state] = page.states
    line, place_of = LINES[state]
    place, seq = -1, 0
    if page.before is not None:
        # A job that has left the line has no place in it: the page begins at its front.
        found_place = yield from place_of(seq=page.before)
        place, seq = (found_place[0], page.before) if found_place else (place, seq)
    topics = yield from sql.topics(topic=page.topic)
    most = page.offset + page.limit + 1
    found = yield from line(
        [{"topic": topic} for topic in topics], place=place, seq=seq, limit=most
    )
    return tuple(row.seq for row in sorted(found)[:most])


def _number_at(at: int) -> Steps[int]:
    """Return the first number whose job was enqueued at an instant or later, by bisection."""
    [ends] = yield from sql.ends()
    if ends.low is None or ends.high is None:
        return 0
    low, high = ends.low, ends.high + 1
    while low < high:
        middle = (low + high) // 2
        found = yield from sql.created_from(seq=middle)
        if not found or found[0].created_at >= at:
            high = middle
        else:
            low = found[0].seq + 1
    return low


def _read(numbers: Sequence[int], states: frozenset[State]) -> Steps[list[Job]]:
    """Read jobs in this order, without those that have left the states meanwhile."""
    if not numbers:
        return []
    found = yield from sql.read_jobs([{"seq": seq} for seq in numbers])
    by_number = {row.seq: row for row in found}
    return [
        listed_from(row)
        for row in map(by_number.get, numbers)
        if row is not None and row.state in states
    ]


def _brief(row: BriefRow, redact: str) -> JobBrief:
    error = row.last_error
    return JobBrief(
        id=uuid_from(row.id),
        seq=row.seq,
        topic=row.topic,
        state=State(row.state),
        priority=row.priority,
        key=row.key,
        created_at=as_datetime(row.created_at),
        run_at=as_datetime(row.run_at),
        finished_at=None if row.finished_at is None else as_datetime(row.finished_at),
        duration=None if row.duration is None else as_timedelta(row.duration),
        epoch=row.epoch,
        retries=row.retries,
        max_retries=known_options(row.options).max_retries,
        crashes=row.crashes,
        cancel_requested=bool(row.cancel_requested),
        progress=row.progress,
        progress_message=row.progress_message,
        session=row.session,
        worker=row.worker,
        last_error=None if error is None else shortened(error, MOST_ERROR),
        preview=preview_of(row.payload, row.encoding, redact),
        size=row.size,
    )
