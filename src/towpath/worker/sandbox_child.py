"""The program in a sandbox: it receives a task, then a job, and sends the job's outcome."""

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
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from towpath.app.app import App
from towpath.app.context import Notes
from towpath.app.speech import Speech
from towpath.app.tasks import Task
from towpath.errors import SandboxFailed
from towpath.model.job import Lease, Said
from towpath.store.leases import Completion
from towpath.worker.run import TaskRun
from towpath.worker.sandbox import (
    SIZE,
    ChildOutput,
    ChildWord,
    Ending,
    Find,
    Flush,
    Flushed,
    Start,
    TaskFound,
    find_task,
)
from towpath.worker.threads import Threads
from towpath.worker.worker import Worker

T = TypeVar("T")

UNGUARDED: Final = (
    "a sandbox imports the main program to find its tasks; put all other code under "
    "`if __name__ == '__main__':`"
)


def main(descriptor: int, lifeline: int) -> None:
    """Run one job after the other, until the worker closes the connection."""
    connection = socket.socket(fileno=descriptor)
    die_with_the_worker(lifeline)
    leave_signals_to_the_worker()
    prefer_as_oom_victim()
    os.set_inheritable(connection.fileno(), False)
    start = receive(connection, Start)
    sys.argv[:] = start.argv
    threads = Threads()
    sender = Sender(connection)
    with asyncio.Runner() as runner:
        while True:
            wanted = receive(connection, Find)
            try:
                task = imported(wanted, start)
            except BaseException as error:  # noqa: BLE001 - an import may raise anything
                sender.send(TaskFound(described(error)))
                continue
            sender.send(TaskFound())
            lease = receive(connection, Lease)
            run = TaskRun(task.app, lease, threads, sender.pass_on, runner.get_loop())
            if run.context.speech is not None:
                run.context.speech.flush = sender.flush
            ended = runner.run(run.here(task, limit=None), context=contextvars.copy_context())
            limit_memory(None)
            if isinstance(ended, Completion):
                sender.end(Ending(completion=ended))
            else:
                sender.end(Ending(outcome=ended))
                if task.memory is not None:
                    return  # its memory may be full; the next job gets a new process


def die_with_the_worker(lifeline: int) -> None:
    """Let the kernel kill this process and its children when the worker ends.

    The kernel sends SIGIO, which kills by default. A thread that waits for the end would not run
    while other code holds the interpreter lock.
    """
    os.set_inheritable(lifeline, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)


def leave_signals_to_the_worker() -> None:
    """Survive a signal to the whole service: the worker decides whether a job ends early."""

    def ignore(number: int, frame: FrameType | None) -> None: ...

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ignore)  # not SIG_IGN, which its children would inherit


def prefer_as_oom_victim() -> None:
    """Let the kernel kill this process before the worker when memory is short."""
    with contextlib.suppress(OSError):  # only Linux has this file
        Path("/proc/self/oom_score_adj").write_text("1000")


def imported(wanted: Find, start: Start) -> Task[Any]:
    """Import a task, then limit its memory."""
    if wanted.module == "__main__" and sys.modules["__main__"].__name__ == "__main__":
        with calls_refused():
            spawn.prepare(dict(start.main))  # imports it under the name __mp_main__
    task = find_task(wanted.module, wanted.name)
    limit_memory(wanted.memory)
    return task


@contextlib.contextmanager
def calls_refused() -> Generator[None]:
    """Refuse calls of an app or a worker while the main program is imported again."""

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
    """Limit the memory of this process to `size` bytes; None removes the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if size is None else size, most))


def described(error: BaseException) -> str:
    """Return why a task could not be imported."""
    if isinstance(error, SandboxFailed):
        return str(error)
    return "".join(traceback.format_exception(error))


def receive(connection: socket.socket, kind: type[T]) -> T:
    """Wait for a message; exit if the worker has closed the connection."""
    size = int.from_bytes(_exactly(connection, SIZE))
    return msgspec.json.decode(_exactly(connection, size), type=kind)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 2**20))
        if not part:
            sys.exit()
        data += part
    return bytes(data)


class Sender:
    """Sends messages one at a time, as any thread of a task may send output."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = Lock()
        self._speaking = Lock()  # words of two threads stay in order

    def send(self, message: Struct) -> None:
        """Send a message."""
        data = msgspec.json.encode(message)
        with self._lock:
            self._connection.sendall(len(data).to_bytes(SIZE) + data)

    def flush(self) -> int | None:
        """Have the worker write all words; return how many are written, None if some still wait."""
        with self._speaking:
            self.send(Flush())
            return receive(self._connection, Flushed).said

    def end(self, ending: Ending) -> None:
        """Send the outcome; first a flush that its task has given up gets its answer."""
        with self._speaking:
            self.send(ending)

    def pass_on(self, output: Notes | Speech) -> None:
        """Send the output of a job at once; the worker writes it in batches."""
        if isinstance(output, Notes):
            for note in output.take():
                self.send(ChildOutput(note))
            return
        with self._speaking:
            while say := output.next():
                for word in say.words:
                    self.send(ChildWord(word))
                output.written(Said(said=say.said + len(say.words), cancel_requested=False))
