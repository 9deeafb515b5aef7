"""From rows to values."""

from datetime import datetime
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from towpath.errors import IncompatibleData
from towpath.model.instants import as_datetime, as_timedelta
from towpath.model.job import Job, Lease, Options, UnreadableJob
from towpath.model.payload import Encoding
from towpath.model.states import State
from towpath.operation import Row

_STATES: Final = {state.value: state for state in State}
_ENCODINGS: Final = frozenset(Encoding)
_DEFAULTS: Final = Options()
_options: Final = msgspec.json.Decoder(Options)


def job_from(row: Row) -> Job:
    """Read a row of the view `located`."""
    id = row[1] if type(row[1]) is UUID else uuid_from(row[1])
    text, encoding = row[9], row[7]
    try:
        options = _DEFAULTS if text is None else options_from(text)
        if encoding not in _ENCODINGS:
            _refuse(encoding)
    except IncompatibleData as error:
        msg = f"job {id}: {error}; upgrade this process, or delete the job"
        raise IncompatibleData(msg) from error
    created_at = as_datetime(row[10])
    return Job(
        row[0],
        id,
        row[2],
        _STATES[row[3]],
        row[4],
        row[5],
        row[6],
        encoding,
        as_timedelta(row[8]),
        options,
        created_at,
        created_at if row[11] == row[10] else as_datetime(row[11]),
        row[12],
        row[13],
        row[14],
        row[15],
        row[16],
        row[17],
        row[18],
        None if row[19] is None else as_datetime(row[19]),
        None if row[20] is None else as_datetime(row[20]),
        bool(row[21]),
        None if row[22] is None else as_datetime(row[22]),
        None if row[23] is None else as_timedelta(row[23]),
        row[24],
        row[25],
        *row[27:29],  # the row of a reservation ends before: this run has not said anything yet
    )


def why_too_late(at: datetime) -> str:
    """Return what is said of a job that has not begun in time."""
    return f"it had to begin before {at.isoformat(timespec='seconds')}"


def was_begun(job: Job, before: int) -> bool:
    """Say whether somebody has worked on a job that was reserved so often before.

    One that has a limit may have been sent back unseen; then no counter has moved.
    """
    if not before or job.options.limit is None:
        return bool(before)
    return bool(
        job.retries or job.crashes or job.timeouts or job.releases or job.buries or job.kicks
    )


def ticket_from(row: Row) -> Job:
    """Read a row of `located` for where the job lies, not for what it says."""
    return job_from([*row[:7], Encoding.JSON, row[8], None, *row[10:]])


def listed_from(row: Row) -> Job:
    """Read a row of `located`; of a job that cannot be read, what can be known."""
    try:
        return job_from(row)
    except IncompatibleData as error:
        # Unset, so that nobody is shown the defaults instead, however it is encoded.
        known: dict[str, Any] = asdict(ticket_from(row))
        known.update(encoding=row[7], options=UNSET)
        return UnreadableJob(**known, why=str(error))


def lease_from(row: Row) -> Lease:
    """Read a row of `located` that is reserved."""
    job = job_from(row)
    return Lease(job=job, epoch=job.epoch, until=job.until, session=row[26])


def options_from(text: str | None) -> Options:
    """Read stored options, never half of them."""
    if text is None:
        return _DEFAULTS
    try:
        return _options.decode(text)
    except msgspec.DecodeError as error:
        msg = f"the options of this job cannot be read: {error}"
        raise IncompatibleData(msg) from error


def stored_options(options: Options) -> str | None:
    """Return the options as they are stored: nothing where they are the defaults."""
    if options is _DEFAULTS or options == _DEFAULTS:
        return None
    return msgspec.json.encode(options).decode()


def known_options(text: str | None) -> Options:
    """Read stored options, or the defaults where this version cannot."""
    try:
        return options_from(text)
    except IncompatibleData:
        return _DEFAULTS


def _refuse(encoding: str) -> NoReturn:
    msg = f"the payload of this job is encoded as {encoding!r}, which this version cannot read"
    raise IncompatibleData(msg)


def uuid_from(value: UUID | bytes | str) -> UUID:
    """Read an id."""
    if isinstance(value, bytes):
        return UUID(bytes=value)  # SQLite has no uuid type
    return UUID(value) if isinstance(value, str) else value  # a borrowed connection may prefer text
