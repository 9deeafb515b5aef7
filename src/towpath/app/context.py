"""The context of a running task: its job, and the output that it adds to the job."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from towpath.app.checks import count, refuse_unknown
from towpath.app.outcomes import job_of
from towpath.app.speech import Speech, text_size, word_of
from towpath.app.transactions import JobTransaction
from towpath.errors import Conflict, Invalid, LeaseLost
from towpath.model.channels import stream_of
from towpath.model.event import Event, NewEvent
from towpath.model.instants import Duration, microseconds
from towpath.model.job import Job, Lease
from towpath.model.payload import clean_text
from towpath.store.event_rows import EventBody
from towpath.store.job_output import MOST, MOST_BYTES, Kind, Note
from towpath.store.leases import Completion
from towpath.store.streams import Say

if TYPE_CHECKING:
    from towpath.app.app import App

T = TypeVar("T")

MOST_LINE: Final = 8_000  # characters of a log line or of a progress message
RUNS: Final = 32  # bits of a note's number that count the notes of one run


class Unwritten:
    """Notes of one kind that wait to be written, at most as many as the database keeps."""

    __slots__ = ("_size", "notes")

    def __init__(self) -> None:
        self.notes: deque[Note] = deque()
        self._size = 0  # characters

    def add(self, note: Note, *, before: bool = False) -> None:
        """Add a note at the end or the front; if there are too many, drop the oldest."""
        (self.notes.appendleft if before else self.notes.append)(note)
        self._size += len(note.text or "")
        while len(self.notes) > MOST[note.kind] or self._size > MOST_BYTES[note.kind]:
            self._size -= len(self.notes.popleft().text or "")


class Notes:
    """The output of a running job that is not written yet. Any thread may add to it."""

    __slots__ = ("_count", "_lease", "_lock", "_lost", "_on_news", "_unwritten", "are_held")

    def __init__(self, lease: Lease, on_news: "Callable[[Notes], object]") -> None:
        self._lease = lease
        self._on_news = on_news
        self._lock = Lock()
        self._unwritten: dict[Kind, Unwritten] = {}
        self._count = 0
        self._lost = False
        self.are_held = False  # they are for the transaction that ends the job

    def __len__(self) -> int:
        """Count the kinds that have unwritten notes."""
        return len(self._unwritten)

    def add(self, kind: Kind, text: str | None, share: float | None = None) -> None:
        """Add a note, to be written soon; LeaseLost if the lease is known to be lost."""
        with self._lock:
            if self._lost:
                msg = f"the lease of job {self._lease.job.id} has ended; stop working on it"
                raise LeaseLost(msg)
            self._count += 1
            epoch = self._lease.epoch
            no = 0 if kind is Kind.PROGRESS else _number(epoch, self._count)
            is_first = not self._unwritten
            seq = self._lease.job.seq
            note = Note(seq=seq, epoch=epoch, kind=kind, no=no, share=share, text=text)
            self._unwritten.setdefault(kind, Unwritten()).add(note)
        if is_first:
            self._on_news(self)

    def take(self, *, held: bool = False) -> list[Note]:
        """Remove and return the notes to write; none while another transaction holds them."""
        with self._lock:
            if self.are_held and not held:
                return []
            unwritten, self._unwritten = self._unwritten, {}
        return [note for each in unwritten.values() for note in each.notes]

    def put_back(self, notes: Iterable[Note]) -> None:
        """Put back notes that could not be written, before the newer ones."""
        with self._lock:
            for note in reversed(list(notes)):
                self._unwritten.setdefault(note.kind, Unwritten()).add(note, before=True)

    def lose(self) -> None:
        """Refuse further notes: the lease has ended."""
        self._lost = True


class Context:
    """Passed to a task whose first parameter is annotated with it.

    Progress, log lines and the words of the job's stream are written in batches, several times a
    second and before the outcome, so a task may add many. A run that crashes loses its last batch.
    """

    def __init__(
        self,
        app: "App",
        lease: Lease | None = None,
        on_news: Callable[[Notes | Speech], object] = lambda _: None,
    ) -> None:
        self.app = app
        self.notes = None if lease is None else Notes(lease, on_news)
        most = app.settings.max_payload
        self.speech = None if lease is None else Speech(lease, most, on_news)
        self.lease = lease
        self.is_ending = False  # a transaction that ends the job is open, or committed
        self.completion: Completion | None = None  # what that transaction has committed
        self._cancelled = False

    @property
    def job(self) -> Job:
        """The running job, as it was when it was reserved."""
        if self.lease is None:
            msg = "this task was called directly, so it has no job; enqueue it to get one"
            raise Conflict(msg)
        return self.lease.job

    @property
    def tries(self) -> int:
        """How often the job has failed before."""
        return 0 if self.lease is None else self.lease.job.retries

    @property
    def cancelled(self) -> bool:
        """Whether the job was asked to stop. An async task is interrupted; others must check."""
        return self._cancelled

    def cancel(self) -> None:
        """Mark the job as asked to stop."""
        self._cancelled = True

    def transaction(self, connection: object) -> JobTransaction:
        """Complete the job in the transaction of its own writes, so that they happen once.

        `with ctx.transaction(connection) as ending:`, or `async with`, begins a transaction on
        your connection to the app's database. At the end of the block the job is completed in it,
        with `ending.result` as its result, and it is committed. It is rolled back if the block
        raises, and if the lease is lost: then LeaseLost is raised. What the task does after the
        block does not change the job. A direct call has no job: the block is a transaction only.
        """
        return JobTransaction(self, connection)

    def progress(self, share: float, message: str | None = None) -> None:
        """Report the progress of the job, from 0 to 1."""
        share = _share(share)
        self._add(Kind.PROGRESS, None if message is None else _line(message), share)

    async def aprogress(self, share: float, message: str | None = None) -> None:
        """Report the progress of the job, and let the event loop run other tasks."""
        self.progress(share, message)
        await asyncio.sleep(0)

    def log(self, text: str) -> None:
        """Add a line to the job's log; beyond a limit the oldest lines are dropped."""
        self._add(Kind.LINE, _line(text))

    async def alog(self, text: str) -> None:
        """Add a line to the job's log, and let the event loop run other tasks."""
        self.log(text)
        await asyncio.sleep(0)

    def publish(self, payload: object, type: str | None = None) -> None:
        """Add an event to the stream of the job, which `app.jobs.stream` reads.

        In a thread it waits while too much is unwritten; on an event loop it raises StreamBehind.
        """
        if self.speech is None:
            word_of(payload, type, self.app.settings.max_payload)
        else:
            self.speech.publish(payload, type)

    async def apublish(self, payload: object, type: str | None = None) -> None:
        """Add an event to the stream of the job; wait while too much is unwritten."""
        await self._room()
        self.publish(payload, type)

    def stream(self, text: str) -> None:
        """Add text to the stream of the job, as `publish`; pieces in a row are joined."""
        if self.speech is None:
            text_size(text, self.app.settings.max_payload)
        else:
            self.speech.stream(text)

    async def astream(self, text: str) -> None:
        """Add text to the stream of the job; wait while too much is unwritten."""
        await self._room()
        self.stream(text)

    def said(self) -> list[Event]:
        """Read the stream of the job: what earlier tries said, and what this one has by now."""
        if self.lease is None:
            return []
        name, after, found = stream_of(self.lease.job.id), None, list[Event]()
        while True:
            page = self.app.events.read(name, after)
            found += page.events
            if page.is_current:
                return found
            after = page.cursor

    async def asaid(self) -> list[Event]:
        """Read the stream of the job, as `said`."""
        if self.lease is None:
            return []
        name, after, found = stream_of(self.lease.job.id), None, list[Event]()
        while True:
            page = await self.app.events.aread(name, after)
            found += page.events
            if page.is_current:
                return found
            after = page.cursor

    async def _room(self) -> None:
        """Wait for room in the stream, and let the event loop run other tasks."""
        await asyncio.sleep(0)
        if self.speech is not None:
            await self.speech.room()

    def touch(self) -> None:
        """Extend the lease; LeaseLost if it has ended."""
        if self.lease is not None:
            self._touched(self.app.jobs.touch(self.lease))

    async def atouch(self) -> None:
        """Extend the lease; LeaseLost if it has ended."""
        if self.lease is not None:
            self._touched(await self.app.jobs.atouch(self.lease))

    def _touched(self, lease: Lease) -> None:
        if lease.job.cancel_requested:
            self.cancel()

    def _add(self, kind: Kind, text: str | None, share: float | None = None) -> None:
        if self.notes is not None:
            self.notes.add(kind, text, share)


class Words(TypedDict, total=False):
    """The output of a run that one call of `say` adds."""

    progress: float | None  # from 0 to 1
    message: str | None  # about the progress
    lines: Iterable[str]  # stored with the job, for `logs`
    logged: int | None  # lines that the run has sent before; required with `lines`
    events: Iterable[object]  # payloads, or NewEvent with a type: words of the job's stream


def say_of(lease: Lease, said: int, words: Words, max_payload: int) -> Say:
    """Check the output of a run; `said` words of it have been sent before."""
    refuse_unknown(words.keys(), Words.__optional_keys__)
    job, said = job_of(lease), count(said, "said")
    notes = _notes_of(lease, words)
    events = [_word(event, max_payload) for event in _several(words.get("events", ()), "events")]
    if not notes and not events:
        msg = "nothing to add; pass `progress`, `lines` or `events`"
        raise Invalid(msg)
    return Say(seq=job.seq, epoch=lease.epoch, said=said, words=events, notes=notes)


def _notes_of(lease: Lease, words: Words) -> list[Note]:
    lines = [_line(line) for line in _several(words.get("lines", ()), "lines")]
    logged = words.get("logged")
    if lines and logged is None:
        msg = "`lines` requires `logged`, the number of lines that the run has sent before"
        raise Invalid(msg)
    note = partial(Note, seq=job_of(lease).seq, epoch=lease.epoch)
    notes = [
        note(kind=Kind.LINE, no=_number(lease.epoch, nth), text=line)
        for nth, line in enumerate(lines, count(logged or 0, "logged") + 1)
    ]
    progress, message = words.get("progress"), words.get("message")
    if progress is not None:
        text = None if message is None else _line(message)
        notes.append(note(kind=Kind.PROGRESS, no=0, share=_share(progress), text=text))
    elif message is not None:
        msg = "`message` requires `progress`"
        raise Invalid(msg)
    return notes


def _word(event: object, max_payload: int) -> EventBody:
    if not isinstance(event, NewEvent):
        return word_of(event, None, max_payload)
    if event.key is not None or event.headers:
        msg = f"an event of a job has a payload and a type, no key and no headers: {event!r}"
        raise Invalid(msg)
    return word_of(event.payload, event.type, max_payload)


def _number(epoch: int, nth: int) -> int:
    """Return the number of the nth note of a run; it is higher than those of earlier runs."""
    # A client may send any epoch. The statement refuses it later, but it must fit the column.
    return ((epoch << RUNS) + nth) % 2**63


def _several(words: Iterable[T], name: str) -> Iterable[T]:
    if isinstance(words, str | bytes | Mapping) or not isinstance(words, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"{name} must be a list, not {words!r}"
        raise Invalid(msg)
    return words


def _share(share: Any) -> float:
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        msg = f"progress {share!r} is not a number from 0 to 1"
        raise Invalid(msg)
    return float(share)


def _line(text: Any) -> str:
    if not isinstance(text, str):
        msg = f"a line or message must be text, not {text!r}"
        raise Invalid(msg)
    return clean_text(text, MOST_LINE)


class Retry(Exception):
    """Raised by a task to run again after a while. It counts as a failure, so retries end."""

    def __init__(
        self,
        after: Duration | None = None,  # None: the pause that the backoff gives
    ) -> None:
        super().__init__("the task asked for a retry")
        if after is not None:
            microseconds(after, "after")  # a wrong value fails here, inside the task
        self.after = after


class Cancel(Exception):
    """Raised by a task to cancel its job."""


class Bury(Exception):
    """Raised by a task to bury its job: no retry until a person kicks or requeues it."""
