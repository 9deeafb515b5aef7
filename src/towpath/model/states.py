"""The life of a job, as one table.

A job's state is the table in which its ticket lies. TRANSITIONS alone defines the allowed actions;
`tests/behaviour/test_transitions.py` tries every action in every state on every database.
"""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a job's ticket lies."""

    DELAYED = "delayed"  # waiting for its time
    READY = "ready"  # waiting for a worker
    BLOCKED = "blocked"  # waiting for its limit or for other jobs
    RESERVED = "reserved"  # leased to a worker
    COMPLETED = "completed"  # finished with success
    BURIED = "buried"  # failed for the last time, or put aside; needs a kick or a requeue
    CANCELLED = "cancelled"  # stopped on request


class Status(StrEnum):
    """A summary of a job's state, for people."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Action(StrEnum):
    """What can happen to a job."""

    PROMOTE = "promote"  # its time has come
    PARK = "park"  # its limit is reached
    UNPARK = "unpark"  # its limit allows it again
    RESERVE = "reserve"
    PICK = "pick"  # reserve by number
    COMPLETE = "complete"
    BACK_OFF = "back_off"  # this try failed, another follows
    GIVE_UP = "give_up"  # this try failed and was the last
    RELEASE = "release"
    POSTPONE = "postpone"  # release with a delay
    BURY = "bury"
    RESCUE = "rescue"  # its lease ended
    DISCARD = "discard"  # delete with a lease; no record is kept
    KICK = "kick"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    DELETE = "delete"


S, A = State, Action

STATUS: Final = {
    S.DELAYED: Status.PENDING,
    S.READY: Status.PENDING,
    S.BLOCKED: Status.PENDING,
    S.RESERVED: Status.PROCESSING,
    S.COMPLETED: Status.COMPLETED,
    S.BURIED: Status.FAILED,
    S.CANCELLED: Status.CANCELLED,
}

TRANSITIONS: Final[dict[Action, tuple[frozenset[State], State | None]]] = {
    # action      from                                                        to (None: gone)
    A.PROMOTE:  (frozenset({S.DELAYED}),                                      S.READY),
    A.PARK:     (frozenset({S.READY}),                                        S.BLOCKED),
    A.UNPARK:   (frozenset({S.BLOCKED}),                                      S.READY),
    A.RESERVE:  (frozenset({S.READY}),                                        S.RESERVED),
    A.PICK:     (frozenset({S.READY, S.DELAYED, S.BURIED}),                   S.RESERVED),
    A.COMPLETE: (frozenset({S.RESERVED}),                                     S.COMPLETED),
    A.BACK_OFF: (frozenset({S.RESERVED}),                                     S.DELAYED),
    A.GIVE_UP:  (frozenset({S.RESERVED}),                                     S.BURIED),
    A.RELEASE:  (frozenset({S.RESERVED}),                                     S.READY),
    A.POSTPONE: (frozenset({S.RESERVED}),                                     S.DELAYED),
    A.BURY:     (frozenset({S.RESERVED}),                                     S.BURIED),
    A.RESCUE:   (frozenset({S.RESERVED}),                                     S.READY),
    A.DISCARD:  (frozenset({S.RESERVED}),                                     None),
    A.KICK:     (frozenset({S.BURIED, S.DELAYED}),                            S.READY),
    A.REQUEUE:  (frozenset({S.BURIED, S.CANCELLED}),                          S.READY),
    A.CANCEL:   (frozenset({S.DELAYED, S.READY, S.BLOCKED}),                  S.CANCELLED),
    A.DELETE:   (frozenset(set(S) - {S.RESERVED, S.COMPLETED}),               None),
}  # fmt: skip


def allows(state: State, action: Action) -> bool:
    """Say whether the table allows this action in this state."""
    return state in TRANSITIONS[action][0]
