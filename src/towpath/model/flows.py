"""How a job receives the results of the jobs that it waited for."""

from typing import Generic, TypeVar

from msgspec import Struct

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
