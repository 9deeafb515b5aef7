"""What runs in a sandbox: it is told of a task, then of a job, and says what became of it."""

import asyncio
import contextlib
import contextvars
import fcntl
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Generator
from multiprocessing import spawn
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Final, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from towpath.app.app import App
from towpath.app.context import Notes
from towpath.app.tasks import Task
from towpath.errors import SandboxFailed
from towpath.model.job import Lease
from towpath.store.leases import Completion
from towpath.worker.run import TaskRun
from towpath.worker.sandbox import SIZE, ChildOutput, Ending, Find, Start, TaskFound, find_task
from towpath.worker.threads import Threads
from towpath.worker.worker import Worker

T = TypeVar("T")

UNGUARDED: Final = (
    "a sandbox imports the main program to find its tasks: put what it does besides under "
    "`if __name__ == '__main__':`"
)


def main(line_number: int, lifeline: int) -> None:
    """Run one job after the other, until the worker closes the line."""
    line = socket.socket(fileno=line_number)
    die_with_the_worker(lifeline)
    leave_signals_to_the_worker()
    be_first_to_go_when_memory_is_short()
    os.set_inheritable(line.fileno(), False)
    start = hear(line, Start)
    sys.argv[:] = start.argv
    threads = Threads()
    speaker = Speaker(line)
    with asyncio.Runner() as runner:
        while True:
            place = hear(line, Find)
            try:
                task = found(place, start)
            except BaseException as error:  # noqa: BLE001 - whatever an import does is told
                speaker.say(TaskFound(told(error)))
                continue
            speaker.say(TaskFound())
            run = TaskRun(task.app, hear(line, Lease), threads, on_news=speaker.pass_on)
            ended = runner.run(run.here(task, limit=None), context=contextvars.copy_context())
            limit_memory(None)
            if isinstance(ended, Completion):
                speaker.say(Ending(completion=ended))
            else:
                speaker.say(Ending(outcome=ended))
                if task.memory is not None:
                    return  # it may be full, and the next job is to have what is its own


def die_with_the_worker(lifeline: int) -> None:
    """Have the kernel end this process and all that it started when the worker is gone.

    By SIGIO, whose default is death: a thread that waits would never run beside code that keeps
    the interpreter to itself.
    """
    os.set_inheritable(lifeline, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)


def leave_signals_to_the_worker() -> None:
    """Outlive a signal to the whole service: whether a job ends early, the worker decides."""

    def go_on(number: int, frame: FrameType | None) -> None: ...

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, go_on)  # not SIG_IGN, which what it starts would inherit


def be_first_to_go_when_memory_is_short() -> None:
    """Have the kernel choose this process rather than the worker."""
    with contextlib.suppress(OSError):  # only Linux asks
        Path("/proc/self/oom_score_adj").write_text("1000")


def found(place: Find, start: Start) -> Task[..., object]:
    """Import a task, then limit its memory."""
    if place.module == "__main__" and sys.modules["__main__"].__name__ == "__main__":
        with nothing_runs():
            spawn.prepare(dict(start.main))  # it calls itself __mp_main__
    task = find_task(place.module, place.name)
    limit_memory(place.memory)
    return task


@contextlib.contextmanager
def nothing_runs() -> Generator[None]:
    """Refuse what a program does besides defining tasks, while it is imported once more."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise SandboxFailed(UNGUARDED)

    patched = [(App, "run"), (App, "arun"), (Worker, "run"), (Worker, "arun")]
    kept = [(kind, name, getattr(kind, name)) for kind, name in patched]
    for kind, name in patched:
        setattr(kind, name, refused)
    try:
        yield
    finally:
        for kind, name, known in kept:
            setattr(kind, name, known)


def limit_memory(size: int | None) -> None:
    """Refuse this process more memory of its own than so many bytes."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if size is None else size, most))


def told(error: BaseException) -> str:
    """Say why a task is not to be had."""
    if isinstance(error, SandboxFailed):
        return str(error)
    return "".join(traceback.format_exception(error))


def hear(line: socket.socket, kind: type[T]) -> T:
    """Wait for a message; end when the worker has closed the line."""
    return msgspec.json.decode(_exactly(line, int.from_bytes(_exactly(line, SIZE))), type=kind)


def _exactly(line: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = line.recv(min(size - len(data), 2**20))
        if not part:
            sys.exit()
        data += part
    return bytes(data)


class Speaker:
    """Sends messages, one at a time: any thread of a task may say something."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = Lock()

    def say(self, message: Struct) -> None:
        """Send a message."""
        data = msgspec.json.encode(message)
        with self._lock:
            self._line.sendall(len(data).to_bytes(SIZE) + data)

    def pass_on(self, notes: Notes) -> None:
        """Send at once what a job says of itself; the worker gathers and writes it."""
        for note in notes.take():
            self.say(ChildOutput(note))
