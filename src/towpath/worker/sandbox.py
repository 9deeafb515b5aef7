"""Sandboxes: processes that run one job at a time, and that can be killed.

A sandbox protects the worker from mistakes (endless loops, memory leaks, crashes), not from
attacks: it has all rights of the worker. `towpath.worker.sandbox_child` runs in it.
"""

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Self, TypeVar

import msgspec
from msgspec import Struct

from towpath.app.tasks import Task
from towpath.errors import SandboxFailed
from towpath.model.job import Lease
from towpath.store.event_rows import EventBody
from towpath.store.job_output import Note
from towpath.store.leases import Completion, Outcome

T = TypeVar("T")

FIND_LIMIT: Final = 60.0  # seconds to start and to import the module of a task
LAST_LIMIT: Final = 1.0  # seconds to read the last message of a process that has ended
SIZE: Final = 8  # bytes of the length before each message
BEGIN: Final = """
import sys
line, lifeline, *sys.path = sys.argv[1:]
from towpath.worker.sandbox_child import main
main(int(line), int(lifeline))
"""


class Start(Struct, frozen=True):
    """The first message to a sandbox: how the worker was started."""

    argv: list[str]
    main: dict[str, str]  # how to import its __main__, as multiprocessing passes it


class Find(Struct, frozen=True):
    """The next task to import."""

    module: str
    name: str
    memory: int | None


class TaskFound(Struct, frozen=True):
    """The answer to Find: an error, or None if the task was imported."""

    error: str | None = None


class ChildOutput(Struct, frozen=True, tag=True):
    """Output of a running job."""

    note: Note


class ChildWord(Struct, frozen=True, tag=True):
    """A word of a running job."""

    word: EventBody


class Flush(Struct, frozen=True, tag=True):
    """Asks the worker to write the words that it has got."""


class Flushed(Struct, frozen=True):
    """The answer to Flush: how many words of the run are written; None: some still wait."""

    said: int | None


class Ending(Struct, frozen=True, tag=True):
    """The outcome of a job."""

    completion: Completion | None = None
    outcome: Outcome | None = None


Message: Final[Any] = ChildOutput | ChildWord | Flush | Ending


class Sandbox:
    """A process for one job at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lifeline: int,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._lifeline = lifeline
        self._killed = False
        self.death = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls) -> Self:
        """Start a process; it is killed when its lifeline is closed or this process ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            end, lifeline = os.pipe()
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", BEGIN, str(theirs.fileno()), str(end), *sys.path),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), end),
                    start_new_session=True,  # its children are killed with it
                )
            except BaseException:
                writer.close()
                os.close(lifeline)
                raise
            finally:
                os.close(end)
        return cls(process, reader, writer, lifeline)

    @property
    def is_alive(self) -> bool:
        """Whether it can take a job."""
        return not self._killed and not self.death.done()

    async def find(self, task: Task[Any]) -> None:
        """Make it import a task."""
        wanted = Find(task.function.__module__, task.function.__qualname__, task.memory)
        try:
            async with asyncio.timeout(FIND_LIMIT):
                self.send(wanted)
                error = (await self._receive(TaskFound)).error
        except TimeoutError:
            error = f"not imported within {FIND_LIMIT:g} s"
        if error:
            msg = f"{wanted.module}:{wanted.name}: {error}"
            raise SandboxFailed(msg)

    async def run(
        self,
        lease: Lease,
        on_note: Callable[[Note], object],
        on_word: Callable[[EventBody], Awaitable[object]],
        flush: Callable[[], Awaitable[int | None]],
    ) -> Completion | Outcome:
        """Run a job of the imported task; pass its output to `on_note` and `on_word`."""
        self.send(lease)
        ending: ChildOutput | ChildWord | Flush | Ending = await self._receive(Message)
        while not isinstance(ending, Ending):
            if isinstance(ending, ChildOutput):
                on_note(ending.note)
            elif isinstance(ending, ChildWord):
                await on_word(ending.word)
            else:
                self.send(Flushed(await flush()))
            ending = await self._receive(Message)
        ended = ending.completion or ending.outcome
        if ended is None:
            msg = "the sandbox sent no outcome of its job"
            raise SandboxFailed(msg)
        return ended

    def send(self, message: Struct) -> None:
        """Send a message."""
        data = msgspec.json.encode(message)
        self._writer.write(len(data).to_bytes(SIZE) + data)

    async def _receive(self, kind: type[T]) -> T:
        """Wait for a message, or for the end of the process: its children may keep the socket."""
        reading = asyncio.create_task(self._read(kind))
        try:
            await asyncio.wait({reading, self.death}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                self.kill()
                await asyncio.wait({reading}, timeout=LAST_LIMIT)
            if reading.done() and not reading.exception():
                return reading.result()
            self.kill()
            raise SandboxFailed(_how(await self.death))
        finally:
            reading.cancel()

    async def _read(self, kind: type[T]) -> T:
        size = int.from_bytes(await self._reader.readexactly(SIZE))
        return msgspec.json.decode(await self._reader.readexactly(size), type=kind)

    def kill(self) -> None:
        """Kill the process and its children."""
        if not self._killed:
            self._killed = True
            # macOS raises PermissionError for a zombie.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            os.close(self._lifeline)
            self._writer.close()


class Sandboxes:
    """The sandboxes of a worker; idle ones are reused."""

    def __init__(self) -> None:
        self._idle: list[Sandbox] = []
        self._all: set[Sandbox] = set()

    @contextlib.asynccontextmanager
    async def one_for(self, task: Task[Any]) -> AsyncGenerator[Sandbox]:
        """Provide a sandbox that has imported a task; it is killed if the block raises."""
        sandbox = await self._ready_for(task)
        try:
            yield sandbox
        except BaseException:
            sandbox.kill()
            raise
        self._idle.append(sandbox)

    async def _ready_for(self, task: Task[Any]) -> Sandbox:
        while True:
            used = self._idle.pop() if self._idle else None
            if used and not used.is_alive:
                used.kill()
                continue
            sandbox = used or await self._new()
            try:
                await sandbox.find(task)
            except BaseException as error:
                sandbox.kill()
                if used and isinstance(error, SandboxFailed):
                    continue  # the idle sandbox may have died
                raise
            return sandbox

    async def _new(self) -> Sandbox:
        sandbox = await Sandbox.start()
        self._all.add(sandbox)
        sandbox.death.add_done_callback(lambda _: self._all.discard(sandbox))
        sandbox.send(Start(sys.argv, _main()))
        return sandbox

    async def close(self) -> None:
        """Kill all sandboxes."""
        living = list(self._all)
        for sandbox in living:
            sandbox.kill()
        if living:
            await asyncio.wait([sandbox.death for sandbox in living], timeout=LAST_LIMIT)


def find_task(module: str, name: str) -> Task[Any]:
    """Return the task with this name; raise SandboxFailed if there is none."""
    task: Any = importlib.import_module(module)
    for part in name.split("."):
        task = getattr(task, part, None)
    if isinstance(task, Task):
        return task  # pyright: ignore[reportUnknownVariableType] - of any function
    msg = f"{module} has no task {name}; a sandbox finds its task by the function's name"
    raise SandboxFailed(msg)


def _main() -> dict[str, str]:
    """Return how this program was started, as multiprocessing passes it to its children."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return {"init_main_from_name": main.__spec__.name}
    path = getattr(main, "__file__", None)
    return {"init_main_from_path": os.path.abspath(path)} if path else {}  # noqa: PTH100 - multiprocessing needs text


def _how(code: int) -> str:
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"
