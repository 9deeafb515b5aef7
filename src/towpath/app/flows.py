"""Flows: calls of tasks of which some wait for others, stored together.

`(fetch.s(url) | parse.s() | store.s("table")).enqueue()` runs one step after the other; each step
gets the result of the previous one as its first argument, if that parameter is still free.
`group(resize.s(1), resize.s(2)).then(pack.s())` runs a group in parallel and passes a list of the
results; in `split.s(file) | group(…)` each part gets the result of the step. If a job is buried,
the jobs that wait for it fail with that reason; if it is requeued, they wait again.
`group(…).outcomes().then(pack.s())` goes on when all have ended, good or bad, and passes a list of
outcomes.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Union, overload

import msgspec
from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.flows import Takes
from towpath.operation import answered
from towpath.store.dependencies import Node

if TYPE_CHECKING:
    from towpath.app.tasks import CallOptions, Task, TaskJob

R = TypeVar("R")


class Flow:
    """A part of a flow: a step, a chain or a group."""

    def build(self, plan: "FlowPlan", before: "Before") -> "Before":
        """Add its calls to a plan; return the calls that the next part waits for."""
        raise NotImplementedError

    def in_turn(self) -> "Sequence[Flow]":
        """Return its parts that run one after the other."""
        return (self,)

    @overload
    def __or__(self, then: "Step[R] | Chain[R]") -> "Chain[R]": ...

    @overload
    def __or__(self, then: "Group") -> "Group": ...

    def __or__(self, then: "Step[Any] | Chain[Any] | Group") -> "Chain[Any] | Group":
        """Continue when this has completed; a step, or each part of a group, gets the result."""
        _check(then)
        return then.after(self.in_turn())


class Step(Flow, Generic[R]):
    """A call of a task as a part of a flow, made by `task.s(…)`; `step | step` is a chain."""

    def __init__(
        self,
        task: "Task[Any]",
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
        """Wait for the previous step, but do not take its result."""
        step = Step[R](self.task, self.args, self.kwargs, self.options)
        step._takes = False
        return step

    def after(self, parts: Sequence[Flow]) -> "Chain[R]":
        """Return a chain of other parts and this step."""
        return Chain(parts, self)

    def build(self, plan: "FlowPlan", before: "Before") -> "Before":
        """Add its call to a plan."""
        most = plan.most
        if before.nodes and self._takes:
            body, name = self.task.signature.encode_step(self.args, self.kwargs, most)
        else:
            body, name = self.task.signature.encode(self.args, self.kwargs, most), None
        takes = Takes(name, before.many, most if before.many else None) if name else None
        new = self.task.new(body, self.options, plan.around)
        if takes:
            options = msgspec.structs.replace(new.options, takes=takes)
            new = msgspec.structs.replace(new, options=options)
        plan.nodes.append(Node(new, before.nodes, goes_on=before.goes_on))
        return Before((len(plan.nodes) - 1,), many=False)

    async def aenqueue(self, *, connection: object = None) -> "TaskJob[R]":
        """Store this call."""
        return await Chain((), self).aenqueue(connection=connection)

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def enqueue(self, *, connection: object = None) -> "TaskJob[R]":
        """Store this call."""
        return Chain((), self).enqueue(connection=connection)


class Chain(Flow, Generic[R]):
    """Parts that run one after the other, made by `|`: `fetch.s(url) | parse.s()`.

    Each step gets the result of the previous one as its first argument, if that is still free. In
    `fetch.s(url) | group(…)` each part of the group gets it.
    """

    def __init__(self, parts: Sequence[Flow], last: Step[R]) -> None:
        self._parts = parts
        self._last = last

    def in_turn(self) -> Sequence[Flow]:
        """Return its parts that run one after the other."""
        return (*self._parts, self._last)

    def after(self, parts: Sequence[Flow]) -> "Chain[R]":
        """Return a chain of other parts and these."""
        return Chain((*parts, *self._parts), self._last)

    def build(self, plan: "FlowPlan", before: "Before") -> "Before":
        """Add its calls to a plan."""
        for part in self.in_turn():
            before = part.build(plan, before)
        return before

    async def aenqueue(self, *, connection: object = None) -> "TaskJob[R]":
        """Store all calls; return the last job, whose result is that of the chain."""
        task = self._last.task
        with ExitStack() as around:
            operation = task.app.storing.flow(self.nodes(around))
            jobs = await task.app.arun(operation, connection)
        return task.job(answered(jobs[-1]))

    def nodes(self, around: ExitStack) -> list[Node]:
        """Return its calls, and enter the middleware of each enqueue."""
        plan = FlowPlan(self._last.task.app.settings.max_payload, around, [])
        self.build(plan, Before())
        if len({node.new.id for node in plan.nodes}) < len(plan.nodes):
            msg = "several steps of the flow have the same `id`; give each its own"
            raise Invalid(msg)
        return plan.nodes

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def enqueue(self, *, connection: object = None) -> "TaskJob[R]":
        """Store all calls; return the last job, whose result is that of the chain."""
        task = self._last.task
        with ExitStack() as around:
            operation = task.app.storing.flow(self.nodes(around))
            jobs = task.app.run(operation, connection)
        return task.job(answered(jobs[-1]))


class Group(Flow):
    """Parts that run in parallel, made by `group(…)`; `.then(step)` makes a chain of it.

    `fetch.s(url) | group(…)` is a group that waits for a step.
    """

    def __init__(self, parts: Sequence[Union[Step[Any], Chain[Any]]]) -> None:  # noqa: UP007 - one is a string
        if not parts:
            msg = "a group is empty; pass at least one step"
            raise Invalid(msg)
        for part in parts:
            _check(part)
        self._parts = parts
        self._before: Sequence[Flow] = ()
        self._goes_on = False

    def after(self, parts: Sequence[Flow]) -> "Group":
        """Return a group that waits for other parts, which run one after the other."""
        return self._copy((*parts, *self._before), goes_on=self._goes_on)

    def in_turn(self) -> Sequence[Flow]:
        """Return its parts that run one after the other; the last one is the group alone."""
        return (*self._before, self._copy((), goes_on=self._goes_on))

    def outcomes(self) -> "Group":
        """Continue when all have ended, good or bad, with a list of their outcomes.

        A part has ended when it has completed, failed for good or expired, or was cancelled or
        deleted. The next step waits again for a part that is requeued, unless it has gone on.
        """
        return self._copy(self._before, goes_on=True)

    def enqueue(self) -> NoReturn:
        """Refuse: a flow that ends in a group has no result."""
        msg = "a flow cannot end in a group; add `.then(step)`, or enqueue the parts separately"
        raise Invalid(msg)

    def then(self, last: Step[R] | Chain[R]) -> Chain[R]:
        """Continue when all have completed, with a list of their results."""
        return self | last

    def build(self, plan: "FlowPlan", before: "Before") -> "Before":
        """Add its calls to a plan."""
        for part in self._before:
            before = part.build(plan, before)
        ends = [end for part in self._parts for end in part.build(plan, before).nodes]
        return Before(tuple(ends), many=True, goes_on=self._goes_on)

    def _copy(self, before: Sequence[Flow], *, goes_on: bool) -> "Group":
        copy = Group(self._parts)
        copy._before = before
        copy._goes_on = goes_on
        return copy


def _check(part: Flow) -> None:
    """Raise Invalid if this is no part of a flow."""
    if not isinstance(part, Flow):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"a part of a flow must be a step such as task.s(), not {part!r}"
        raise Invalid(msg)


def group(*parts: Step[Any] | Chain[Any]) -> Group:
    """Run steps and chains in parallel; `.then(step)` runs when all have completed.

    With `.outcomes().then(step)` it runs when all have ended, also where parts failed.
    """
    return Group(parts)


class FlowPlan(Struct):
    """The calls of a flow, in the order in which they are stored."""

    most: int  # bytes of a payload
    around: ExitStack  # the middleware of each enqueue
    nodes: list[Node]


class Before(Struct, frozen=True):
    """The calls that a step waits for."""

    nodes: tuple[int, ...] = ()
    many: bool = False  # their results are passed as a list
    goes_on: bool = False  # however they end
