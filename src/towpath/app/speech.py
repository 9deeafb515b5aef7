"""What a running job says in its stream, until it is written: in order, nothing dropped."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from threading import Condition
from typing import Final

from towpath.database.event_loops import running_loop
from towpath.errors import Invalid, LeaseLost, StreamBehind
from towpath.model.event import OWN, TEXT, event_type
from towpath.model.ids import uuid7
from towpath.model.job import Lease, Said
from towpath.model.payload import decode, encode
from towpath.store.event_rows import EventBody
from towpath.store.streams import Say

ROOM: Final = 2**20  # bytes that wait to be written; with more, the task waits
MOST: Final = 8 * 2**20  # bytes with which a task that cannot wait gets an error
JOINED: Final = 8_192  # bytes of text in one event, and of words that are written at once
MOST_WORDS: Final = 1_000  # of one write


class Speech:
    """The words of a running job that are not written yet. Any thread may add to it."""

    def __init__(
        self, lease: Lease, max_payload: int, on_news: "Callable[[Speech], object]"
    ) -> None:
        self.on_cancel: Callable[[], object] = lambda: None
        # Where another process writes the words, it is told to; answers how many it has written.
        self.flush: Callable[[], int | None] | None = None
        self.is_bounded = True
        self._is_held = False  # a transaction that ends the job writes the words itself
        self._lease = lease
        self._max_payload = max_payload
        self._most_joined = min(JOINED, max_payload)
        self._on_news = on_news
        self._changed = Condition()
        self._words: deque[EventBody] = deque()
        self._text: list[str] = []  # adjacent pieces, to be joined to one word
        self._joined = 0  # bytes of them
        self._size = 0  # bytes of all that is not written
        self._said = 0  # words that are written
        self._over: str | None = None  # why nothing more may be said
        self._waiting: set[Callable[[], object]] = set()

    def __len__(self) -> int:
        """Count the words that are not written."""
        return len(self._words) + bool(self._text)

    @property
    def is_long(self) -> bool:
        """Whether there is enough for a write of its own."""
        return self._size >= JOINED

    def publish(self, payload: object, type: str | None) -> None:
        """Add an event."""
        if type == TEXT and isinstance(payload, str):
            self.stream(payload)
            return
        word = word_of(payload, type, self._max_payload)
        self._wait(word.size)
        self._add(word)

    def stream(self, text: str) -> None:
        """Add text; it is joined to text that waits right before it."""
        size = text_size(text, self._max_payload)
        self._wait(size)
        self._add_text(text, size)

    def hear(self, word: EventBody) -> None:
        """Add a word that another process has checked."""
        if word.type == TEXT:
            self._add_text(decode(word.body, word.encoding), word.size)
        else:
            self._add(word)

    def _add(self, word: EventBody) -> None:
        with self._changed:
            self._check()
            self._join()
            is_first = self._put(word.size)
            self._words.append(word)
        self._tell(is_first=is_first)

    def _add_text(self, text: str, size: int) -> None:
        with self._changed:
            self._check()
            if self._joined + size > self._most_joined:
                self._join()
            is_first = self._put(size)
            self._text.append(text)
            self._joined += size
        self._tell(is_first=is_first)

    def _put(self, size: int) -> bool:
        """Count bytes; say whether the writer has to be told."""
        was_empty, was_long = not len(self), self.is_long
        self._size += size
        return was_empty or (self.is_long and not was_long)

    def _tell(self, *, is_first: bool) -> None:
        if is_first:
            self._on_news(self)

    def _join(self) -> None:
        if self._text:
            word = word_of("".join(self._text), TEXT, self._max_payload)
            self._size += word.size - self._joined
            self._words.append(word)
            self._text, self._joined = [], 0

    def _wait(self, size: int) -> None:
        """Wait for room; where a task cannot wait, raise StreamBehind if there is far too much.

        A task on an event loop cannot, as the loop also runs the writer, nor one in the
        transaction that ends its job, as that writes the words.
        """
        if not self.is_bounded or self._size <= ROOM:
            return
        may_wait = running_loop() is None
        if may_wait:
            with self._changed:
                self._changed.wait_for(self._has_room)
        if self._size + size <= MOST:
            return
        if self._is_held:
            msg = (
                f"{self._size:,} bytes wait for the end of the block of `ctx.transaction`, which "
                f"writes {MOST:,} at most; say less in the block, and the rest before it"
            )
            raise StreamBehind(msg)
        if not may_wait:
            msg = f"{self._size:,} bytes wait to be written; await `apublish` or `astream` instead"
            raise StreamBehind(msg)

    async def room(self) -> None:
        """Wait until there is room for more."""
        if self.is_bounded:
            await self._wait_until(self._has_room)

    async def flushed(self, limit: float) -> int | None:
        """Wait for `limit` seconds until all words are written; return how many, None: not all."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._wait_until(lambda: not self)
        return None if self else self._said

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not is_so():
            news = asyncio.Event()
            wake = partial(loop.call_soon_threadsafe, news.set)
            with self._changed:
                self._waiting.add(wake)
            try:
                if not is_so():  # it may have come before this waited for it
                    await news.wait()
            finally:
                with self._changed:
                    self._waiting.discard(wake)

    def _has_room(self) -> bool:
        return self._size <= ROOM or self._is_held or self._over is not None

    def _check(self) -> None:
        if self._over is not None:
            raise LeaseLost(self._over)

    def hold(self) -> None:
        """Keep the words from the writer: the transaction that ends the job takes them along."""
        with self._changed:
            self._is_held = True
            self._wake()  # no room comes before its end

    def follow(self, said: int | None) -> None:
        """Go on behind the words that another process has written; None: it could not."""
        if said is None:
            msg = (
                "the words before `ctx.transaction` cannot be written, so the job cannot end; "
                "commit or roll back what is open in this database before the block"
            )
            raise StreamBehind(msg)
        self._said = said

    def release(self) -> None:
        """Give the words to the writer again."""
        self._is_held = False
        if self:
            self._on_news(self)

    def all(self) -> Say | None:
        """Return all words that are not written; they stay here until `lose`."""
        with self._changed:
            self._join()
            seq, epoch = self._lease.job.seq, self._lease.epoch
            said = Say(seq=seq, epoch=epoch, said=self._said, words=list(self._words))
            return said if said.words else None

    def next(self) -> Say | None:
        """Return the words to write next, which stay here until they are written."""
        with self._changed:
            if self._is_held:
                return None
            self._join()
            words: list[EventBody] = []
            size = 0
            for word in islice(self._words, MOST_WORDS):
                size += word.size
                if words and size > ROOM:
                    break
                words.append(word)
            seq, epoch = self._lease.job.seq, self._lease.epoch
            return Say(seq=seq, epoch=epoch, said=self._said, words=words) if words else None

    def written(self, answer: Said) -> None:
        """Forget the words that are written; stop the run if its job was cancelled."""
        with self._changed:
            while self._said < answer.said and self._words:
                self._size -= self._words.popleft().size
                self._said += 1
            self._wake()
        if answer.cancel_requested:
            self.on_cancel()

    def lose(self) -> None:
        """Forget all words, and refuse further ones: the lease has ended."""
        with self._changed:
            self._words.clear()
            self._text, self._joined, self._size = [], 0, 0
            self._end()

    def end(self) -> None:
        """Refuse further words: the run is over."""
        with self._changed:
            self._end()

    def _end(self) -> None:
        self._over = f"the lease of job {self._lease.job.id} has ended; stop working on it"
        self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        for wake in self._waiting:
            wake()


def word_of(payload: object, type: str | None, max_payload: int) -> EventBody:
    """Return an event of a job's stream, checked and encoded."""
    if event_type(type) is not None and type is not None and type.startswith(OWN):
        msg = f"type {type!r} belongs to Towpath; choose one that does not begin with {OWN!r}"
        raise Invalid(msg)
    body, encoding = encode(payload, max_payload)
    return EventBody(id=uuid7(), body=body, encoding=encoding, size=len(body.encode()), type=type)


def text_size(text: object, max_payload: int) -> int:
    """Return the bytes of a piece of text as it is stored; raise Invalid if it is none."""
    if not isinstance(text, str):
        msg = f"a stream takes text, not {text!r}; use `publish` for other values"
        raise Invalid(msg)
    body, _ = encode(text, max_payload)
    return len(body.encode())
