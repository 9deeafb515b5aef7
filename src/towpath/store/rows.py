"""From rows to values."""

from datetime import datetime
from typing import Any, Final, NamedTuple, NoReturn
from uuid import UUID

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from towpath.errors import IncompatibleData
from towpath.model.instants import as_datetime, as_timedelta
from towpath.model.job import Job, Lease, Options, UnreadableJob
from towpath.model.payload import Encoding
from towpath.model.states import State

_STATES: Final = {state.value: state for state in State}
_ENCODINGS: Final = frozenset(Encoding)
_DEFAULTS: Final = Options()
_options: Final = msgspec.json.Decoder(Options)


class Located(NamedTuple):
    """A job as the view `located` tells of it, wherever its ticket lies."""

    seq: int
    id: UUID | bytes | str
    topic: str
    state: str
    priority: int
    key: str | None
    payload: str
    encoding: str
    ttr: int
    options: str | None
    created_at: int
    run_at: int
    epoch: int
    retries: int
    crashes: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    reserved_at: int | None
    until: int | None
    cancel_requested: bool | int
    finished_at: int | None
    duration: int | None
    result: str | None
    last_error: str | None
    session: int | None
    progress: float | None
    progress_message: str | None


def job_from(row: Located) -> Job:
    """Read a row of the view `located`."""
    id = uuid_from(row.id)
    try:
        options = options_from(row.options)
        if row.encoding not in _ENCODINGS:
            _refuse(row.encoding)
    except IncompatibleData as error:
        msg = f"job {id}: {error}; upgrade this process, or delete the job"
        raise IncompatibleData(msg) from error
    created_at = as_datetime(row.created_at)
    return Job(
        row.seq,
        id,
        row.topic,
        _STATES[row.state],
        row.priority,
        row.key,
        row.payload,
        row.encoding,
        as_timedelta(row.ttr),
        options,
        created_at,
        created_at if row.run_at == row.created_at else as_datetime(row.run_at),
        row.epoch,
        row.retries,
        row.crashes,
        row.timeouts,
        row.releases,
        row.buries,
        row.kicks,
        None if row.reserved_at is None else as_datetime(row.reserved_at),
        None if row.until is None else as_datetime(row.until),
        bool(row.cancel_requested),
        None if row.finished_at is None else as_datetime(row.finished_at),
        None if row.duration is None else as_timedelta(row.duration),
        row.result,
        row.last_error,
        row.progress,
        row.progress_message,
    )


def why_too_late(at: datetime) -> str:
    """Return what is said of a job that has not begun in time."""
    return f"it had to begin before {at.isoformat(timespec='seconds')}"


def was_begun(job: Job, before: int) -> bool:
    """Say whether a worker has begun a job that was reserved so often before.

    A job with a limit may have been sent back unseen; then no counter has moved.
    """
    if not before or job.options.limit is None:
        return bool(before)
    return bool(
        job.retries or job.crashes or job.timeouts or job.releases or job.buries or job.kicks
    )


def ticket_from(row: Located) -> Job:
    """Read a row of `located` for where the job lies, not for what it says."""
    return job_from(row._replace(encoding=Encoding.JSON, options=None))


def listed_from(row: Located) -> Job:
    """Read a row of `located`; of a job that cannot be read, what can be known."""
    try:
        return job_from(row)
    except IncompatibleData as error:
        # Unset, so that no caller is shown the defaults instead.
        known: dict[str, Any] = asdict(ticket_from(row))
        known.update(encoding=row.encoding, options=UNSET)
        return UnreadableJob(**known, why=str(error))


def lease_from(row: Located) -> Lease:
    """Read a row of `located` that is reserved."""
    job = job_from(row)
    return Lease(job=job, epoch=job.epoch, until=job.until, session=row.session)


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
    if type(value) is UUID:
        return value
    if isinstance(value, bytes):
        return UUID(bytes=value)  # SQLite has no uuid type
    return UUID(str(value))  # a borrowed connection may prefer text
