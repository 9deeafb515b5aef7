"""Flows as graphs: which jobs wait or waited for which, within bounds.

The rows of `dependency` live as long as the job that waited. So a job that was forgotten before it
is still counted, as gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from towpath.model.flows import FlowGraph, FlowSummary
from towpath.model.pages import JobBrief
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statements, rows
from towpath.store import listing

MOST_NODES: Final = 500  # of one flow
MOST_COUNTED: Final = 100  # of each flow in a list
MOST_EDGES: Final = 5_000  # that one step reads
WINDOW: Final = 1_000  # jobs among which a page looks for the last ones of flows
GONE: Final = "gone"


class Edge(NamedTuple):
    """A job, and one that waits for it."""

    parent: int
    child: int


class LastJob(NamedTuple):
    """A job that waits for others, and whether none waits for it."""

    seq: int
    is_last: bool | int


class StateRow(NamedTuple):
    """Where the ticket of a job lies."""

    seq: int
    state: str


class sql(Statements):
    """The statements of graphs.sql."""

    neighbours = rows(Edge)
    last_of_flows = rows(LastJob)
    states_of_flows = rows(StateRow)


class _Walk:
    """The flows of some jobs, each found breadth first up to a number of nodes."""

    def __init__(self, starts: Sequence[int], most: int) -> None:
        self.flows = {start: {start: None} for start in starts}  # nodes in the order of their find
        self.edges: set[Edge] = set()
        self.cut: set[int] = set()  # flows that have more nodes
        self._most = most
        self._edge_of = {start: {start} for start in starts}  # the nodes that were found last

    def frontier(self) -> set[int]:
        return {seq for found in self._edge_of.values() for seq in found}

    def go_on(self, edges: Sequence[Edge]) -> None:
        beside: dict[int, list[int]] = {}
        for edge in edges:
            beside.setdefault(edge.parent, []).append(edge.child)
            beside.setdefault(edge.child, []).append(edge.parent)
        self.edges.update(edges)
        for start, nodes in self.flows.items():
            found: dict[int, None] = {}
            for seq in self._edge_of[start]:
                found.update((each, None) for each in beside.get(seq, ()) if each not in nodes)
            if len(nodes) + len(found) > self._most:
                self.cut.add(start)
            new = list(found)[: self._most - len(nodes)]
            nodes.update((each, None) for each in new)
            self._edge_of[start] = set(new)


def _walked(starts: Sequence[int], most: int) -> Steps[_Walk]:
    walk = _Walk(starts, most)
    while frontier := walk.frontier():
        items = [{"seq": seq} for seq in sorted(frontier)]
        edges = yield from sql.neighbours(items, most=MOST_EDGES)
        walk.go_on(edges)
        if len(edges) == MOST_EDGES:
            walk.cut.update(walk.flows)
    return walk


def flow(seq: int, redact: str) -> Operation[FlowGraph]:
    """Read the flow that a job belongs to."""

    def steps() -> Steps[FlowGraph]:
        walk = yield from _walked([seq], MOST_NODES)
        numbers = list(walk.flows[seq])
        briefs = yield from listing.briefs(numbers, redact).inside()
        ids = {brief.seq: brief.id for brief in briefs}
        return FlowGraph(
            nodes=briefs,
            edges=[
                (ids[edge.parent], ids[edge.child])
                for edge in sorted(walk.edges)
                if edge.parent in ids and edge.child in ids
            ],
            gone=len(numbers) - len(briefs),
            whole=not walk.cut,
        )

    return Operation("flow", steps, Mode.SCAN, autocommit=True)


def flows(
    before: int | None, limit: int, redact: str
) -> Operation[tuple[list[FlowSummary], int | None]]:
    """Read a page of flows, newest first by their last jobs; and where the next page begins."""

    def steps() -> Steps[tuple[list[FlowSummary], int | None]]:
        looked = yield from sql.last_of_flows(before=before, window=WINDOW)
        found = [row.seq for row in looked if row.is_last][: limit + 1]
        more = len(found) > limit
        last = found[:limit]
        if more:
            next_at: int | None = last[-1]
        else:
            next_at = looked[-1].seq if len(looked) == WINDOW else None
        walk = yield from _walked(last, MOST_COUNTED)
        states = yield from _states(walk.flows.values())
        briefs = yield from listing.briefs(last, redact).inside()
        return [_summary(each, walk, states) for each in briefs], next_at

    return Operation("flows", steps, Mode.SCAN, autocommit=True)


def _states(flows: Iterable[Iterable[int]]) -> Steps[dict[int, str]]:
    numbers = sorted({seq for nodes in flows for seq in nodes})
    if not numbers:
        return {}
    found = yield from sql.states_of_flows([{"seq": seq} for seq in numbers])
    return {row.seq: row.state for row in found}


def _summary(brief: JobBrief, walk: _Walk, states: Mapping[int, str]) -> FlowSummary:
    nodes = walk.flows[brief.seq]
    return FlowSummary(
        job=brief,
        jobs=dict(Counter(states.get(seq, GONE) for seq in nodes)),
        whole=brief.seq not in walk.cut,
    )
