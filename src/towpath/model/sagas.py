"""The lives of sagas and of delivery jobs, as two tables, and who may do what.

A saga is the delivery of one event to one subscription. A delivery job is one attempt of it. The
tables alone define what may follow what: each statement has its guard, and triggers refuse every
other change, also to the owner of the tables. Of a delivery job that has ended, only this changes:
that its saga has learned the outcome.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class SagaStatus(StrEnum):
    """How far the delivery of an event to a subscription is."""

    PENDING = "Pending"  # waits for its first attempt
    IN_PROGRESS = "InProgress"  # has a delivery job
    PENDING_RETRY = "PendingRetry"  # waits for its next attempt
    HELD = "Held"  # its subscription is paused or stopped
    COMPLETED = "Completed"  # the receiver has taken it
    DEAD_LETTERED = "DeadLettered"  # failed for good; its dead letter can be requeued
    CANCELLED = "Cancelled"  # ended on request


class DeliveryStatus(StrEnum):
    """How far one attempt is."""

    PENDING = "Pending"  # waits for a worker
    LEASED = "Leased"  # a worker makes the attempt
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"  # before a worker took it


class Role(StrEnum):
    """A part of the work on webhooks. On PostgreSQL it may have a role of the database."""

    ROUTER = "router"  # makes sagas of events
    ORCHESTRATOR = "orchestrator"  # makes attempts, and decides what follows from their outcomes
    WORKER = "worker"  # makes the requests and reports what it saw
    CLEANER = "cleaner"  # takes back the leases of workers that are gone
    OPERATOR = "operator"  # reads dead letters and requeues them
    MANAGER = "manager"  # the app itself: may do everything


class SagaAction(StrEnum):
    """What can happen to a saga."""

    ROUTE = "route"
    START = "start"  # an attempt
    COMPLETE = "complete"
    RETRY = "retry"  # the attempt failed, another follows
    GIVE_UP = "give_up"  # the attempt failed and was the last
    HOLD = "hold"
    RELEASE = "release"  # back to where it was held
    EXPIRE = "expire"  # held for too long
    CANCEL = "cancel"
    ASK = "ask"  # to cancel it as soon as its attempt has failed
    STOP = "stop"  # its attempt has failed, and it was asked to
    HASTEN = "hasten"  # its next attempt was too far ahead, as the clock was set back
    REQUEUE = "requeue"  # as a new saga
    RESEND = "resend"  # as a new saga


class DeliveryAction(StrEnum):
    """What can happen to a delivery job."""

    MAKE = "make"
    CLAIM = "claim"
    COMPLETE = "complete"
    FAIL = "fail"
    RESET = "reset"  # its lease ended, and its worker has said nothing
    LOSE = "lose"  # the same, once too often, or its saga is to be cancelled
    DECLINE = (
        "decline"  # its worker cannot open the secrets; the lease ends, and counts for nothing
    )
    ASK = "ask"  # its saga is to be cancelled: if the lease is lost, no attempt follows
    HASTEN = "hasten"  # its lease ended too far ahead, as the clock was set back
    CANCEL = "cancel"


class Transition(NamedTuple):
    """What an action makes of what, and the role that may do it, beside the manager."""

    sources: frozenset[str]  # empty: it makes a new row
    goals: frozenset[str]
    by: Role


def _transition(sources: str, goals: str, by: Role) -> Transition:
    return Transition(frozenset(sources.split()), frozenset(goals.split()), by)


SA, DA, R = SagaAction, DeliveryAction, Role

SAGA_TRANSITIONS: Final[Mapping[SagaAction, Transition]] = {
    # action                  from                         to                      by
    SA.ROUTE:    _transition("",                          "Pending",              R.ROUTER),
    SA.START:    _transition("Pending PendingRetry",      "InProgress",           R.ORCHESTRATOR),
    SA.COMPLETE: _transition("InProgress",                "Completed",            R.ORCHESTRATOR),
    SA.RETRY:    _transition("InProgress",                "PendingRetry",         R.ORCHESTRATOR),
    SA.GIVE_UP:  _transition("InProgress",                "DeadLettered",         R.ORCHESTRATOR),
    SA.HOLD:     _transition("Pending PendingRetry",      "Held",                 R.ORCHESTRATOR),
    SA.RELEASE:  _transition("Held",                      "Pending PendingRetry", R.ORCHESTRATOR),
    SA.EXPIRE:   _transition("Held",                      "DeadLettered",         R.ORCHESTRATOR),
    SA.STOP:     _transition("InProgress",                "Cancelled",            R.ORCHESTRATOR),
    SA.CANCEL:   _transition("Pending PendingRetry Held", "Cancelled",            R.MANAGER),
    SA.ASK:      _transition("InProgress",                "InProgress",           R.MANAGER),
    SA.HASTEN:   _transition("PendingRetry",              "PendingRetry",         R.MANAGER),
    SA.REQUEUE:  _transition("",                          "Pending",              R.OPERATOR),
    SA.RESEND:   _transition("",                          "Pending",              R.MANAGER),
}  # fmt: skip

DELIVERY_TRANSITIONS: Final[Mapping[DeliveryAction, Transition]] = {
    # action                  from         to            by
    DA.MAKE:     _transition("",          "Pending",    R.ORCHESTRATOR),
    DA.CLAIM:    _transition("Pending",   "Leased",     R.WORKER),
    DA.COMPLETE: _transition("Leased",    "Completed",  R.WORKER),
    DA.FAIL:     _transition("Leased",    "Failed",     R.WORKER),
    DA.RESET:    _transition("Leased",    "Pending",    R.CLEANER),
    DA.LOSE:     _transition("Leased",    "Failed",     R.CLEANER),
    DA.DECLINE:  _transition("Leased",    "Leased",     R.WORKER),
    DA.ASK:      _transition("Leased",    "Leased",     R.MANAGER),
    DA.HASTEN:   _transition("Leased",    "Leased",     R.MANAGER),
    DA.CANCEL:   _transition("Pending",   "Cancelled",  R.MANAGER),
}  # fmt: skip

ENDED: Final = frozenset({SagaStatus.COMPLETED, SagaStatus.DEAD_LETTERED, SagaStatus.CANCELLED})

OPERATIONS: Final[Mapping[Role, frozenset[str]]] = {
    # The names of the operations that a role may run; a manager may run all.
    R.ROUTER:       frozenset({"unrouted", "route", "append"}),
    R.ORCHESTRATOR: frozenset({"advance", "next_wake"}),
    R.WORKER:       frozenset(
        {"is_claimable", "claim_deliveries", "report_deliveries", "decline_deliveries"}
    ),
    R.CLEANER:      frozenset({"reset_deliveries"}),
    R.OPERATOR:     frozenset({"list_dead_letters", "get_dead_letter", "requeue_dead_letters"}),
}  # fmt: skip


def may_run(role: Role, operation: str) -> bool:
    """Say whether a role may run the operation of this name."""
    return role is Role.MANAGER or operation in OPERATIONS[role]
