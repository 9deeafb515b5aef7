"""Jobs that choose their workers: `workers=N` distinct ones, or only some by name.

Such a job lies in `blocked` and is offered. A worker that takes the offer gets a run: a job of its
own, made as it is leased and ended as any other. What becomes of the job follows from its runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from towpath.model.ids import uuid7
from towpath.model.instants import as_datetime, microseconds
from towpath.model.job import FailureKind, Options
from towpath.model.runs import Run, Runs, RunState
from towpath.model.states import State
from towpath.operation import Mode, Operation, Row, Steps
from towpath.statement import load
from towpath.store.rows import known_options, stored_options

sql: Final = load(__name__)


def offer(seq: int, topic: str, priority: int, runs: Runs) -> Steps[None]:
    """Offer a job to its workers, or change the offer."""
    named = None if runs.only is None else msgspec.json.encode(runs.only).decode()
    yield sql["offer"](seq=seq, topic=topic, priority=priority, wanted=runs.workers, named=named)
    if named is not None:
        yield sql["stop_others"](offer=seq, named=named)


def start_runs(
    topics: tuple[str, ...], worker: str, limit: int, token: int, session: int | None
) -> Steps[int]:
    """Lease runs of what is offered to a worker; return how many."""
    rows = yield sql["find_offers"](topics=topics, worker=worker, limit=limit)
    started = 0
    for seq, text, ttr in rows:
        if not (yield sql["still_wanted"](offer=seq, worker=worker)):
            continue
        options = known_options(text)
        runs = options.runs or Runs()
        pinged = runs.worker_timeout is not None
        yield sql["start_run"](
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
    """Return the options of a run: whoever fails it does not try again."""
    return replace(options, max_retries=1, max_crashes=1, takes=None, runs=replace(runs, of=seq))


def noted(ended: Sequence[Row]) -> Steps[tuple[list[Row], set[str]]]:
    """Note how runs ended; return the offers that ended by it, and the topics with new room."""
    rows = yield sql["ended_runs"]([{"parent": seq} for seq, _ in ended])
    runs = {row[1] for row in rows}
    failed = [seq for seq, well in ended if not well and seq not in runs]
    if failed:
        yield from _without_job(failed)
    topics: set[str] = set()
    over: list[Row] = []
    for seq, job, known, state, kind in rows:
        if known == RunState.RUNNING:
            if state is None:
                yield sql["forget_run"](job=job)  # it was given back
            else:
                yield sql["note_run"](job=job, state=_outcome(state, kind))
        if state == State.BURIED:
            yield sql["hand_in"](offer=seq, job=job)
    for seq in sorted({row[0] for row in rows}):
        for topic, wanted, text in (yield sql["hold_offer"](offer=seq)):
            ends = yield from _weighed(seq, wanted, known_options(text))
            if ends is None:
                topics.add(topic)
            else:
                over += ends
    return over, topics


def _without_job(failed: Sequence[int]) -> Steps[None]:
    """Forget runs that failed after their job was deleted, pruned or offered again."""
    for seq, text in (yield sql["failed_without_job"]([{"parent": seq} for seq in failed])):
        runs = known_options(text).runs
        if runs is not None and runs.of is not None:
            yield sql["hand_in"](offer=runs.of, job=seq)


def _outcome(state: str, kind: str | None) -> RunState:
    if state == State.COMPLETED:
        return RunState.SUCCEEDED
    if state == State.CANCELLED:
        return RunState.CANCELLED
    return RunState.CRASHED if kind == FailureKind.CRASH else RunState.FAILED


def _weighed(seq: int, wanted: int, options: Options) -> Steps[list[Row] | None]:
    """End a job whose runs are enough, or too many in vain; return it if somebody waits for it."""
    counts = {row[0]: row[1] for row in (yield sql["count_runs"](offer=seq))}
    runs = options.runs or Runs()
    if counts.get(RunState.SUCCEEDED, 0) >= wanted:
        results = [row[0] or "null" for row in (yield sql["results_of"](offer=seq))]
        result = results[0] if wanted == 1 else f"[{','.join(results)}]"
        retention = microseconds(options.retention)
        rows = yield sql["finish_offer"](offer=seq, result=result, retention=retention)
        ends: list[Row] = [(row[0], True) for row in rows if row[1]]
    elif (
        counts.get(RunState.FAILED, 0) > runs.max_unexpected_retries
        or counts.get(RunState.CRASHED, 0) >= options.max_crashes
    ):
        rows = yield sql["fail_offer"](offer=seq)
        ends = [(row[0], False) for row in rows if row[1]]
    else:
        return None
    yield from withdraw(seq)
    return ends


def withdraw(seq: int) -> Steps[None]:
    """Offer a job no more, and ask those who run it to stop."""
    if (yield sql["withdraw"](offer=seq)):
        yield sql["stop_runs"](offer=seq)


def are_offered(topics: tuple[str, ...]) -> Operation[bool]:
    """Say whether any job of these topics looks for workers."""

    def steps() -> Steps[bool]:
        return bool((yield sql["are_offered"](topics=topics)))

    return Operation("are_offered", steps, Mode.READ, autocommit=True)


def list_runs(id: UUID) -> Operation[list[Run]]:
    """Read the runs of a job."""

    def steps() -> Steps[list[Run]]:
        return [
            Run(
                worker=worker,
                state=RunState(state),
                job=job,
                started_at=as_datetime(started_at),
                ended_at=None if ended_at is None else as_datetime(ended_at),
            )
            for worker, state, job, started_at, ended_at in (yield sql["runs_of"](id=id))
        ]

    return Operation("list_runs", steps, Mode.READ, autocommit=True)
