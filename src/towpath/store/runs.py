"""Jobs that choose their workers: `workers=N` distinct ones, or only some by name.

Such a job lies in `blocked` and is offered. A worker that takes the offer gets a run: a job of its
own, made as it is leased and ended as any other. What becomes of the job follows from its runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from towpath.model.ids import uuid7
from towpath.model.instants import as_datetime, microseconds
from towpath.model.job import FailureKind, Options
from towpath.model.runs import Run, Runs, RunState
from towpath.model.states import State
from towpath.operation import Mode, Operation, Steps, is_posted
from towpath.statement import Statements, no_rows, rows
from towpath.store import lifecycle
from towpath.store.lifecycle import ALL, FAILURES, JobEvent
from towpath.store.rows import known_options, stored_options


class Ended(NamedTuple):
    """A job that has ended, for which others wait."""

    seq: int
    completed: bool | int


class Offer(NamedTuple):
    """A job that looks for workers."""

    seq: int
    options: str | None
    ttr: int


class EndedRun(NamedTuple):
    """A run of an offered job, and what became of it."""

    offer: int
    job: int
    noted: str  # its state as its offer knows it
    state: str | None  # its state by now; None: it is gone
    kind: str | None  # of its last failure


class EndedOffer(NamedTuple):
    """A job that has ended with its runs."""

    seq: int
    epoch: int
    awaited: bool | int | None


class HeldOffer(NamedTuple):
    """An offer that this transaction holds."""

    topic: str
    wanted: int
    options: str | None


class RunCount(NamedTuple):
    """How many runs of an offer are in one state."""

    state: str
    number: int


class RunResult(NamedTuple):
    """What a run returned."""

    result: str | None


class FailedRun(NamedTuple):
    """A failed job that is no run of an offer, unless its options say so."""

    seq: int
    options: str | None


class RunRow(NamedTuple):
    """One worker's run of a job."""

    worker: str
    state: str
    job: int
    started_at: int
    ended_at: int | None


class StoredOptions(NamedTuple):
    """The options of a job, as they are stored."""

    options: str | None


class sql(Statements):
    """The statements of runs.sql."""

    offer = no_rows()
    offer_otherwise = no_rows()
    find_offers = rows(Offer)
    still_wanted = rows(int)
    start_run = no_rows()
    ended_runs = rows(EndedRun)
    note_run = no_rows()
    forget_run = no_rows()
    forget_runs = no_rows()
    hold_offer = rows(HeldOffer)
    count_runs = rows(RunCount)
    results_of = rows(RunResult)
    failed_without_job = rows(FailedRun)
    hand_in = no_rows()
    forget_failed_run = no_rows()
    withdraw = rows(int)
    stop_runs = no_rows()
    finish_offer = rows(EndedOffer)
    fail_offer = rows(EndedOffer)
    runs_of = rows(RunRow)
    are_offered = rows(int)
    job_of = rows(StoredOptions)
    stop_others = no_rows()
    options_of = rows(StoredOptions)


def offer(seq: int, topic: str, priority: int, runs: Runs) -> Steps[None]:
    """Offer a job to its workers, or change the offer."""
    named = None if runs.only is None else msgspec.json.encode(runs.only).decode()
    yield sql.offer(seq=seq, topic=topic, priority=priority, wanted=runs.workers, named=named)
    if named is not None:
        yield sql.stop_others(offer=seq, named=named)


def offer_otherwise(seq: int, priority: int) -> Steps[None]:
    """Give an offer the priority and the time of its job."""
    yield sql.offer_otherwise(seq=seq, priority=priority)


def forget_runs(seq: int) -> Steps[None]:
    """Forget the runs of a job, and ask those that run to stop."""
    yield sql.forget_runs(offer=seq)


def options_of(seq: int) -> Steps[Options]:
    """Read the options of a job."""
    [found] = yield from sql.options_of(seq=seq)
    return known_options(found.options)


def options_of_offer(run: int) -> Steps[Options]:
    """Read the options of the job of which this one is a run."""
    found = yield from sql.job_of(seq=run)
    return known_options(found[0].options) if found else Options()


def start_runs(
    topics: tuple[str, ...], worker: str, limit: int, token: int, session: int | None
) -> Steps[int]:
    """Lease runs of what is offered to a worker; return how many."""
    offers = yield from sql.find_offers(topics=topics, worker=worker, limit=limit)
    started = 0
    for seq, text, ttr in offers:
        if not (yield from sql.still_wanted(offer=seq, worker=worker)):
            continue
        options = known_options(text)
        runs = options.runs or Runs()
        pinged = runs.worker_timeout is not None
        yield sql.start_run(
            offer=seq,
            id=uuid7(),
            worker=worker,
            token=token,
            session=None if pinged else session,
            remote=worker if session is None else None,
            ttr=microseconds(runs.worker_timeout) if runs.worker_timeout is not None else ttr,
            options=stored_options(_of_a_run(options, runs, seq)),
        )
        started += 1
    return started


def _of_a_run(options: Options, runs: Runs, seq: int) -> Options:
    """Return the options of a run: one that fails is not tried again."""
    return replace(options, max_retries=1, max_crashes=1, takes=None, runs=replace(runs, of=seq))


def noted(ended: Iterable[Ended]) -> Steps[tuple[list[Ended], set[str]]]:
    """Note how runs ended; return the offers that ended by it, and the topics with new room."""
    ended = list(ended)
    found = yield from sql.ended_runs([{"parent": each.seq} for each in ended])
    runs = {run.job for run in found}
    failed = [each.seq for each in ended if not each.completed and each.seq not in runs]
    if failed:
        yield from _without_job(failed)
    topics: set[str] = set()
    over: list[Ended] = []
    for run in found:
        if run.noted == RunState.RUNNING:
            if run.state is None:
                yield sql.forget_run(job=run.job)  # it was given back
            else:
                yield sql.note_run(job=run.job, state=_outcome(run.state, run.kind))
        if run.state == State.BURIED:
            yield from _handed_in(run.offer, run.job)
    for seq in sorted({run.offer for run in found}):
        for topic, wanted, text in (yield from sql.hold_offer(offer=seq)):
            ends = yield from _weighed(seq, wanted, known_options(text))
            if ends is None:
                topics.add(topic)
            else:
                over += ends
    return over, topics


def _without_job(failed: Sequence[int]) -> Steps[None]:
    """Forget runs that failed after their job was deleted, pruned or offered again."""
    items = [{"parent": seq} for seq in failed]
    for seq, text in (yield from sql.failed_without_job(items)):
        runs = known_options(text).runs
        if runs is not None and runs.of is not None:
            yield from _handed_in(runs.of, seq)


def _handed_in(offer: int, run: int) -> Steps[None]:
    """Keep no failed run: its failure, which says the rest, becomes one of the job."""
    yield sql.hand_in(offer=offer, job=run)
    yield sql.forget_failed_run(job=run)


def _outcome(state: str, kind: str | None) -> RunState:
    if state == State.COMPLETED:
        return RunState.SUCCEEDED
    if state == State.CANCELLED:
        return RunState.CANCELLED
    return RunState.CRASHED if kind == FailureKind.CRASH else RunState.FAILED


def _weighed(seq: int, wanted: int, options: Options) -> Steps[list[Ended] | None]:
    """End a job that has enough good runs, or too many bad ones; return it if others wait for it.

    Returns None if it goes on.
    """
    counts = dict((yield from sql.count_runs(offer=seq)))
    runs = options.runs or Runs()
    if counts.get(RunState.SUCCEEDED, 0) >= wanted:
        results = [run.result or "null" for run in (yield from sql.results_of(offer=seq))]
        result = results[0] if wanted == 1 else f"[{','.join(results)}]"
        retention = microseconds(options.retention)
        what = "completed"
        yield from is_posted(ALL)
        over = yield from sql.finish_offer(offer=seq, result=result, retention=retention)
        ends = [Ended(job.seq, True) for job in over if job.awaited]
    elif (
        counts.get(RunState.FAILED, 0) > runs.max_unexpected_retries
        or counts.get(RunState.CRASHED, 0) >= options.max_crashes
    ):
        what = "failed"
        yield from is_posted(FAILURES)
        over = yield from sql.fail_offer(offer=seq)
        ends = [Ended(job.seq, False) for job in over if job.awaited]
    else:
        return None
    yield from lifecycle.post_jobs([JobEvent(what, job.seq, job.epoch) for job in over])
    yield from withdraw(seq)
    return ends


def withdraw(seq: int) -> Steps[None]:
    """Offer a job no more, and ask the workers that run it to stop."""
    if (yield from sql.withdraw(offer=seq)):
        yield sql.stop_runs(offer=seq)


def are_offered(topics: tuple[str, ...]) -> Operation[bool]:
    """Say whether any job of these topics looks for workers."""

    def steps() -> Steps[bool]:
        return bool((yield from sql.are_offered(topics=topics)))

    return Operation("are_offered", steps, Mode.READ, autocommit=True)


def list_runs(id: UUID) -> Operation[list[Run]]:
    """Read the runs of a job."""

    def steps() -> Steps[list[Run]]:
        return [
            Run(
                worker=run.worker,
                state=RunState(run.state),
                job=run.job,
                started_at=as_datetime(run.started_at),
                ended_at=None if run.ended_at is None else as_datetime(run.ended_at),
            )
            for run in (yield from sql.runs_of(id=id))
        ]

    return Operation("list_runs", steps, Mode.READ, autocommit=True)
