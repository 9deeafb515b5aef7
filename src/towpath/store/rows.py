"""From rows to values."""

from typing import Any, Final
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

_ENCODINGS: Final = frozenset(Encoding)
_DEFAULTS: Final = Options()
_TICKET_ENDS: Final = 27  # columns of `located`, before what a job says of itself
_options: Final = msgspec.json.Decoder(Options)


def job_from(row: Row) -> Job:
    """Read a row of the view `located`."""
    id = uuid_from(row[1])
    try:
        encoding, options = _encoding(row[7]), options_from(row[9])
    except IncompatibleData as error:
        msg = f"job {id}: {error}; upgrade this process, or delete the job"
        raise IncompatibleData(msg) from error
    return Job(
        seq=row[0],
        id=id,
        topic=row[2],
        state=State(row[3]),
        priority=row[4],
        key=row[5],
        body=row[6],
        encoding=encoding,
        ttr=as_timedelta(row[8]),
        options=options,
        created_at=as_datetime(row[10]),
        run_at=as_datetime(row[11]),
        epoch=row[12],
        retries=row[13],
        crashes=row[14],
        timeouts=row[15],
        releases=row[16],
        buries=row[17],
        kicks=row[18],
        reserved_at=None if row[19] is None else as_datetime(row[19]),
        until=None if row[20] is None else as_datetime(row[20]),
        cancel_requested=bool(row[21]),
        finished_at=None if row[22] is None else as_datetime(row[22]),
        duration=None if row[23] is None else as_timedelta(row[23]),
        result_body=row[24],
        last_error=row[25],
        # The row of a reservation ends before: this run has not said anything yet.
        progress=row[27] if len(row) > _TICKET_ENDS else None,
        progress_message=row[28] if len(row) > _TICKET_ENDS else None,
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


def _encoding(name: str) -> str:
    if name not in _ENCODINGS:
        msg = f"the payload of this job is encoded as {name!r}, which this version cannot read"
        raise IncompatibleData(msg)
    return name


def uuid_from(value: UUID | bytes | str) -> UUID:
    """Read an id."""
    if isinstance(value, bytes):
        return UUID(bytes=value)  # SQLite has no uuid type
    return UUID(value) if isinstance(value, str) else value  # a borrowed connection may prefer text
