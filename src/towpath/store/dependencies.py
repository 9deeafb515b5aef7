"""Jobs that wait for others: they lie in `blocked` until all of those have completed.

What ends notes itself in `ended` by the very statement that ends it. Telling those that wait comes
after, can be repeated, and is done by upkeep if whoever should have done it died.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from towpath.errors import InvalidState, NotFound
from towpath.model.flows import Takes
from towpath.model.job import FailureKind, Job
from towpath.model.states import State, Status
from towpath.operation import Answer, Operation, Row, Steps, answered
from towpath.statement import load
from towpath.store import lookup
from towpath.store.jobs import Enqueue, NewJob, are_keyed, stored_before, topics_of
from towpath.store.lookup import get
from towpath.store.rows import job_from, known_options, uuid_from
from towpath.store.runs import noted, offer

sql: Final = load(__name__)

ENDED_AT_ONCE: Final = 1_000
IN_LINE: Final = frozenset({State.READY, State.DELAYED})


class Node(Struct, frozen=True):
    """A job to store, and what it waits for: others of the same flow, or jobs that are stored."""

    new: NewJob
    parents: Sequence[int] = ()
    after: Sequence[UUID] = ()


def enqueue_offered(new: Sequence[NewJob], enqueue: Enqueue) -> Operation[list[Answer[Job]]]:
    """Store jobs of which some choose their workers."""

    def steps() -> Steps[list[Answer[Job]]]:
        answers: list[Answer[Job]] = list((yield from enqueue(new).start()))
        for nth, (job, wish) in enumerate(zip(answers, new, strict=True)):
            runs = wish.options.runs
            if runs and isinstance(job, Job) and job.id == wish.id and job.state in IN_LINE:
                yield sql["hold_back"]([{**_place(job), "waits": runs.workers}])
                yield from offer(job.seq, job.topic, job.priority, runs)
                answers[nth] = msgspec.structs.replace(job, state=State.BLOCKED)
        return answers

    return Operation("enqueue_offered", steps, locks=are_keyed(new), wakes=topics_of)


def enqueue_flow(nodes: Sequence[Node], enqueue: Enqueue) -> Operation[list[Answer[Job]]]:
    """Store jobs of which some wait for others, all of them or none.

    Those that are stored already wait for what they were told to wait for then, and no more.
    """

    def steps() -> Steps[list[Answer[Job]]]:
        # What can be refused is refused before anything is stored: the caller may commit the rest.
        new = [node.new for node in nodes]
        before = yield from stored_before(new)
        after = {id for nth, node in enumerate(nodes) if nth not in before for id in node.after}
        found: dict[UUID, Job] = {}
        for id in sorted(after):
            found[id] = yield from _awaited(id)
        jobs = [answered(each) for each in (yield from enqueue(new).start())]
        own = [
            job.id == node.new.id and nth not in before
            for nth, (job, node) in enumerate(zip(jobs, nodes, strict=True))
        ]
        awaited = sorted({parent for node in nodes for parent in node.parents})
        for state in (State.READY, State.DELAYED):
            items = [_place(jobs[n]) for n in awaited if own[n] and jobs[n].state is state]
            if items:
                yield sql[f"await_{state}"](items)
        for nth, node in enumerate(nodes):
            # Where another job holds its key, that one stands for it and waits for nothing.
            if (node.parents or node.after) and own[nth]:
                parents = [found[id] for id in node.after]
                for n in node.parents:
                    parent = jobs[n] if own[n] else (yield from _awaited(jobs[n].id))
                    parents.append(parent)
                jobs[nth] = yield from _linked(jobs[nth], parents)
        return list(jobs)

    locks = are_keyed(node.new for node in nodes)
    return Operation("enqueue_flow", steps, locks=locks, wakes=topics_of)


def _linked(child: Job, parents: Sequence[Job]) -> Steps[Job]:
    """Make a job that was just stored wait for others."""
    links = [_link(parent) for parent in parents]
    items = [{"child": child.seq, "nth": n, **link} for n, link in enumerate(links)]
    if not (yield sql["depend"](items)):
        # Another has stored it since we looked, and has made it wait: it may be let in by now.
        return (yield from get(child.id).start())
    waits = sum(not link["completed"] for link in links)
    if waits:
        yield sql["hold_back"]([{**_place(child), "waits": waits}])
        return msgspec.structs.replace(child, state=State.BLOCKED)
    yield from _filled_in((child.seq, child.body, msgspec.json.encode(child.options)))
    return (yield from get(child.id).start())


def _link(parent: Job) -> dict[str, Any]:
    completed = parent.status is Status.COMPLETED
    return {"parent": parent.seq, "completed": completed, "result": parent.result_body}


def _awaited(id: UUID) -> Steps[Job]:
    """Mark a stored job as one whose end somebody waits for, unless it has completed.

    Marked again by each of them: so it cannot end before they are committed, and overlook them.
    """
    while True:
        rows = yield lookup.sql["get"](id=id)
        if not rows:
            msg = f"there is no job {id} to wait for"
            raise NotFound(msg)
        job = job_from(rows[0])
        if job.status in {Status.FAILED, Status.CANCELLED}:
            msg = f"job {job.id} is {job.state}: what waits for it would never run"
            raise InvalidState(msg)
        if job.status is Status.COMPLETED:
            return job
        if (yield sql[f"await_{job.state}"]([_place(job)])):
            return job


def told(rows: Iterable[Row]) -> Steps[set[str]]:
    """Tell those that wait for ended jobs; return the topics that gained a job."""
    topics: set[str] = set()
    ended = list(rows)
    while ended:
        others, offered = yield from noted(ended)
        topics |= offered
        topics |= yield from _told_of(ended)
        ended = others
    return topics


def _told_of(rows: Sequence[Row]) -> Steps[set[str]]:
    completed = [{"parent": parent, "completed": True} for parent, well in rows if well]
    topics = set[str]()
    if completed:
        topics = yield from _told_of_completed(completed)
        yield sql["forget_ended"](completed)
    yield from _told_of_failed([parent for parent, well in rows if not well])
    return topics


def tell_all() -> Operation[set[str]]:
    """Tell whoever was not told, by one who died half-way."""

    def steps() -> Steps[set[str]]:
        rows = yield sql["ended"](limit=ENDED_AT_ONCE)
        return (yield from told(rows)) if rows else set()

    return Operation("tell_all", steps, wakes=lambda topics: topics)


def _told_of_completed(parents: list[dict[str, Any]]) -> Steps[set[str]]:
    yield sql["note_completed"](parents)
    children = {row[0] for row in (yield sql["hold_children"](parents))}
    if not children:
        return set()
    rows = yield sql["with_all_parents"]([{"seq": seq} for seq in sorted(children)])
    for row in rows:
        yield from _filled_in(row)
    if not rows:
        return set()
    return {row[0] for row in (yield sql["let_in"]([{"seq": row[0]} for row in rows]))}


def _filled_in(row: Row) -> Steps[None]:
    """Give a job what its parents returned, as the argument that takes it."""
    seq, body, options = row
    takes = known_options(options).takes
    if takes is None:
        return
    results = [Raw((row[0] or "null").encode()) for row in (yield sql["results_for"](seq=seq))]
    yield sql["fill_in"](seq=seq, body=body, payload=_with_results(body, takes, results))


def _with_results(body: str, takes: Takes, results: list[Raw]) -> str:
    arguments: dict[str, object] = dict(msgspec.json.decode(body, type=dict[str, Raw]))
    arguments[takes.name] = results if takes.many else results[0]
    return msgspec.json.encode(arguments).decode()


def _told_of_failed(parents: Sequence[int]) -> Steps[None]:
    """Fail those that wait, and those that wait for them."""
    left = list(parents)
    while left:
        parent = left.pop()
        rows = yield sql["say_why"](parent=parent)
        error = _reason(rows[0]) if rows else "a job that this one waits for was deleted"
        failed = yield sql["fail_children"](parent=parent, kind=FailureKind.DEPENDENCY, error=error)
        for child, awaited in failed:
            if awaited:
                left.append(child)
        yield sql["forget_ended"]([{"parent": parent, "completed": False}])


def _reason(row: Row) -> str:
    id, topic, state = row
    what = "was cancelled" if state == State.CANCELLED else "failed"
    return f"job {uuid_from(id)} of topic {topic!r} {what}, and this one waits for it"


def _place(job: Job) -> Mapping[str, Any]:
    return {"seq": job.seq, "topic": job.topic, "priority": job.priority}
