"""Bulk acts: one verb for many jobs, carried out some at a time.

A round is one transaction: what is done to its jobs, and the number at which the next round begins.
So a round that was interrupted has done nothing, and one that is done is never done again: its
epoch has moved. Rounds are short, because a stop waits for the round that runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from towpath.errors import Conflict, IncompatibleData, InvalidState, NotFound, TowpathError
from towpath.model.bulk import (
    Bulk,
    BulkPreview,
    BulkRefusal,
    BulkState,
    BulkVerb,
    JobChoice,
)
from towpath.model.instants import as_datetime, instant
from towpath.model.job import Job
from towpath.model.states import State
from towpath.operation import Changed, Mode, Operation, Steps, Wakeup
from towpath.statement import Statements, no_rows, rows
from towpath.store import admin, listing, lookup
from towpath.store.rows import ticket_from, uuid_from

ROUND: Final = 100  # jobs
MOST_LOOKED: Final = 50_000  # jobs of a preview
PREVIEW_WINDOW: Final = 10_000  # rows of each table
ROUND_WINDOWS: Final = (200, 1_000, 5_000)  # after these a round ends, however few jobs fit
MOST_REFUSALS: Final = 100  # that are told by id
SAMPLE: Final = 10
KEPT: Final = 30 * 86_400 * 10**6  # after its end, in microseconds
BULK: Final = Wakeup("bulk")  # one was made, has moved or was stopped
STATES: Final = (  # those whose tables are looked at
    State.READY,
    State.DELAYED,
    State.BLOCKED,
    State.RESERVED,
    State.BURIED,
    State.CANCELLED,
)
ACTS: Final[Mapping[BulkVerb, Callable[[UUID], Operation[Job]]]] = {
    BulkVerb.REQUEUE: admin.requeue,
    BulkVerb.KICK: admin.kick_job,
    BulkVerb.CANCEL: admin.cancel,
    BulkVerb.DELETE: admin.delete,
}
# What one job is refused with; all else, such as a lost connection, concerns the round.
REFUSED: Final = (NotFound, Conflict, IncompatibleData)
CLAIMS: Final = {State.BURIED, State.CANCELLED}  # from here a job needs its key again
_refusals: Final = msgspec.json.Decoder(list[BulkRefusal])
_choice: Final = msgspec.json.Decoder(JobChoice)


class Picked(NamedTuple):
    """A job that fits, if any does, beside what was looked at."""

    seq: int | None
    edge: int | None  # the number up to which was looked; null: nothing is left
    number: int  # of rows that were looked at
    taken: bool | int  # another unfinished job holds its key


class ChosenJob(NamedTuple):
    """A job of a round."""

    id: Any
    topic: str
    key: str | None
    seq: int


class BulkRow(NamedTuple):
    """A bulk act, as it is stored."""

    id: Any
    epoch: int
    created_at: int
    begins_at: int
    ended_at: int | None
    up_to: int
    next: int
    looked: int
    done: int
    refused: int
    counted: int
    exact: bool | int
    verb: str
    state: str
    by: str
    choice: str
    refusals: str

    def bulk(self) -> Bulk:
        """Return it as callers see it."""
        return Bulk(
            id=uuid_from(self.id),
            verb=BulkVerb(self.verb),
            choice=_choice.decode(self.choice),
            up_to=self.up_to,
            by=self.by,
            created_at=as_datetime(self.created_at),
            begins_at=as_datetime(self.begins_at),
            ended_at=None if self.ended_at is None else as_datetime(self.ended_at),
            state=BulkState(self.state),
            count=self.counted,
            exact=bool(self.exact),
            looked=self.looked,
            done=self.done,
            refused=self.refused,
            refusals=_refusals.decode(self.refusals),
            epoch=self.epoch,
        )


class DueBulk(NamedTuple):
    """A bulk act that has begun and not ended."""

    id: Any
    epoch: int


class sql(Statements):
    """The statements of bulk.sql."""

    newest = rows(int)
    pick = rows(Picked)
    chosen = rows(ChosenJob)
    taken = rows(bool)
    make = no_rows()
    find = rows(BulkRow)
    list = rows(BulkRow)
    stop = rows(object)
    due = rows(DueBulk)
    hold = rows(BulkRow)
    move = no_rows()
    begin_part = no_rows()
    take_back_part = no_rows()
    end_part = no_rows()
    forget = rows(object)


class NewBulk(Struct, frozen=True, kw_only=True):
    """A bulk act to make."""

    id: UUID
    verb: BulkVerb
    choice: JobChoice
    up_to: int
    by: str
    delay: int
    count: int
    exact: bool


class Round(Struct, frozen=True, kw_only=True):
    """The jobs of one round."""

    ids: Sequence[UUID]
    looked: int
    next: int  # the number behind which the next round looks, or the place of its first id
    is_last: bool


def preview(verb: BulkVerb, choice: JobChoice, up_to: int | None) -> Operation[BulkPreview]:
    """Count the jobs that a bulk act would cover; later jobs than `up_to` do not count."""

    def steps() -> Steps[BulkPreview]:
        [newest] = yield from sql.newest()
        if up_to is not None:
            newest = min(up_to, newest)
        if choice.ids is not None:
            return (yield from _preview_of_ids(verb, choice.ids, newest))
        walk = yield from _begin(verb, choice, 0, newest)
        found: list[int] = []
        refused: Counter[str] = Counter()
        left, edge = MOST_LOOKED, walk.high
        claims = bool(walk.states & CLAIMS)
        is_exact = False
        # The newest first: those that a bulk act is for are seldom the oldest ones of all.
        while not is_exact and (window := min(PREVIEW_WINDOW, left // walk.parts)) > 0:
            rows = yield from walk.pick(walk.low, edge, window, MOST_LOOKED, down=True)
            fitting = [row for row in rows if row.seq is not None]
            found += [row.seq for row in fitting if row.seq is not None]
            if claims:
                refused["key_taken"] += sum(bool(row.taken) for row in fitting)
            left -= int(rows[0].number)
            is_exact = rows[0].edge is None
            edge = rows[0].edge or edge
        sample = yield from listing.read(sorted(found)[:SAMPLE], listing.Page()).inside()
        return BulkPreview(
            count=len(found), exact=is_exact, sample=sample, up_to=newest, refused=+refused
        )

    return Operation("preview_bulk", steps, Mode.SCAN, autocommit=True)


def _preview_of_ids(verb: BulkVerb, ids: Sequence[UUID], newest: int) -> Steps[BulkPreview]:
    refused: Counter[str] = Counter()
    fitting: list[Job] = []
    states = JobChoice().states(verb)
    for answer in (yield from lookup.get_all(ids).inside()):
        if isinstance(answer, TowpathError):
            refused[answer.code] += 1
        elif answer.state not in states:
            refused[InvalidState.code] += 1
        else:
            fitting.append(answer)
            if answer.key is not None and answer.state in CLAIMS:
                [is_taken] = yield from sql.taken(seq=answer.seq)
                refused["key_taken"] += bool(is_taken)
    return BulkPreview(
        count=len(fitting), exact=True, sample=fitting[:SAMPLE], up_to=newest, refused=+refused
    )


def make(new: NewBulk) -> Operation[Bulk]:
    """Store a bulk act, which begins after its delay."""

    def steps() -> Steps[Changed[Bulk]]:
        yield sql.make(
            id=new.id,
            verb=new.verb.value,
            choice=msgspec.json.encode(new.choice).decode(),
            up_to=new.up_to,
            by=new.by,
            delay=new.delay,
            counted=new.count,
            exact=new.exact,
        )
        [row] = yield from sql.find(id=new.id)
        return Changed(row.bulk(), others=[BULK])

    return Operation("make_bulk", steps)


def get(id: UUID) -> Operation[Bulk]:
    """Read one bulk act."""

    def steps() -> Steps[Bulk]:
        return (yield from _found(id))

    return Operation("get_bulk", steps, Mode.READ, autocommit=True)


def list_acts(limit: int) -> Operation[list[Bulk]]:
    """Read bulk acts, the newest first."""

    def steps() -> Steps[list[Bulk]]:
        return [row.bulk() for row in (yield from sql.list(limit=limit))]

    return Operation("list_bulk", steps, Mode.READ, autocommit=True)


def stop(id: UUID) -> Operation[Bulk]:
    """End a bulk act where it is; before it begins, that undoes it. One that has ended stays so."""

    def steps() -> Steps[Changed[Bulk]]:
        yield sql.stop(id=id)
        return Changed((yield from _found(id)), others=[BULK])

    return Operation("stop_bulk", steps)


def _found(id: UUID) -> Steps[Bulk]:
    found = yield from sql.find(id=id)
    if not found:
        msg = f"there is no bulk act {id}; ended ones are forgotten after 30 days"
        raise NotFound(msg)
    return found[0].bulk()


def due() -> Operation[list[DueBulk]]:
    """Read which bulk acts have begun and not ended."""

    def steps() -> Steps[list[DueBulk]]:
        found = yield from sql.due()
        return [each._replace(id=uuid_from(each.id)) for each in found]

    return Operation("due_bulk", steps, Mode.READ, autocommit=True)


def carry_on(id: UUID, epoch: int) -> Operation[bool]:
    """Do one round of a bulk act; say whether it was there to be done."""

    def steps() -> Steps[Changed[bool] | bool]:
        held = yield from sql.hold(id=id, epoch=epoch)
        if not held:
            return False
        row, bulk = held[0], held[0].bulk()
        chosen = yield from jobs_of_round(bulk, row.next)
        answers = yield from _each(ACTS[bulk.verb], chosen.ids)
        refusals: list[BulkRefusal] = []
        topics: set[str] = set()
        others: set[Wakeup] = {BULK}
        done = 0
        for job, answer in zip(chosen.ids, answers, strict=True):
            if isinstance(answer, Changed):
                done += 1
                topics.update(answer.topics)
                others.update(answer.others)
            elif bulk.choice.ids is not None or (yield from _still_fits(job, bulk)):
                refusals.append(BulkRefusal(job, answer.code))
        yield sql.move(
            id=id,
            next=chosen.next,
            looked=bulk.looked + chosen.looked,
            done=bulk.done + done,
            refused=bulk.refused + len(refusals),
            refusals=msgspec.json.encode([*bulk.refusals, *refusals][:MOST_REFUSALS]).decode(),
            ended=chosen.is_last,
        )
        return Changed(True, topics, others=others)

    return Operation("carry_on_bulk", steps, locks=True)


def jobs_of_round(bulk: Bulk, after: int) -> Steps[Round]:
    """Find the jobs that a round acts on, behind the place where the one before ended."""
    if bulk.choice.ids is not None:
        upto = after + ROUND  # these have no order of numbers: their places count
        ids = bulk.choice.ids[after:upto]
        there = [job.id for job in sorted((yield from lookup.tickets(ids)), key=_in_line)]
        return Round(
            ids=[*there, *(id for id in ids if id not in there)],  # missing ones are refused
            looked=len(ids),
            next=upto,
            is_last=upto >= len(bulk.choice.ids),
        )
    walk = yield from _begin(bulk.verb, bulk.choice, after, bulk.up_to)
    numbers: list[int] = []
    at, is_last = walk.low, False
    for window in ROUND_WINDOWS:
        wanted = ROUND - len(numbers)
        rows = yield from walk.pick(at, walk.high, window, wanted, down=False)
        found = [row.seq for row in rows if row.seq is not None]
        numbers += found
        is_full, edge = len(found) == wanted, rows[0].edge
        at = found[-1] if is_full else at if edge is None else edge
        is_last = not is_full and edge is None
        if is_full or is_last:
            break
    chosen = yield from sql.chosen([{"seq": seq} for seq in numbers])
    ids = [uuid_from(row.id) for row in sorted(chosen, key=_in_line)]
    return Round(ids=ids, looked=len(numbers), next=at, is_last=is_last)


def _in_line(job: ChosenJob | Job) -> tuple[bool, tuple[str, str] | None, int]:
    """Return the place of a job in a round.

    Keys are claimed in the order of every enqueue, so that two transactions do not deadlock.
    """
    return job.key is not None, None if job.key is None else (job.topic, job.key), job.seq


class Search(Struct, frozen=True, kw_only=True):
    """Where the jobs of a bulk act are looked for."""

    states: frozenset[State]
    low: int  # they are above this number
    high: int  # and below this one
    filters: Mapping[str, Any]
    tables: Mapping[str, bool]  # which are looked at

    @property
    def parts(self) -> int:
        """Of how many tables a window is looked at."""
        return sum(self.tables.values())

    def pick(
        self, low: int, high: int, window: int, limit: int, *, down: bool
    ) -> Steps[list[Picked]]:
        """Look at the next window."""
        return (
            yield from sql.pick(
                **self.filters,
                **self.tables,
                low=low,
                high=high,
                window=window,
                limit=limit,
                down=down,
            )
        )


def _begin(verb: BulkVerb, choice: JobChoice, after: int, up_to: int) -> Steps[Search]:
    states = choice.states(verb)
    page = listing.Page(
        topic=choice.topic,
        key=choice.key,
        text=choice.text,
        error=choice.error,
        since=None if choice.since is None else instant(choice.since, "since"),
        until=None if choice.until is None else instant(choice.until, "until"),
        after=after,
        before=up_to + 1,
    )
    low, high = yield from listing.between(page)
    keyed = choice.key is not None and (yield from listing.has_few_of_key(page))
    tables = {state.value: state in states and not keyed for state in STATES}
    is_ready = tables.pop(State.READY.value)
    only_ready = replace(page, status=State.READY)
    few_ready = is_ready and (yield from listing.few_wait(only_ready))
    tables |= {"keyed": keyed, "few_ready": few_ready, "many_ready": is_ready and not few_ready}
    filters = {**listing.filters(page), "states": sorted(states)}
    return Search(states=states, low=low, high=high, filters=filters, tables=tables)


def _still_fits(job: UUID, bulk: Bulk) -> Steps[bool]:
    """Say whether a job that was refused still lies where the filter finds it.

    It may have moved meanwhile: a job that waits for another one is requeued with that.
    """
    found = yield from lookup.find(job, ticket_from)
    return found is not None and found.state in bulk.choice.states(bulk.verb)


def _each(
    act: Callable[[UUID], Operation[Job]], jobs: Sequence[UUID]
) -> Steps[list[Changed[Job] | TowpathError]]:
    """Act on each job; answer with what has changed, or why one is refused.

    A job that is refused may be half changed by then, so it is taken back, and with it the jobs of
    its part: these are done again, in two halves.
    """
    if not jobs:
        return []
    answers: list[Changed[Job] | TowpathError] = []
    yield sql.begin_part()
    try:
        for job in jobs:
            changed = yield from act(job).start()
            answers.append(changed if isinstance(changed, Changed) else Changed(changed))
    except REFUSED as error:
        yield sql.take_back_part()
        yield sql.end_part()
        if len(jobs) == 1:
            return [error]
        half = len(jobs) // 2
        return (yield from _each(act, jobs[:half])) + (yield from _each(act, jobs[half:]))
    yield sql.end_part()
    return answers


def forget() -> Operation[int]:
    """Forget bulk acts that ended long ago."""

    def steps() -> Steps[int]:
        return len((yield from sql.forget(kept=KEPT)))

    return Operation("forget_bulk", steps)
