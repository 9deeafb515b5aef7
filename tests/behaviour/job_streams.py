"""What the tests of job streams share: to speak, to read, and to follow."""

import asyncio
import threading

from tests.conftest import InLoop, eventually
from towpath import StreamEnd
from towpath.model.ids import uuid7
from towpath.store.event_rows import EventBody
from towpath.store.leases import Outcome


def name_of(job):
    return f"job:{job.id}"


def read(app, job, after=None):
    return app.events.read(name_of(job), after)


def read_all(app, job):
    found, after = [], None
    while True:
        page = read(app, job, after)
        found += [event.payload for event in page.events]
        after = page.cursor
        if page.is_current:
            return found


def spoken(app, job):
    return [event.payload for event in read(app, job).events]


def said_words(app, lease, *words, said=0):
    return app.jobs.say(lease, said=said, events=words)


def body(text):
    return EventBody(id=uuid7(), body=text, encoding="json", size=len(text))


def outcome(lease, **how):
    return Outcome(seq=lease.job.seq, epoch=lease.epoch, options=lease.job.options, **how)


class Streaming:
    """A reader of a job's stream in a thread or a task of its own."""

    def __init__(self, app, job, *args):
        self.pieces, self.error, self.is_over = [], None, False
        if isinstance(app, InLoop):
            reading = self._async(app._thing.jobs.astream(job, *args))
            asyncio.run_coroutine_threadsafe(reading, app._loop)
        else:
            threading.Thread(
                target=self._blocking, args=[app.jobs.stream(job, *args)], daemon=True
            ).start()

    async def _async(self, pieces):
        try:
            async for piece in pieces:
                self.pieces.append(piece)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.is_over = True

    def _blocking(self, pieces):
        try:
            for piece in pieces:
                self.pieces.append(piece)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.is_over = True

    def all(self):
        """Wait for the end; return the payloads, and how it ended."""
        eventually(lambda: self.is_over)
        assert self.error is None, self.error
        *events, end = self.pieces
        assert isinstance(end, StreamEnd)
        return [event.payload for event in events], end.ended
