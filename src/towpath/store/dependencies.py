"""Jobs that wait for others: they lie in `blocked` until all of those have completed.

A job that takes outcomes goes on when all of those have ended, however they did.

The statement that ends a job also notes it in `ended`. Telling the jobs that wait comes after, can
be repeated, and is done by upkeep if the process died that should have done it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from towpath.errors import InvalidState, NotFound
from towpath.model.flows import Takes
from towpath.model.job import FailureKind, Job
from towpath.model.states import State, Status
from towpath.operation import Answer, Changed, Operation, Steps, answered, is_posted
from towpath.statement import Statement, Statements, no_rows, rows
from towpath.store import lifecycle
from towpath.store.jobs import Enqueue, NewJob, added, are_keyed, stored_before
from towpath.store.lifecycle import FAILURES, JobEvent
from towpath.store.lookup import find, get
from towpath.store.rows import known_options, uuid_from
from towpath.store.runs import Ended, noted, offer

ENDED_AT_ONCE: Final = 1_000
IN_LINE: Final = frozenset({State.READY, State.DELAYED})
_WITHOUT_RESULT: Final = frozenset({Status.FAILED, Status.CANCELLED})


class Body(NamedTuple):
    """A job's payload and options, as they are stored."""

    seq: int
    payload: str
    options: str | None


class ParentResult(NamedTuple):
    """What a parent returned, or why it did not."""

    result: str | None
    goes_on: bool | int
    error: str | None


class ResultsSize(NamedTuple):
    """How much the parents of a job returned together."""

    parents: int
    bytes: int


class FailedChild(NamedTuple):
    """A job that failed because of those that it waits for."""

    seq: int
    epoch: int
    awaited: bool | int | None


class Why(NamedTuple):
    """A job that ended, for the sake of a message."""

    id: UUID | bytes | str
    topic: str
    state: str


class LastFailure(NamedTuple):
    """The last failure of a job."""

    kind: str
    error: str


class WaitingChild(NamedTuple):
    """A job that waits for others, without one of them."""

    seq: int
    epoch: int


class BuriedChild(NamedTuple):
    """A job that may wait again."""

    seq: int
    epoch: int
    key: str | None


class sql(Statements):
    """The statements of dependencies.sql."""

    depend = rows(int)
    await_ready = rows(int)
    await_delayed = rows(int)
    await_blocked = rows(int)
    await_reserved = rows(int)
    hold_back = no_rows()
    ended = rows(Ended)
    note_completed = no_rows()
    hold_children = rows(int)
    with_all_parents = rows(Body)
    results_for = rows(ParentResult)
    results_size = rows(ResultsSize)
    fill_in = no_rows()
    let_in = rows(str)
    fail_child = rows(FailedChild)
    fail_children = rows(FailedChild)
    some_go_on = rows(int)
    last_failure = rows(LastFailure)
    note_error = rows(int)
    note_failed = no_rows()
    say_why = rows(Why)
    forget_ended = no_rows()
    children_to_revive = rows(BuriedChild)
    forget_failure = no_rows()
    children_without_it = rows(WaitingChild)
    wait_again = no_rows()
    count_incomplete = rows(int)


_AWAIT: Final[Mapping[State, Statement[int]]] = {
    State.READY: sql.await_ready,
    State.DELAYED: sql.await_delayed,
    State.BLOCKED: sql.await_blocked,
    State.RESERVED: sql.await_reserved,
}


class Node(Struct, frozen=True):
    """A job to store, and what it waits for: others of the same flow, or jobs that are stored."""

    new: NewJob
    parents: Sequence[int] = ()
    after: Sequence[UUID] = ()
    goes_on: bool = False  # however they end


def enqueue_offered(new: Sequence[NewJob], enqueue: Enqueue) -> Operation[list[Answer[Job]]]:
    """Store jobs of which some choose their workers."""

    def steps() -> Steps[Changed[list[Answer[Job]]]]:
        answers: list[Answer[Job]] = list((yield from enqueue(new).inside()))
        for nth, (job, wanted) in enumerate(zip(answers, new, strict=True)):
            runs = wanted.options.runs
            if runs and isinstance(job, Job) and job.id == wanted.id and job.state in IN_LINE:
                yield sql.hold_back([{**_place(job), "waits": runs.workers}])
                yield from offer(job.seq, job.topic, job.priority, runs)
                answers[nth] = msgspec.structs.replace(job, state=State.BLOCKED)
        return msgspec.structs.replace(added(answers), appends=False)

    return Operation("enqueue_offered", steps, locks=are_keyed(new))


def enqueue_flow(nodes: Sequence[Node], enqueue: Enqueue) -> Operation[list[Answer[Job]]]:
    """Store jobs of which some wait for others, all of them or none.

    Those that are stored already wait for what they were told to wait for then, and no more.
    """

    def steps() -> Steps[Changed[list[Answer[Job]]]]:
        # What can be refused is refused before anything is stored: the caller may commit the rest.
        new = [node.new for node in nodes]
        before = yield from stored_before(new)
        after = {id for nth, node in enumerate(nodes) if nth not in before for id in node.after}
        found: dict[UUID, Job] = {}
        for id in sorted(after):
            found[id] = yield from _awaited(id)
        jobs = [answered(each) for each in (yield from enqueue(new).inside())]
        own = [
            job.id == node.new.id and nth not in before
            for nth, (job, node) in enumerate(zip(jobs, nodes, strict=True))
        ]
        awaited = sorted({parent for node in nodes for parent in node.parents})
        for state in (State.READY, State.DELAYED):
            items = [_place(jobs[n]) for n in awaited if own[n] and jobs[n].state is state]
            if items:
                yield _AWAIT[state](items)
        for nth, node in enumerate(nodes):
            # If another job holds its key, it was not stored; the holder does not wait.
            if (node.parents or node.after) and own[nth]:
                parents = [found[id] for id in node.after]
                for n in node.parents:
                    parent = jobs[n]
                    if not own[n]:
                        parent = yield from _awaited(parent.id, goes_on=node.goes_on)
                    parents.append(parent)
                jobs[nth] = yield from _linked(jobs[nth], parents, goes_on=node.goes_on)
        return msgspec.structs.replace(added(list(jobs)), appends=False)

    return Operation("enqueue_flow", steps, locks=are_keyed(node.new for node in nodes))


def _linked(child: Job, parents: Sequence[Job], *, goes_on: bool) -> Steps[Job]:
    """Make a job that was just stored wait for others."""
    links = [_link(parent, goes_on=goes_on) for parent in parents]
    items = [{"child": child.seq, "nth": n, **link} for n, link in enumerate(links)]
    if not (yield from sql.depend(items)):
        # Another caller has stored it since, and has made it wait: it may be let in by now.
        return (yield from get(child.id).inside())
    waits = sum(not link["completed"] for link in links)
    if waits:
        yield sql.hold_back([{**_place(child), "waits": waits}])
        return msgspec.structs.replace(child, state=State.BLOCKED)
    yield from _filled_in(child.seq, child.body, child.options.takes)
    return (yield from get(child.id).inside())


def _link(parent: Job, *, goes_on: bool) -> dict[str, Any]:
    error = parent.last_error or f"job {parent.id} is {parent.state}"
    ended_badly = parent.status in _WITHOUT_RESULT
    return {
        "parent": parent.seq,
        "completed": parent.status is Status.COMPLETED or ended_badly,
        "result": parent.result_body,
        "goes_on": goes_on,
        "error": error if ended_badly else None,
    }


def _awaited(id: UUID, *, goes_on: bool = False) -> Steps[Job]:
    """Mark a stored job as one for whose end others wait, unless it has ended.

    Each job that waits marks it again: so it cannot end before they are committed, and miss them.
    """
    while True:
        job = yield from find(id)
        if job is None:
            msg = f"job {id} does not exist, so no job can wait for it"
            raise NotFound(msg)
        if job.status in _WITHOUT_RESULT and not goes_on:
            msg = f"job {job.id} is {job.state}: what waits for it would never run"
            raise InvalidState(msg)
        if job.status is Status.COMPLETED or job.status in _WITHOUT_RESULT:
            return job
        if (yield from _AWAIT[job.state]([_place(job)])):
            return job


def told(jobs: Iterable[Ended]) -> Steps[set[str]]:
    """Tell the jobs that wait for ended ones; return the topics that gained a job."""
    topics: set[str] = set()
    ended = list(jobs)
    while ended:
        others, offered = yield from noted(ended)
        topics |= offered
        topics |= yield from _told_of(ended)
        ended = others
    return topics


def failed(seq: int) -> Steps[set[str]]:
    """Note that a job has ended without a lease, and tell the jobs that wait for it."""
    yield from note_failed(seq)
    return (yield from told([Ended(seq, False)]))


def note_failed(seq: int) -> Steps[None]:
    """Note that a job has ended, as the end of a lease does by itself; upkeep tells the others."""
    yield sql.note_failed(parent=seq)


def count_incomplete(seq: int) -> Steps[int]:
    """Count the jobs that a job waits for and that have not completed."""
    [incomplete] = yield from sql.count_incomplete(seq=seq)
    return incomplete


def children_to_revive(parent: int) -> Steps[list[BuriedChild]]:
    """Find the jobs that failed only because of one, which runs again."""
    yield sql.forget_ended([{"parent": parent, "completed": False}])
    return (yield from sql.children_to_revive(parent=parent))


def children_without_it(parent: int) -> Steps[list[WaitingChild]]:
    """Find the jobs that wait for others and would go on without one, which runs again."""
    return (yield from sql.children_without_it(parent=parent))


def wait_again(child: int, parent: int) -> Steps[None]:
    """Note that a job waits for another one, which runs again."""
    yield sql.wait_again(child=child, parent=parent)


def forget_failure(seq: int, epoch: int) -> Steps[None]:
    """Forget that a job failed because of another one."""
    yield sql.forget_failure(seq=seq, epoch=epoch)


def _told_of(ended: Sequence[Ended]) -> Steps[set[str]]:
    completed = [{"parent": job.seq, "completed": True} for job in ended if job.completed]
    topics = set[str]()
    if completed:
        topics = yield from _told_of_completed(completed)
        yield sql.forget_ended(completed)
    topics |= yield from _told_of_failed([job.seq for job in ended if not job.completed])
    return topics


def tell_all() -> Operation[set[str]]:
    """Tell the jobs that wait, where a process died before it could."""

    def steps() -> Steps[Changed[set[str]]]:
        ended = yield from sql.ended(limit=ENDED_AT_ONCE)
        topics = yield from told(ended)
        return Changed(topics, topics)

    return Operation("tell_all", steps)


def _told_of_completed(parents: list[dict[str, Any]]) -> Steps[set[str]]:
    yield sql.note_completed(parents)
    return (yield from _let_in(parents))


def _let_in(parents: list[dict[str, Any]]) -> Steps[set[str]]:
    """Let in the children that wait for no other job; return the topics that gained one."""
    children = set((yield from sql.hold_children(parents)))
    if not children:
        return set()
    bodies = yield from sql.with_all_parents([{"seq": seq} for seq in sorted(children)])
    topics = set[str]()
    filled: list[dict[str, Any]] = []
    for body in bodies:
        takes = known_options(body.options).takes
        if error := (yield from _why_too_large(body.seq, takes)):
            kind = FailureKind.DEPENDENCY
            yield from is_posted(FAILURES)
            failed = yield from sql.fail_child(seq=body.seq, kind=kind, error=error)
            yield from _post_failed(failed, error)
            topics |= yield from _told_of_failed([child.seq for child in failed if child.awaited])
        else:
            yield from _filled_in(body.seq, body.payload, takes)
            filled.append({"seq": body.seq})
    if filled:
        topics.update((yield from sql.let_in(filled)))
    return topics


def _why_too_large(seq: int, takes: Takes | None) -> Steps[str | None]:
    """Return why a job cannot take all results; they are added up before they are read."""
    if takes is None or takes.most is None:
        return None
    [size] = yield from sql.results_size(seq=seq)
    if size.bytes <= takes.most:
        return None
    return (
        f"the {size.parents} parts of the group returned {size.bytes:,} bytes together; "
        f"`max_payload` allows {takes.most:,}. Let the parts store their results elsewhere and "
        "return references, or requeue this job to pass the results all the same"
    )


def fill_in_late(seq: int) -> Steps[None]:
    """Give a job that was buried the results that it did not take, whatever their size."""
    for body in (yield from sql.with_all_parents([{"seq": seq}])):
        takes = known_options(body.options).takes
        if takes and takes.name not in msgspec.json.decode(body.payload, type=dict[str, Raw]):
            yield from _filled_in(body.seq, body.payload, takes)


def _filled_in(seq: int, body: str, takes: Takes | None) -> Steps[None]:
    """Give a job what its parents returned, as the argument that takes it."""
    if takes is None:
        return
    parents = yield from sql.results_for(seq=seq)
    results = [_passed_on(parent) for parent in parents]
    yield sql.fill_in(seq=seq, body=body, payload=_with_results(body, takes, results))


def _passed_on(parent: ParentResult) -> Raw:
    result = Raw((parent.result or "null").encode())
    if not parent.goes_on:
        return result
    outcome = {"result": result} if parent.error is None else {"error": parent.error}
    return Raw(msgspec.json.encode(outcome))


def _with_results(body: str, takes: Takes, results: list[Raw]) -> str:
    arguments: dict[str, object] = dict(msgspec.json.decode(body, type=dict[str, Raw]))
    arguments[takes.name] = results if takes.many else results[0]
    return msgspec.json.encode(arguments).decode()


def _told_of_failed(parents: Sequence[int]) -> Steps[set[str]]:
    """Fail those that wait, and those that wait for them; let in those that go on all the same."""
    topics: set[str] = set()
    left = list(parents)
    while left:
        parent = left.pop()
        why = yield from sql.say_why(parent=parent)
        error = _reason(why[0]) if why else "a job that this one waits for was deleted"
        kind = FailureKind.DEPENDENCY
        yield from is_posted(FAILURES)
        children = yield from sql.fail_children(parent=parent, kind=kind, error=error)
        yield from _post_failed(children, error)
        left += [child.seq for child in children if child.awaited]
        if (yield from sql.some_go_on(parent=parent)):
            failure = yield from sql.last_failure(parent=parent)
            error = _error(why[0], failure) if why else "the job was deleted"
            if (yield from sql.note_error(parent=parent, error=error)):
                topics |= yield from _let_in([{"parent": parent}])
        yield sql.forget_ended([{"parent": parent, "completed": False}])
    return topics


def _post_failed(children: Sequence[FailedChild], error: str) -> Steps[None]:
    kind = FailureKind.DEPENDENCY
    yield from lifecycle.post_jobs(
        [JobEvent("failed", child.seq, child.epoch, kind, error) for child in children]
    )


def _reason(job: Why) -> str:
    return f"{_ended_how(job)}, and this one waits for it"


def _error(job: Why, last: Sequence[LastFailure]) -> str:
    """Return the error of a job that ended without a result."""
    kinds = {FailureKind.EXPIRED} if job.state == State.CANCELLED else set(FailureKind)
    return next((each.error for each in last if each.kind in kinds), _ended_how(job))


def _ended_how(job: Why) -> str:
    what = "was cancelled" if job.state == State.CANCELLED else "failed"
    return f"job {uuid_from(job.id)} of topic {job.topic!r} {what}"


def _place(job: Job) -> Mapping[str, Any]:
    return {"seq": job.seq, "topic": job.topic, "priority": job.priority}
