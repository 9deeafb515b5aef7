"""The streams of jobs: what a run says, fenced by its lease, in order and each word once.

A run counts its words. A word that is stored already is not stored again, and one that comes too
early is refused. The statement that ends a job for good ends its stream; what is here ends those
of jobs without a lease, and of jobs whose last try has said nothing after another one that had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import LeaseLost, WordsMissing
from towpath.model.channels import stream_of
from towpath.model.cursor import START
from towpath.model.event import TRY
from towpath.model.ids import uuid7
from towpath.model.job import FailureKind, Said
from towpath.model.payload import Encoding
from towpath.operation import Answer, Batch, Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store import events, job_output
from towpath.store.event_rows import EventBody
from towpath.store.events import wakeups
from towpath.store.job_output import Note
from towpath.store.reading import ENDED
from towpath.store.rows import uuid_from

AT_ONCE: Final = 100  # streams that one round of upkeep looks at
TRIES: Final = 5  # to hold a stream that others leave


class Say(Struct, frozen=True, kw_only=True):
    """Words of one run."""

    seq: int
    epoch: int
    said: int  # words of this run before these
    words: Sequence[EventBody] = ()
    notes: Sequence[Note] = ()  # stored with them

    @property
    def size(self) -> int:
        """Bytes of its words."""
        return sum(word.size for word in self.words)


class SpeakingLease(NamedTuple):
    """A lease that its run speaks under."""

    seq: int
    epoch: int
    cancelled: bool | int | None
    streamed: bool | int | None
    id: Any


class HeldStream(NamedTuple):
    """The channel of a job, whose row is held."""

    id: int
    name: str
    head: int
    epoch: int | None
    said: int | None
    closed_at: int | None
    now: int


class LastTry(NamedTuple):
    """How the last try ended that has said something."""

    seq: int
    kind: str


class EndedJob(NamedTuple):
    """A job that has ended, where it is, and its last try; None: gone."""

    seq: int
    state: str | None
    epoch: int | None


class sql(Statements):
    """The statements of streams.sql."""

    hold_leases = rows(SpeakingLease)
    hold_ending = rows(int)
    open_streams = no_rows()
    hold_streams = rows(HeldStream)
    last_failures = rows(LastTry)
    raise_streams = no_rows()
    mark_streamed = no_rows()
    end_stream = rows(str)
    last_spoken = rows(str)
    end_with_try = rows(str)
    leave_stream = no_rows()
    open_after = rows(int)
    over = rows(EndedJob)


def say(says: Sequence[Say]) -> Operation[list[Answer[Said]]]:
    """Add words to the streams of jobs; those of a lease that has ended are refused."""
    batch = Batch(says, say, sum(each.size for each in says))
    return Operation("say", lambda: said(says), Mode.APPEND, batch=batch)


def say_last(last: Say) -> Operation[list[Answer[Said]]]:
    """Add words to the stream of a job whose lease this transaction ends."""

    def steps() -> Steps[Changed[list[Answer[Said]]]]:
        yield from sql.hold_ending(seq=last.seq, epoch=last.epoch)
        return (yield from said([last]))

    return Operation("say_last", steps, Mode.APPEND)


class HeldSpeech:
    """What one run adds to its stream."""

    def __init__(self, lease: SpeakingLease, stream: HeldStream) -> None:
        self.lease = lease
        self.stream = stream
        self.is_new = stream.epoch != lease.epoch
        self.said = 0 if self.is_new else stream.said or 0
        self.items: list[dict[str, Any]] = []
        self._size = 0

    def add(self, word: EventBody) -> None:
        """Add an event behind the others."""
        seq = self.stream.head + len(self.items) + 1
        self.items.append(word.as_item(channel=self.stream.id, seq=seq, at=self.stream.now))
        self._size += word.size

    def hear(self, each: Say) -> Answer[Said]:
        """Add those of the words that are new."""
        if each.said > self.said:
            msg = (
                f"{each.said:,} words of this run were sent before, and {self.said:,} are stored; "
                "send them again in order"
            )
            return WordsMissing(msg, self.said)
        for word in each.words[self.said - each.said :]:
            self.add(word)
            self.said += 1
        return Said(said=self.said, cancel_requested=bool(self.lease.cancelled))

    def as_item(self) -> dict[str, Any]:
        """Return the parameters of its statement."""
        return {
            "channel": self.stream.id,
            "added": len(self.items),
            "size": self._size,
            "epoch": self.lease.epoch,
            "said": self.said,
        }


def said(says: Sequence[Say]) -> Steps[Changed[list[Answer[Said]]]]:
    """Add words to the streams of jobs, as part of another operation."""
    items = [{"seq": each.seq, "epoch": each.epoch} for each in says]
    leases = {(row.seq, row.epoch): row for row in (yield from sql.hold_leases(items))}
    spoken = {(each.seq, each.epoch) for each in says if each.words}
    speaking = {key: lease for key, lease in leases.items() if key in spoken}
    streams = yield from _held({row.seq: uuid_from(row.id) for row in speaking.values()})
    speeches = {key: HeldSpeech(lease, streams[lease.seq]) for key, lease in speaking.items()}
    yield from _announce_tries(list(speeches.values()))
    answers: dict[int, Answer[Said]] = {}
    notes: list[Note] = []
    # Two threads may speak at once for one run: the first words first.
    for nth, each in sorted(enumerate(says), key=lambda pair: pair[1].said):
        answers[nth] = answer = _answer(each, leases, speeches)
        if isinstance(answer, Said):
            notes += each.notes
    heard = [speech for speech in speeches.values() if speech.said and speech.items]
    if heard:
        yield from events.insert([item for speech in heard for item in speech.items])
        yield sql.raise_streams([speech.as_item() for speech in heard])
    unmarked = [{"seq": lease.seq} for lease in speaking.values() if not lease.streamed]
    if unmarked:
        yield sql.mark_streamed(unmarked)
    if notes:
        yield from job_output.written(notes)
    names = {speech.stream.name for speech in heard}
    return Changed([answers[nth] for nth in range(len(says))], others=wakeups(names))


def _answer(
    each: Say,
    leases: Mapping[tuple[int, int], SpeakingLease],
    speeches: Mapping[tuple[int, int], HeldSpeech],
) -> Answer[Said]:
    lease = leases.get((each.seq, each.epoch))
    if lease is None:
        return LeaseLost(f"the lease of job number {each.seq} ended; stop working on it")
    if not each.words:
        return Said(said=each.said, cancel_requested=bool(lease.cancelled))
    return speeches[each.seq, each.epoch].hear(each)


def _held(jobs: Mapping[int, UUID]) -> Steps[dict[int, HeldStream]]:
    """Hold the streams of jobs, making those that are missing."""
    if not jobs:
        return {}
    names = {stream_of(id): seq for seq, id in jobs.items()}
    for _ in range(TRIES):
        found = yield from sql.hold_streams([{"name": name} for name in names])
        held = {names[row.name]: row for row in found if row.closed_at is None}
        for row in found:
            if row.closed_at is not None:  # of before the job began again
                yield sql.leave_stream(seq=names[row.name])
        missing = [{"name": name, "seq": seq} for name, seq in names.items() if seq not in held]
        if not missing:
            return held
        yield sql.open_streams(missing)
    msg = f"the streams of jobs {sorted(names)} could not be made"
    raise AssertionError(msg)


def _announce_tries(speeches: Sequence[HeldSpeech]) -> Steps[None]:
    """Tell the readers of a stream that another try begins to speak."""
    tries = [each for each in speeches if each.is_new and each.stream.epoch is not None]
    if not tries:
        return
    items = [{"seq": each.lease.seq, "epoch": each.stream.epoch} for each in tries]
    kinds = {row.seq: row.kind for row in (yield from sql.last_failures(items))}
    for each in tries:
        each.add(_new_try(each.lease.epoch, kinds.get(each.lease.seq)))


def _new_try(epoch: int, kind: str | None) -> EventBody:
    """Return the event that begins a try, after one that ended by a failure of this kind."""
    after = "release" if kind is None else "crash" if kind == FailureKind.CRASH else "failure"
    # Nothing of the lost try is kept, so readers drop all that was said before.
    told = {"try": epoch, "since": str(START), "after": after}
    body = msgspec.json.encode({"towpath": told}).decode()
    return EventBody(id=uuid7(), body=body, encoding=Encoding.JSON, size=len(body), type=TRY)


def end(seq: int, epoch: int, ended: str) -> Steps[set[str]]:
    """End the stream of a job that has ended in this try; return its name.

    If this try has said nothing after another one that had, it is announced now: what the lost
    try said is not what the job says.
    """
    names = yield from sql.end_stream(seq=seq, epoch=epoch, ended=ended)
    for kind in () if names else (yield from sql.last_spoken(seq=seq)):
        word = _new_try(epoch, kind)
        names += yield from sql.end_with_try(
            seq=seq,
            epoch=epoch,
            ended=ended,
            id=word.id,
            type=word.type,
            encoding=word.encoding,
            body=word.body,
            size=word.size,
        )
    return set(names)


def ended(seq: int, epoch: int, goal: str) -> Steps[set[str]]:
    """End the stream of a job, as the statement does that put it where it is; return its name."""
    if goal in ENDED:
        return (yield from end(seq, epoch, ENDED[goal]))
    yield sql.leave_stream(seq=seq)
    return set()


def leave(seq: int) -> Steps[None]:
    """Let a job that begins again begin another stream; readers of this one are reset."""
    yield sql.leave_stream(seq=seq)


def end_some(after: int) -> Operation[int]:
    """End streams whose jobs have ended; return where to go on, 0: from the beginning.

    The operation that ends a job ends its stream, unless that was an older version of Towpath, or
    its process died before the last statement.
    """

    def steps() -> Steps[Changed[int]]:
        found = yield from sql.open_after(after=after, limit=AT_ONCE)
        names: set[str] = set()
        over = (yield from sql.over([{"seq": seq} for seq in found])) if found else []
        for job in over:
            if job.state is None or job.epoch is None:
                yield sql.leave_stream(seq=job.seq)
            else:
                names |= yield from end(job.seq, job.epoch, ENDED[job.state])
        return Changed(found[-1] if len(found) == AT_ONCE else 0, others=wakeups(names))

    return Operation("end_streams", steps)
