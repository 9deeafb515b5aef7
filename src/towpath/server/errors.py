"""How errors are answered: all as `{code, message, details}`, with the status of one table.

400  the request is not valid            413  the body or payload is too large
401  the caller is not logged in         429  a limit is reached
403  the caller may not do this          500  a fault of the server
404  it does not exist, or is hidden     503  the database is not available
409  the state does not allow it         507  the database is full
410  it was there, and is gone
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
    errors.PayloadTooLarge: 413,  # as a body that is too large to be read
    errors.NotFound: 404,
    errors.ChannelGone: 410,
    errors.CursorReset: 410,
    errors.ProducerFenced: 403,
    errors.ConsumerTaken: 403,
    errors.Conflict: 409,
    errors.CursorReset: 410,
    errors.LimitReached: 429,
    errors.TouchLimitExceeded: 409,
    errors.Timeout: 504,
    errors.SandboxFailed: 500,
    errors.StreamBehind: 500,
    errors.AppClosed: 503,
    errors.ExtraMissing: 500,
    errors.InvalidToken: 401,
    errors.InvalidSignature: 401,
    errors.LoginRefused: 400,
    errors.DatabaseError: 500,
    errors.DatabaseUnavailable: 503,
    errors.DatabaseBusy: 503,
    errors.DatabaseFull: 507,
    errors.DatabaseReadOnly: 503,
    errors.SchemaMissing: 503,
    errors.SchemaTooNew: 503,
}
"""An error that is not listed has the status of its nearest listed base class."""

DATABASE_MESSAGES: Final[Mapping[type[TowpathError], str]] = {
    errors.DatabaseError: "the database refused this; nothing was stored",
    errors.DatabaseUnavailable: "the database cannot be reached; try again later",
    errors.DatabaseBusy: "the database is busy; try again later",
    errors.DatabaseFull: "the database has no space left; nothing was stored",
    errors.DatabaseReadOnly: "the database takes no writes at the moment; try again later",
    errors.DatabaseDenied: "the database refuses the server's login; the server's log says why",
    errors.NotADatabase: "the server cannot read its database; the server's log says why",
    errors.IncompatibleData: "this version of the server cannot read the stored job",
    errors.SchemaMissing: "the server's database is not set up; try again later",
    errors.SchemaTooNew: "the server is older than its database; try again later",
}
"""Messages for clients. The text of the driver may name hosts, users and statements."""

RETRY_LATER: Final = {429, 503}


class Refusal(Exception):
    """An error with everything that its answer needs."""

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
    """Return the HTTP status of an error."""
    return next(STATUS[kind] for kind in error.__mro__ if kind in STATUS)


def refusal(error: Exception) -> Refusal:
    """Return the answer to an error; an unexpected one is logged and not shown."""
    if isinstance(error, Refusal):
        return error
    if not isinstance(error, TowpathError):
        log.error("a request failed", exc_info=error)
        return Refusal(500, "internal", "the server failed to answer; its log says why")
    status = status_of(type(error))
    headers: dict[str, str] = {}
    if status in RETRY_LATER:
        headers["retry-after"] = str(max(1, round(getattr(error, "retry_after", 1))))
    if isinstance(error, errors.DatabaseError):
        log.warning("a request failed: %s", error)
        return Refusal(status, error.code, _database_message(type(error)), headers=headers)
    details: dict[str, Any] = {}
    if isinstance(error, errors.InvalidRule):
        details = {"rule": error.rule, "position": error.position}
    elif isinstance(error, errors.CursorReset):
        details = {"reason": error.reason, "oldest": error.oldest, "head": error.head}
    elif isinstance(error, errors.WordsMissing):
        details = {"said": error.said}
    return Refusal(status, error.code, str(error), details=details, headers=headers)


def _database_message(error: type[TowpathError]) -> str:
    return next(DATABASE_MESSAGES[kind] for kind in error.__mro__ if kind in DATABASE_MESSAGES)


def body_of(refused: Refusal) -> bytes:
    """Return the JSON of a refusal."""
    complaint = Complaint(code=refused.code, message=str(refused), details=refused.details)
    return msgspec.json.encode(complaint)
