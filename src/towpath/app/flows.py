"""Flows: calls of tasks of which some wait for others, stored all at once.

`(fetch.s(url) | parse.s() | store.s("table")).enqueue()` runs one after the other; each gets what
the one before it returned as its first argument, if it has room for one more.
`group(resize.s(1), resize.s(2)).then(pack.s())` runs a group at once and passes a list of what they
returned. If one fails for good, those that wait for it fail too and say why; requeue it, and they
wait again.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Union

import msgspec
from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.flows import Takes
from towpath.operation import answered
from towpath.store.dependencies import Node

if TYPE_CHECKING:
    from towpath.app.tasks import CallOptions, Task, TaskJob

R = TypeVar("R")
T = TypeVar("T")


class Flow:
    """Something that can be enqueued, alone or after something else."""

    def build(self, plan: "FlowPlan", before: "Before") -> "Before":
        """Add its calls to a plan; return what comes after it has to wait for."""
        raise NotImplementedError

    def __or__(self, then: "Step[R]") -> "Chain[R]":
        """Go on with a step when this has completed."""
        return Chain((self,), _step(then))


class Step(Flow, Generic[R]):
    """A call of a task, to be enqueued with others."""

    def __init__(
        self,
        task: "Task[..., R]",
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: "CallOptions",
    ) -> None:
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.options = options
        self._takes = True

    def regardless(self) -> "Step[R]":
        """Wait for what comes before, but take nothing from it."""
        step = Step(self.task, self.args, self.kwargs, self.options)
        step._takes = False
        return step

    def build(self, plan: "FlowPlan", before: "Before") -> "Before":
        """Add its call to a plan."""
        most = plan.most
        if before.nodes and self._takes:
            body, name = self.task.signature.encode_step(self.args, self.kwargs, most)
        else:
            body, name = self.task.signature.encode(self.args, self.kwargs, most), None
        takes = Takes(name, before.many) if name else None
        new = self.task.new(body, self.options, plan.around)
        if takes:
            options = msgspec.structs.replace(new.options, takes=takes)
            new = msgspec.structs.replace(new, options=options)
        plan.nodes.append(Node(new, before.nodes))
        return Before((len(plan.nodes) - 1,), many=False)

    async def aenqueue(self) -> "TaskJob[R]":
        """Store this call."""
        return await Chain((), self).aenqueue()

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def enqueue(self) -> "TaskJob[R]":
        """Store this call."""
        return Chain((), self).enqueue()


class Chain(Flow, Generic[R]):
    """One after the other."""

    def __init__(self, parts: Sequence[Flow], last: Step[R]) -> None:
        self._parts = parts
        self._last = last

    def __or__(self, then: Step[T]) -> "Chain[T]":
        """Go on with another step."""
        return Chain((*self._parts, self._last), _step(then))

    def build(self, plan: "FlowPlan", before: "Before") -> "Before":
        """Add its calls to a plan."""
        for part in (*self._parts, self._last):
            before = part.build(plan, before)
        return before

    async def aenqueue(self, *, connection: object = None) -> "TaskJob[R]":
        """Store all of its calls; return the last one, whose result is that of the chain."""
        task = self._last.task
        with ExitStack() as around:
            operation = task.app.storing.flow(self.nodes(around))
            jobs = await task.app.arun(operation, connection)
        return task.job(answered(jobs[-1]))

    def nodes(self, around: ExitStack) -> list[Node]:
        """Return its calls, and enter what is to be around their enqueue."""
        plan = FlowPlan(self._last.task.app.settings.max_payload, around, [])
        self.build(plan, Before())
        if len({node.new.id for node in plan.nodes}) < len(plan.nodes):
            msg = "one id cannot name several steps of a flow"
            raise Invalid(msg)
        return plan.nodes

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def enqueue(self, *, connection: object = None) -> "TaskJob[R]":
        """Store all of its calls; return the last one, whose result is that of the chain."""
        task = self._last.task
        with ExitStack() as around:
            operation = task.app.storing.flow(self.nodes(around))
            jobs = task.app.run(operation, connection)
        return task.job(answered(jobs[-1]))


class Group(Flow):
    """All at once."""

    def __init__(self, parts: Sequence[Union[Step[Any], Chain[Any]]]) -> None:  # noqa: UP007 - one is a string
        if not parts:
            msg = "a group of nothing never completes"
            raise Invalid(msg)
        for part in parts:
            if not isinstance(part, Flow):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
                _step(part)
        self._parts = parts

    def enqueue(self) -> NoReturn:
        """Refuse: nobody would wait for it."""
        msg = "a group goes on with `.then(step)`; without one, enqueue its parts"
        raise Invalid(msg)

    def then(self, last: Step[R]) -> Chain[R]:
        """Go on when all have completed, with a list of what they returned."""
        return self | last

    def build(self, plan: "FlowPlan", before: "Before") -> "Before":
        """Add its calls to a plan."""
        ends = [end for part in self._parts for end in part.build(plan, before).nodes]
        return Before(tuple(ends), many=True)


def _step(then: Step[R]) -> Step[R]:
    if isinstance(then, Step):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        return then
    msg = f"a flow is made of steps, such as task.s(), not of {then!r}"
    raise Invalid(msg)


def group(*parts: Step[Any] | Chain[Any]) -> Group:
    """Run steps and chains at once; `.then(step)` goes on when all have completed."""
    return Group(parts)


class FlowPlan(Struct):
    """The calls of a flow, in the order in which they are stored."""

    most: int  # bytes of a payload
    around: ExitStack  # what is done around the enqueue of each
    nodes: list[Node]


class Before(Struct, frozen=True):
    """What a step waits for."""

    nodes: tuple[int, ...] = ()
    many: bool = False  # their results are passed as a list
