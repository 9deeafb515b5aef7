"""Bulk acts: one verb for many jobs, chosen by their ids or by a filter."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.job import Job
from towpath.model.states import STATUS, TRANSITIONS, Action, State, Status


class BulkVerb(StrEnum):
    """What is done to each job."""

    REQUEUE = "requeue"
    KICK = "kick"
    CANCEL = "cancel"
    DELETE = "delete"


class BulkState(StrEnum):
    """How far a bulk act is."""

    WAITING = "waiting"  # until it begins, it can be undone
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


FITTING: Final[Mapping[BulkVerb, frozenset[State]]] = {
    BulkVerb.REQUEUE: TRANSITIONS[Action.REQUEUE][0],
    BulkVerb.KICK: TRANSITIONS[Action.KICK][0],
    # A running job is asked to stop.
    BulkVerb.CANCEL: TRANSITIONS[Action.CANCEL][0] | {State.RESERVED},
    BulkVerb.DELETE: TRANSITIONS[Action.DELETE][0],
}
"""The states in which a job can be treated so."""


class JobChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs: those with these ids, or those that fit all of the filter."""

    ids: Sequence[UUID] | None = None
    topic: str | None = None
    state: State | None = None
    status: Status | None = None
    key: str | None = None
    text: str | None = None  # in the payload, the key or the last error
    error: str | None = None  # in the last error
    since: datetime | None = None  # enqueued then or later
    until: datetime | None = None  # enqueued before

    def states(self, verb: BulkVerb) -> frozenset[State]:
        """Return where the jobs lie that this verb is for; raise Invalid if there are none."""
        found = frozenset(
            state
            for state in FITTING[verb]
            if self.state in {None, state} and self.status in {None, STATUS[state]}
        )
        if not found:
            named = " and ".join(each for each in (self.status, self.state) if each)
            msg = f"{verb} is not for jobs that are {named}; it is for: {_named(FITTING[verb])}"
            raise Invalid(msg)
        return found


class BulkRefusal(Struct, frozen=True):
    """A job that a bulk act left as it was."""

    id: UUID
    code: str  # of the error, such as key_taken


class BulkPreview(Struct, frozen=True, kw_only=True):
    """What a bulk act would do if it began now."""

    count: int  # of jobs
    exact: bool  # if not, there are at least so many
    sample: Sequence[Job]  # some of them
    up_to: int  # the number of the newest job; later ones are not covered
    refused: Mapping[str, int]  # how many would be refused, by code, as far as that is known


class Bulk(Struct, frozen=True, kw_only=True):
    """One verb for many jobs, carried out by upkeep some at a time."""

    id: UUID
    verb: BulkVerb
    choice: JobChoice
    up_to: int  # the number of the newest job that it may touch
    by: str  # the person
    created_at: datetime
    begins_at: datetime
    ended_at: datetime | None
    state: BulkState
    count: int  # how many it would cover when it was made
    exact: bool  # if not, at least so many
    looked: int  # so many jobs that fit were found so far
    done: int
    refused: int
    refusals: Sequence[BulkRefusal]  # the first hundred
    epoch: int  # grows with every round


def _named(states: frozenset[State]) -> str:
    return ", ".join(state for state in State if state in states)
