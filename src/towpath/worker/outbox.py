"""Outcomes of jobs that wait to be written: written in batches, and retried until they are."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from towpath.app.app import App
from towpath.app.context import Notes
from towpath.app.speech import Speech
from towpath.errors import DatabaseError, TowpathError
from towpath.operation import Answer
from towpath.store import job_output as store
from towpath.store import leases, streams
from towpath.store.leases import Completion, Outcome, Settled
from towpath.store.streams import Say

log: Final = logging.getLogger("towpath")

FIRST_PAUSE: Final = 0.1  # seconds between two tries to write, doubled up to the last
LAST_PAUSE: Final = 5.0
GATHER: Final = 0.1  # seconds in which the notes of running jobs are collected
GATHER_WORDS: Final = 0.04  # seconds in which the words of their streams are, unless they are long


class Outbox:
    """Keeps outcomes and output of jobs until they are written to the database."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._completions: list[Completion] = []
        self._outcomes: list[Outcome] = []
        self._notes: set[Notes] = set()
        self._speeches: set[Speech] = set()
        self.loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._writing = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def __len__(self) -> int:
        """Count the outcomes that are not written yet."""
        return len(self._completions) + len(self._outcomes) + self._writing

    def hear(self, output: Notes | Speech) -> None:
        """Write the output of a running job soon. Any thread may call this."""
        wait = GATHER
        if isinstance(output, Speech):
            wait = 0.0 if output.is_long else GATHER_WORDS
        with contextlib.suppress(RuntimeError):  # the event loop has ended, and so has the lease
            self.loop.call_soon_threadsafe(self.loop.call_later, wait, self._write_now, output)

    def _write_now(self, output: Notes | Speech) -> None:
        if self._add(output):
            self._news.set()
            self._quiet.clear()

    def _add(self, output: Notes | Speech | None) -> bool:
        """Add output to write; say whether there is any."""
        if output:
            if isinstance(output, Speech):
                self._speeches.add(output)
            else:
                self._notes.add(output)
        return bool(output)

    def put(self, outcome: Completion | Outcome, *outputs: Notes | Speech | None) -> None:
        """Add an outcome to write, and before it the output of the job."""
        for output in outputs:
            self._add(output)
        if isinstance(outcome, Completion):
            self._completions.append(outcome)
        else:
            self._outcomes.append(outcome)
        self._news.set()
        self._quiet.clear()

    async def write(self) -> None:
        """Write until cancelled. Each try presents the epochs: a lost lease stays lost."""
        pause = FIRST_PAUSE
        while True:
            await self._news.wait()
            self._news.clear()
            completions, self._completions = self._completions, []
            outcomes, self._outcomes = self._outcomes, []
            outputs, self._notes = self._notes, set()
            speeches, self._speeches = self._speeches, set()
            self._writing = len(completions) + len(outcomes)
            try:
                await self._write_words(speeches)
                await self._write_notes(outputs)
                await self._write(completions, outcomes)
            except Exception as error:  # noqa: BLE001 - this task must continue, to write them later
                log.warning("could not write %d outcomes, will retry: %s", self._writing, error)
                self._completions[:0] = completions
                self._outcomes[:0] = outcomes
                self._notes |= {notes for notes in outputs if notes}
                self._speeches |= {speech for speech in speeches if speech}
                self._news.set()
                self._writing = 0
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)
                continue
            self._writing, pause = 0, FIRST_PAUSE
            if not self._news.is_set():
                self._quiet.set()

    async def written(self) -> None:
        """Wait until nothing is left to write."""
        await self._quiet.wait()

    async def _write_words(self, speeches: set[Speech]) -> None:
        """Write the words of running jobs, all that each has said by now."""
        left = {speech: len(speech) for speech in speeches}
        most = self._app.settings.batch_bytes
        while says := _some_says(left, most):
            answers = await self._app.arun(streams.say([say for _, say in says]))
            for (speech, say), answer in zip(says, answers, strict=True):
                left[speech] -= len(say.words)
                if left[speech] <= 0:
                    del left[speech]
                if isinstance(answer, TowpathError):
                    log.warning("the words of a job were refused: %s", answer)
                    speech.lose()
                    continue
                speech.written(answer)
                if speech not in left and speech:  # said since
                    self.hear(speech)

    async def _write_notes(self, outputs: set[Notes]) -> None:
        taken = [(notes, note) for notes in outputs for note in notes.take()]
        if not taken:
            return
        try:
            answers = await self._app.arun(store.write([note for _, note in taken]))
        except DatabaseError:
            for notes in outputs:
                notes.put_back(note for owner, note in taken if owner is notes)
            raise
        for (notes, _), answer in zip(taken, answers, strict=True):
            if answer is not None:
                notes.lose()

    async def _write(self, completions: list[Completion], outcomes: list[Outcome]) -> None:
        work: list[Coroutine[Any, Any, list[Answer[Settled]]]] = []
        if completions:
            work.append(self._app.arun(leases.complete(completions)))
        if outcomes:
            work.append(self._app.arun(leases.settle(outcomes)))
        for answers in await asyncio.gather(*work):
            _report(answers)


def _some_says(speeches: Iterable[Speech], most: int) -> list[tuple[Speech, Say]]:
    """Return the next words of runs, as many as one statement takes."""
    says: list[tuple[Speech, Say]] = []
    size = 0
    for speech in speeches:
        say = speech.next()
        if say is None:
            continue
        size += say.size
        if says and size > most:
            break
        says.append((speech, say))
    return says


def _report(answers: list[Answer[Settled]]) -> None:
    for answer in answers:
        if isinstance(answer, TowpathError):
            log.warning("an outcome was refused: %s", answer)
