"""Flows: how a job receives the results of the jobs before it; which jobs wait for which."""

from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from towpath.model.pages import JobBrief

T = TypeVar("T")


class Takes(Struct, frozen=True, omit_defaults=True):
    """The argument that receives the results of the previous jobs."""

    name: str
    many: bool = False  # it receives a list of all results, not one result
    most: int | None = None  # bytes of all results; None: not bounded, as one result is by itself


class PartOutcome(Struct, Generic[T], frozen=True, omit_defaults=True):
    """How a part of a group has ended: with a result, or with an error that says why not."""

    result: T | None = None  # what it returned
    error: str | None = None  # why it did not complete; None if it did

    @property
    def ok(self) -> bool:
        """Whether the part has completed."""
        return self.error is None


class FlowGraph(Struct, frozen=True, kw_only=True):
    """The jobs that wait for each other, directly or through others."""

    nodes: list[JobBrief]  # breadth first, from the job that was asked for
    edges: list[tuple[UUID, UUID]]  # a job, and one that waits for it
    gone: int  # jobs that are forgotten already
    whole: bool  # false: there are more


class FlowSummary(Struct, frozen=True, kw_only=True):
    """A flow in a list: its last job, and how far its jobs are."""

    job: JobBrief
    jobs: dict[str, int]  # how many are in each state; `gone` if they are forgotten
    whole: bool  # false: there are more
