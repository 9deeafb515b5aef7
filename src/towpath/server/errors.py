"""How an error is answered: one shape, `{code, message, details}`, and one table of statuses.

400  the request makes no sense          409  the state does not allow it
401  nobody is logged in                 413  the body is too large
403  not for this caller                 429  a limit was reached
404  there is no such thing, or not      500  our fault
for this caller                     503  the database is away; 507 it is full
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from towpath import errors
from towpath.errors import TowpathError
from towpath.server.outputs import Complaint

log: Final = logging.getLogger("towpath")

STATUS: Final[Mapping[type[TowpathError], int]] = {
    errors.TowpathError: 500,
    errors.Invalid: 400,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.LimitReached: 429,
    errors.TouchLimitExceeded: 409,
    errors.Timeout: 504,
    errors.SandboxFailed: 500,
    errors.AppClosed: 503,
    errors.ExtraMissing: 500,
    errors.InvalidToken: 401,
    errors.LoginRefused: 400,
    errors.DatabaseError: 500,
    errors.DatabaseUnavailable: 503,
    errors.DatabaseBusy: 503,
    errors.DatabaseFull: 507,
    errors.DatabaseReadOnly: 503,
    errors.SchemaMissing: 503,
    errors.SchemaTooNew: 503,
}
"""An error that is not here has the status of the nearest one above it in the tree."""

RETRY_LATER: Final = {429, 503}


class Refusal(Exception):
    """A request that never reaches the app."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = dict(details or {})
        self.headers = dict(headers or {})


def status_of(error: type[TowpathError]) -> int:
    """Return the status that stands for an error."""
    return next(STATUS[kind] for kind in error.__mro__ if kind in STATUS)


def refusal(error: Exception) -> Refusal:
    """Return the answer to an error; what nobody foresaw is logged, and told to nobody."""
    if isinstance(error, Refusal):
        return error
    if not isinstance(error, TowpathError):
        log.error("a request failed", exc_info=error)
        return Refusal(500, "internal", "something went wrong here; the server's log says what")
    status = status_of(type(error))
    headers: dict[str, str] = {}
    if status in RETRY_LATER:
        headers["retry-after"] = str(max(1, round(getattr(error, "retry_after", 1))))
    if isinstance(error, errors.DatabaseError):
        log.warning("a request failed: %s", error)
        # What the driver says may name hosts, users and statements.
        return Refusal(status, error.code, type(error).__doc__ or error.code, headers=headers)
    details: dict[str, Any] = {}
    if isinstance(error, errors.InvalidRule):
        details = {"rule": error.rule, "position": error.position}
    return Refusal(status, error.code, str(error), details=details, headers=headers)


def body_of(refused: Refusal) -> bytes:
    """Return a refusal in the one shape."""
    complaint = Complaint(code=refused.code, message=str(refused), details=refused.details)
    return msgspec.json.encode(complaint)
