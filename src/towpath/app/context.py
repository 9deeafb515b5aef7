"""What a running task may know of its job, and say about it."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from towpath.app.checks import count, refuse_unknown
from towpath.app.outcomes import job_of
from towpath.errors import Conflict, Invalid, LeaseLost
from towpath.model.instants import Duration, microseconds
from towpath.model.job import Job, Lease
from towpath.model.payload import clean_text, encode_json
from towpath.store.job_output import MOST, MOST_BYTES, Kind, Note

if TYPE_CHECKING:
    from towpath.app.app import App

T = TypeVar("T")

MOST_LINE: Final = 8_000  # characters of one line, or of a message about progress
RUNS: Final = 32  # bits of a note's number that count within one run


class Unwritten:
    """Notes of one kind in line, no more of them than the database would keep."""

    __slots__ = ("_size", "notes")

    def __init__(self) -> None:
        self.notes: deque[Note] = deque()
        self._size = 0  # characters

    def add(self, note: Note, *, before: bool = False) -> None:
        """Add at the end or before all others; of too many, the oldest is dropped."""
        (self.notes.appendleft if before else self.notes.append)(note)
        self._size += len(note.text or "")
        while len(self.notes) > MOST[note.kind] or self._size > MOST_BYTES[note.kind]:
            self._size -= len(self.notes.popleft().text or "")


class Notes:
    """What a running job has said and nobody has written yet. Any thread may add to it."""

    __slots__ = ("_count", "_lease", "_lines", "_lock", "_lost", "_on_news")

    def __init__(self, lease: Lease, on_news: "Callable[[Notes], object]") -> None:
        self._lease = lease
        self._on_news = on_news
        self._lock = Lock()
        self._lines: dict[Kind, Unwritten] = {}
        self._count = 0
        self._lost = False

    def __len__(self) -> int:
        """Count the kinds of which something is not written yet."""
        return len(self._lines)

    def add(self, kind: Kind, text: str | None, share: float | None = None) -> None:
        """Have something written soon; LeaseLost once it is known that it cannot be."""
        with self._lock:
            if self._lost:
                msg = f"the lease of job {self._lease.job.id} ended; stop working on it"
                raise LeaseLost(msg)
            self._count += 1
            epoch = self._lease.epoch
            no = 0 if kind is Kind.PROGRESS else _number(epoch, self._count)
            is_first = not self._lines
            seq = self._lease.job.seq
            note = Note(seq=seq, epoch=epoch, kind=kind, no=no, share=share, text=text)
            self._lines.setdefault(kind, Unwritten()).add(note)
        if is_first:
            self._on_news(self)

    def take(self) -> list[Note]:
        """Return what is to be written now."""
        with self._lock:
            lines, self._lines = self._lines, {}
        return [note for line in lines.values() for note in line.notes]

    def put_back(self, notes: Iterable[Note]) -> None:
        """Keep for later what could not be written."""
        with self._lock:
            for note in reversed(list(notes)):
                self._lines.setdefault(note.kind, Unwritten()).add(note, before=True)

    def lose(self) -> None:
        """Take nothing more: the lease has ended."""
        self._lost = True


class Context:
    """Given to a task whose first parameter is annotated with it.

    What a job says of itself is written together, ten times a second and before its outcome, so it
    may be said often and in both colours; a run that dies loses what it said in its last moment.
    """

    def __init__(
        self,
        app: "App",
        lease: Lease | None = None,
        on_news: Callable[[Notes], object] = lambda _: None,
    ) -> None:
        self.app = app
        self.notes = None if lease is None else Notes(lease, on_news)
        self._lease = lease
        self._cancelled = False

    @property
    def job(self) -> Job:
        """The job that runs, as it was when it was reserved."""
        if self._lease is None:
            msg = "this task was called and runs here and now: there is no job"
            raise Conflict(msg)
        return self._lease.job

    @property
    def tries(self) -> int:
        """How often it has failed before."""
        return 0 if self._lease is None else self._lease.job.retries

    @property
    def cancelled(self) -> bool:
        """Whether the job was asked to stop. Blocking code has to look; a task is interrupted."""
        return self._cancelled

    def cancel(self) -> None:
        """Say that the job was asked to stop."""
        self._cancelled = True

    def progress(self, share: float, message: str | None = None) -> None:
        """Say how far the job is, from 0 to 1."""
        share = _share(share)
        self._say(Kind.PROGRESS, None if message is None else _line(message), share)

    async def aprogress(self, share: float, message: str | None = None) -> None:
        """Say how far the job is, and let others run."""
        self.progress(share, message)
        await asyncio.sleep(0)

    def log(self, text: str) -> None:
        """Keep a line with the job; of very many, the oldest are dropped."""
        self._say(Kind.LINE, _line(text))

    async def alog(self, text: str) -> None:
        """Keep a line with the job, and let others run."""
        self.log(text)
        await asyncio.sleep(0)

    def publish(self, payload: object) -> None:
        """Keep an event with the job, for `app.jobs.events`; of very many, the oldest go."""
        self._say(Kind.EVENT, _event(payload, self.app.settings.max_payload))

    async def apublish(self, payload: object) -> None:
        """Keep an event with the job, and let others run."""
        self.publish(payload)
        await asyncio.sleep(0)

    def touch(self) -> None:
        """Make sure that the job is still ours, and extend its lease; LeaseLost if it is not."""
        if self._lease is not None:
            self._touched(self.app.jobs.touch(self._lease))

    async def atouch(self) -> None:
        """Make sure that the job is still ours, and extend its lease; LeaseLost if it is not."""
        if self._lease is not None:
            self._touched(await self.app.jobs.atouch(self._lease))

    def _touched(self, lease: Lease) -> None:
        if lease.job.cancel_requested:
            self.cancel()

    def _say(self, kind: Kind, text: str | None, share: float | None = None) -> None:
        if self.notes is not None:
            self.notes.add(kind, text, share)


class Words(TypedDict, total=False):
    """What a run says of itself at once."""

    progress: float | None  # how far it is, from 0 to 1
    message: str | None  # about the progress
    lines: Iterable[str]  # kept with the job, for `logs`
    events: Iterable[object]  # kept with the job, for `events`


def notes_of(lease: Lease, said: int, words: Words, max_payload: int) -> list[Note]:
    """Check what a run says, behind so many lines and events that it has said before."""
    refuse_unknown(words.keys(), Words.__optional_keys__)
    lines, events = words.get("lines", ()), words.get("events", ())
    texts = [(Kind.LINE, _line(line)) for line in _several(lines, "lines")]
    texts += [(Kind.EVENT, _event(event, max_payload)) for event in _several(events, "events")]
    note = partial(Note, seq=job_of(lease).seq, epoch=lease.epoch)
    notes = [
        note(kind=kind, no=_number(lease.epoch, nth), text=text)
        for nth, (kind, text) in enumerate(texts, count(said, "said") + 1)
    ]
    progress, message = words.get("progress"), words.get("message")
    if progress is not None:
        text = None if message is None else _line(message)
        notes.append(note(kind=Kind.PROGRESS, no=0, share=_share(progress), text=text))
    elif message is not None:
        msg = "a message is about progress: give both"
        raise Invalid(msg)
    if not notes:
        msg = "nothing is said: give progress, lines or events"
        raise Invalid(msg)
    return notes


def _number(epoch: int, nth: int) -> int:
    """Return the number of the nth note of a run, behind those of all runs before it."""
    # Over HTTP anybody may say any epoch: it will be refused, and must not break the statement.
    return ((epoch << RUNS) + nth) % 2**63


def _several(words: Iterable[T], name: str) -> Iterable[T]:
    if isinstance(words, str | bytes | Mapping) or not isinstance(words, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"{name} {words!r} is not a list"
        raise Invalid(msg)
    return words


def _share(share: Any) -> float:
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        msg = f"progress {share!r} is not a number from 0 to 1"
        raise Invalid(msg)
    return float(share)


def _line(text: Any) -> str:
    if not isinstance(text, str):
        msg = f"{text!r} is not text"
        raise Invalid(msg)
    return clean_text(text, MOST_LINE)


def _event(payload: object, max_payload: int) -> str:
    return encode_json(payload, min(max_payload, MOST_BYTES[Kind.EVENT]))


class Retry(Exception):
    """Raised by a task: try again after a while. It counts as a failure, so that it ends."""

    def __init__(self, after: Duration | None = None) -> None:
        super().__init__("the task asked to be tried again")
        if after is not None:
            microseconds(after, "after")  # a wrong one is seen where it is said
        self.after = after


class Cancel(Exception):
    """Raised by a task: the job is not to be done after all."""


class Bury(Exception):
    """Raised by a task: no further try; somebody has to look at it."""
