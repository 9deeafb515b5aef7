"""Delivery jobs: workers claim them and report what they saw; the cleaner takes back lost ones.

A claim is one statement. Its number is the token of its leases: every later word presents it, and
a claim whose answer was lost finds its leases by it. A worker has no heartbeat and gives nothing
back: its lease is longer than an attempt can be. Only the cleaner ends a lease that is over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from towpath.errors import LeaseLost, NotFound, TowpathError
from towpath.model.deliveries import (
    LEASE_LOST,
    LEASE_SLACK,
    MOST_LOSSES,
    UNOPENED,
    AttemptOutcome,
)
from towpath.operation import Answer, Batch, Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store.advancing import DELIVERIES
from towpath.store.rows import uuid_from
from towpath.store.sagas import SAGAS

RESET_AT_ONCE: Final = 1_000


class Line(Struct, frozen=True):
    """How many delivery jobs of one kind a worker takes."""

    late: bool  # of receivers that were not prompt lately, or were never asked
    most: int


class ClaimedRow(NamedTuple):
    """A delivery job that was just claimed, and all that the attempt needs."""

    id: int
    saga_id: int
    attempt_no: int
    late: bool | int
    lease_until: int
    now: int
    event: Any
    type: str | None
    at: int
    encoding: str
    payload: str
    subscription: int
    url: str
    body: str
    timeout: int
    sealed: str


class Delivery(Struct, frozen=True, kw_only=True):
    """The right to make one attempt; times in microseconds."""

    job: int
    token: int
    saga: int
    subscription: int
    attempt: int  # from 1 on
    late: bool  # its receiver was not prompt lately
    event: UUID  # the webhook-id
    type: str | None
    at: int  # when the event was published
    encoding: str
    payload: str
    url: str
    body: str  # envelope or payload
    timeout: int
    sealed: str
    until: int
    now: int  # the database's clock at the claim


class Report(Struct, frozen=True):
    """What became of an attempt."""

    job: int
    token: int
    outcome: AttemptOutcome


class NotedReport(NamedTuple):
    """A report that was written down."""

    id: int
    lease_token: int


class LeaseStanding(NamedTuple):
    """A delivery job, as it stands."""

    id: int
    saga_id: int
    status: str
    lease_token: int | None
    lease_until: int | None
    worker_id: str | None
    error_code: str | None


class LostLease(NamedTuple):
    """A lease that was over, and whose worker was not heard of."""

    job: int
    saga: int
    subscription: int
    until: int
    worker: str | None
    lost: bool | int  # once too often, or its saga is to be cancelled: the attempt has failed
    cancelled: bool | int
    declined: bool | int  # by the worker, which could not open the secrets: no loss


class sql(Statements):
    """The statements of deliveries.sql."""

    claim = rows(ClaimedRow)
    claimable = rows(int)
    claimed = rows(ClaimedRow)
    report = rows(NotedReport)
    standing = rows(LeaseStanding)
    decline = no_rows()
    reset = rows(LostLease)


def is_claimable(unable: Collection[int] = ()) -> Operation[bool]:
    """Say whether a delivery job waits for a worker."""

    def steps() -> Steps[bool]:
        return bool((yield from sql.claimable(unable=_numbers(unable))))

    return Operation("is_claimable", steps, Mode.READ, autocommit=True)


def claim(
    lines: Sequence[Line], token: int, worker: str, unable: Collection[int] = ()
) -> Operation[list[Delivery]]:
    """Take delivery jobs to make their attempts, the oldest of each line first.

    Those of the subscriptions `unable` are left to workers that can open their secrets. They are
    few: a subscription has no more delivery jobs than it may have at once.
    """

    def steps() -> Steps[list[Delivery]]:
        items = [asdict(line) for line in lines if line.most > 0]
        if not items:
            return []
        found = yield from sql.claim(
            items, token=token, worker=worker, slack=LEASE_SLACK, unable=_numbers(unable)
        )
        return [_delivery(row, token) for row in sorted(found)]

    def again() -> Steps[list[Delivery]]:
        found = yield from sql.claimed(token=token)
        if found:
            return [_delivery(row, token) for row in sorted(found)]
        return (yield from steps())

    return Operation("claim_deliveries", steps, autocommit=True, retry=again)


def _numbers(ids: Collection[int]) -> str:
    return msgspec.json.encode(sorted(ids)).decode()


def _delivery(row: ClaimedRow, token: int) -> Delivery:
    return Delivery(
        job=row.id,
        token=token,
        saga=row.saga_id,
        subscription=row.subscription,
        attempt=row.attempt_no,
        late=bool(row.late),
        event=uuid_from(row.event),
        type=row.type,
        at=row.at,
        encoding=row.encoding,
        payload=row.payload,
        url=row.url,
        body=row.body,
        timeout=row.timeout,
        sealed=row.sealed,
        until=row.lease_until,
        now=row.now,
    )


def report(reports: Sequence[Report]) -> Operation[list[Answer[None]]]:
    """Note how attempts went. A report that is said again holds once; a stale one is refused."""

    def steps() -> Steps[Changed[list[Answer[None]]]]:
        items = [
            {
                "job": each.job,
                "token": each.token,
                "status": each.outcome.status.value,
                **asdict(each.outcome),
            }
            for each in sorted(reports, key=lambda each: each.job)  # locks rows in one order
        ]
        noted = set((yield from sql.report(items)))
        left = [each for each in reports if (each.job, each.token) not in noted]
        refused = (yield from _refused(left)) if left else {}
        answers = [refused.get((each.job, each.token)) for each in reports]
        return Changed(answers, others=[SAGAS] if noted else [])

    return Operation("report_deliveries", steps, autocommit=True, batch=Batch(reports, report))


def _refused(
    reports: Sequence[Report],
) -> Steps[dict[tuple[int, int], TowpathError | None]]:
    """Say why reports were not noted: they hold already, or their leases were lost."""
    found = yield from sql.standing([{"job": each.job} for each in reports])
    standing = {row.id: row for row in found}
    return {(each.job, each.token): _why(each, standing.get(each.job)) for each in reports}


def _why(each: Report, row: LeaseStanding | None) -> TowpathError | None:
    if row is None:
        return NotFound(f"there is no delivery job {each.job}; its saga was forgotten")
    if (row.lease_token, row.status) == (each.token, each.outcome.status.value):
        return None
    return LeaseLost(
        f"the lease of delivery job {each.job} was lost; it is {row.status}, and its outcome is "
        "that of another attempt"
    )


def decline(claimed: Sequence[Delivery]) -> Operation[None]:
    """End leases whose secrets the worker cannot open; no loss is counted, others may be able to.

    A lease that was lost before stays lost.
    """

    def steps() -> Steps[None]:
        yield sql.decline(
            [{"job": each.job, "token": each.token} for each in claimed], unopened=UNOPENED
        )

    return Operation("decline_deliveries", steps, autocommit=True)


def reset(limit: int = RESET_AT_ONCE) -> Operation[list[LostLease]]:
    """Take back leases that are over: the jobs wait again, or have failed after five losses.

    One whose saga is to be cancelled has failed at the first.
    """

    def steps() -> Steps[Changed[list[LostLease]]]:
        found = yield from sql.reset(
            limit=limit, most=MOST_LOSSES, error=LEASE_LOST, unopened=UNOPENED
        )
        return Changed(found, others=[SAGAS, DELIVERIES] if found else [])

    return Operation("reset_deliveries", steps, autocommit=True)
