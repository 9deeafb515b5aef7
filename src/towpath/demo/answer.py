"""An answer that a job streams: its worker is killed on the way, a reader leaves and returns."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event as Signal
from threading import Thread
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from towpath import App, Context, Event, Job, StreamEnd
from towpath.demo.parts import started
from towpath.errors import AppClosed
from towpath.worker import Worker

TEXT: Final = (
    "A worker says these words into the stream of its job. Each is stored before a reader gets it, "
    "and has a cursor. In the middle of this sentence the worker is killed with -9, so for a "
    "moment nothing comes. Then another worker takes the job, reads what was said, and finishes "
    "the sentence. One reader has left meanwhile; it returns with its last cursor, and misses "
    "nothing."
)
TOPIC: Final = "answer"
PAUSE: Final = 0.04  # seconds between two words
LEAVES_AT: Final = len(TEXT) // 5
KILLED_AT: Final = len(TEXT) * 2 // 5
RETURNS_AT: Final = len(TEXT) * 4 // 5
BEAT_EVERY: Final = 0.2
DEAD_AFTER: Final = 1.5  # seconds; short, so that the demo shows the recovery
PATIENCE: Final = 60.0  # seconds


def app_of(url: str) -> App:
    """Return an app with the task."""
    app = App(url, beat_every=BEAT_EVERY, dead_after=DEAD_AFTER)

    @app.task(name=TOPIC)
    async def answer(ctx: Context) -> str:
        said = text_of(await ctx.asaid())  # by a try that was lost
        for word in [said, *re.findall(r"\S+\s*", TEXT.removeprefix(said))]:
            await ctx.astream(word)
            await asyncio.sleep(PAUSE)
        return TEXT

    return app


def speak(url: str) -> None:
    """Run a worker."""
    with app_of(url) as app:
        Worker(app, grace=0.1).run()


def text_of(events: Iterable[Event]) -> str:
    """Return what the last try has said: where it begins, what came after its `since` is lost."""
    kept: list[Event] = []
    for event in events:
        if event.type == "towpath.try":
            since: str = event.payload["towpath"]["since"]
            kept = [each for each in kept if each.cursor is not None and each.cursor <= since]
        else:
            kept.append(event)
    return "".join(event.payload for event in kept)


class Onlooker(Thread):
    """Reads the stream of a job; one that is told to leave disconnects, and returns later."""

    def __init__(self, app: App, job: Job, *, leaves_at: int | None = None) -> None:
        super().__init__(daemon=True)
        self.events: list[Event] = []
        self.ended = ""
        self.is_away = False
        self.comes_back = Signal()
        self._app = app
        self._job = job
        self._leaves_at = leaves_at
        self.start()

    @property
    def text(self) -> str:
        """The text so far."""
        return text_of(self.events)

    def run(self) -> None:
        """Read to the end."""
        with suppress(AppClosed):  # the demo was interrupted
            if self._leaves_at is not None:
                self._read(self._leaves_at)
                self.is_away = True
                self.comes_back.wait()
                self.is_away = False
            self._read()

    def _read(self, most: int | None = None) -> None:
        cursor = self.events[-1].cursor if self.events else None
        for piece in self._app.jobs.stream(self._job, cursor):
            if isinstance(piece, StreamEnd):
                self.ended = piece.ended
            else:
                self.events.append(piece)
                if most is not None and len(self.text) > most:
                    return


def show(url: str) -> bool:
    """Show two readers of one answer; say whether both have all of it, once."""
    console = Console()
    with app_of(url) as app:
        app.migrate()
        job = app.jobs.enqueue(TOPIC, {})
        stays, leaves = Onlooker(app, job), Onlooker(app, job, leaves_at=LEAVES_AT)
        screen = Screen(console, stays, leaves)
        with screen:
            with started(("speak", url)) as [worker]:
                screen.show_until(lambda: len(stays.text) >= KILLED_AT, "the worker speaks")
                worker.kill()
            with started(("speak", url)):
                told = "the worker was killed with -9, another one goes on"
                screen.show_until(lambda: len(stays.text) >= RETURNS_AT, told)
                leaves.comes_back.set()
                screen.show_until(lambda: bool(stays.ended and leaves.ended), told)
        stored = app.jobs.get(job).returned
    is_same = [stays.text, leaves.text, stored] == [TEXT] * 3
    console.print(
        f"\nBoth readers and the stored answer have the same {len(TEXT.split())} words: none was "
        "lost, none came twice."
        if is_same
        else "\nThe readers and the stored answer differ."
    )
    return is_same


class Screen:
    """Shows what two readers have."""

    def __init__(self, console: Console, stays: Onlooker, leaves: Onlooker) -> None:
        self._stays = stays
        self._leaves = leaves
        self._live = Live(console=console, refresh_per_second=10)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show_until(self, is_so: Callable[[], bool], told: str) -> None:
        """Show the texts until something is so, or takes too long."""
        started = time.monotonic()
        while not is_so() and time.monotonic() - started < PATIENCE:
            self._live.update(self._table(told))
            time.sleep(0.05)
        self._live.update(self._table(told))

    def _table(self, told: str) -> Table:
        shown = Table(title="Towpath: an answer that a job streams", caption=told, min_width=80)
        away = " (away)" if self._leaves.is_away else ""
        shown.add_column("a reader that stays", ratio=1)
        shown.add_column(f"one that leaves, and returns{away}", ratio=1)
        shown.add_row(self._stays.text, self._leaves.text)
        return shown
