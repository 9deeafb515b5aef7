"""What the log tells of a delivery: a sentence, and the same five fields each time (WH-12)."""

import logging
from collections.abc import Iterable
from typing import Final

from towpath.model.deliveries import LEASE_LOST, UNOPENED
from towpath.model.instants import as_datetime
from towpath.store.deliveries import LostLease

log: Final = logging.getLogger("towpath")


def tell(
    level: int,
    message: str,
    *,
    saga: int,
    job: int | None = None,
    error: str | None = None,
    until: int | None = None,  # when the lease ends, or has ended
    worker: str | None = None,
) -> None:
    """Log what has become of a delivery job."""
    if not log.isEnabledFor(level):
        return
    fields = {
        "saga_id": saga,
        "job_id": job,
        "error_code": error,
        "lease_expiration": None if until is None else as_datetime(until).isoformat(),
        "worker_id": worker,
    }
    shown = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
    log.log(level, "%s: %s", message, shown, extra=fields)


def tell_lost(leases: Iterable[LostLease]) -> None:
    """Log which leases were taken back."""
    for each in leases:
        message = "a lease was taken back"
        if each.lost:
            message = (
                "the attempt of a saga that is to be cancelled was lost"
                if each.cancelled
                else "an attempt was lost once too often"
            )
        tell(
            logging.WARNING,
            message,
            saga=each.saga,
            job=each.job,
            error=UNOPENED if each.declined else LEASE_LOST,
            until=each.until,
            worker=each.worker,
        )
