"""Programs that tests start, pause and kill: `-m tests.faults.programs PARENT NAME ARGUMENTS`.

What a program has to report goes to a file, a whole line in one write, only after it is true.
"""

import asyncio
import contextlib
import ctypes
import inspect
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any
from uuid import UUID

from tests.faults import chance
from towpath import App
from towpath.database.clock import machine_clock
from towpath.errors import TowpathError
from towpath.model.job import Lease
from towpath.operation import Wakeup

PR_SET_PDEATHSIG = 1  # from linux/prctl.h


class Record:
    """A file of lines, each of which is there wholly or not at all."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def add_leases(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self.add(lease.job.id, lease.epoch)


def lines(path: Path) -> list[list[str]]:
    """Read a record: the words of each line."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def produce_and_work(app: App, record: str, number: int, batch: int, total: int) -> None:
    """Enqueue `number` jobs, then complete whatever there is until `total` are done."""
    completed = Record(record)
    app.jobs.enqueue_many("mail", range(number // 2))
    for each in range(number - number // 2):
        app.jobs.enqueue("mail", each)
    while app.jobs.stats().completed < total:
        while leases := app.jobs.reserve("mail", limit=batch):
            if batch == 1:
                app.jobs.complete(leases[0])
            elif lost := app.jobs.complete_many(leases):
                raise AssertionError(f"lost {lost}")
            completed.add_leases(leases)
        completed.add_leases(finish(app, app.jobs.reserve("mail", timeout=0.05)))


def finish(app: App, leases: list[Lease]) -> list[Lease]:
    for lease in leases:
        app.jobs.complete(lease)
    return leases


async def aproduce_and_work(app: App, record: str, number: int, batch: int, total: int) -> None:
    """Do the same by tasks of an event loop, several at a time."""
    completed = Record(record)
    await asyncio.gather(*(app.jobs.aenqueue("mail", each) for each in range(number)))

    async def work() -> None:
        while (await app.jobs.astats()).completed < total:
            while leases := await app.jobs.areserve("mail", limit=batch):
                await asyncio.gather(*map(app.jobs.acomplete, leases))
                completed.add_leases(leases)
            for lease in await app.jobs.areserve("mail", timeout=0.05):
                await app.jobs.acomplete(lease)
                completed.add_leases([lease])

    await asyncio.gather(work(), work(), work())


def produce(app: App, record: str, number: int) -> None:
    """Enqueue jobs until `number` of them are acknowledged; a restarted one goes on."""
    acknowledged = Record(record)
    so_far = len(lines(Path(record)))
    while so_far < number:
        if so_far % 3:
            jobs = [app.jobs.enqueue("mail", {"n": so_far}, ttr=0.5)]
        else:
            jobs = app.jobs.enqueue_many("mail", range(5), ttr=0.5)
        for job in jobs:
            acknowledged.add(job.id)
        so_far += len(jobs)


async def aproduce(app: App, record: str, number: int) -> None:
    """Do the same from an event loop, several at a time."""
    acknowledged = Record(record)

    async def one(n: int) -> None:
        acknowledged.add((await app.jobs.aenqueue("mail", {"n": n}, ttr=0.5)).id)

    while (so_far := len(lines(Path(record)))) < number:
        await asyncio.gather(*map(one, range(so_far, so_far + 7)))


def work(app: App, record: str, seed: int) -> None:
    """Complete jobs, in batches of all sizes, until killed."""
    completed = Record(record)
    dice = chance.dice(seed)
    while True:
        leases = app.jobs.reserve("mail", limit=dice.choice([1, 2, 8]), timeout=1)
        if dice.random() < 0.5:
            lost = app.jobs.complete_many(leases) if leases else []
            completed.add_leases(lease for lease in leases if lease not in lost)
            continue
        for lease in leases:
            with forgiven("lease_lost"):
                app.jobs.complete(lease)
                completed.add_leases([lease])


async def awork(app: App, record: str, seed: int) -> None:
    """Do the same from an event loop, several at a time."""
    completed = Record(record)
    dice = chance.dice(seed)

    async def one(lease: Lease) -> None:
        with forgiven("lease_lost"):
            await app.jobs.acomplete(lease)
            completed.add_leases([lease])

    async def go_on() -> None:
        while True:
            leases = await app.jobs.areserve("mail", limit=dice.choice([1, 2, 8]), timeout=1)
            await asyncio.gather(*map(one, leases))

    await asyncio.gather(*(go_on() for _ in range(3)))


async def juggle(app: App, record: str, seed: float) -> None:
    """Do everything that can be done with jobs, in any order, several at a time, until killed."""
    juggler = Juggler(app, record, seed)
    await asyncio.gather(*(juggler.go_on() for _ in range(8)))


class Juggler:
    """A caller that does anything at any time, and records what came of it."""

    def __init__(self, app: App, record: str, seed: float) -> None:
        self.jobs = app.jobs
        self.book = Record(record)
        self.dice = chance.dice(seed)
        self.mine: list[UUID] = []

    async def go_on(self) -> None:
        often = [self.enqueue, self.reserve] * 6
        while True:
            await self.dice.choice([*often, self.kick, self.cancel, self.give_up_reserving])()

    async def enqueue(self) -> None:
        job = await self.jobs.aenqueue("mail", ttr=0.5, delay=self.dice.choice([0, 0, 0.1]))
        self.book.add("enqueued", job.id)
        self.mine.append(job.id)

    async def reserve(self) -> None:
        limit = self.dice.choice([1, 5])
        rarely = [self.dawdle, self.release, self.fail, self.bury]
        for lease in await self.jobs.areserve("mail", limit=limit, timeout=0.2):
            with forgiven("lease_lost"):
                await self.dice.choice([*[self.complete] * 6, *rarely])(lease)

    async def release(self, lease: Lease) -> None:
        await self.jobs.arelease(lease, delay=self.dice.choice([0, 0.1]))
        self.book.add("released", lease.job.id)

    async def fail(self, lease: Lease) -> None:
        await self.jobs.afail(lease, "bad luck", delay=0)
        self.book.add("failed", lease.job.id)

    async def bury(self, lease: Lease) -> None:
        await self.jobs.abury(lease)
        self.book.add("buried", lease.job.id)

    async def complete(self, lease: Lease) -> None:
        await self.jobs.acomplete(await self.jobs.atouch(lease))
        self.book.add("completed", lease.job.id, lease.epoch)

    async def dawdle(self, lease: Lease) -> None:
        await asyncio.sleep(0.7)  # past its end: it may be lost, and may not be
        await self.jobs.acomplete(lease)
        self.book.add("completed", lease.job.id, lease.epoch)

    async def give_up_reserving(self) -> None:
        task = asyncio.create_task(self.jobs.areserve("mail", limit=3, timeout=1))
        await asyncio.sleep(self.dice.uniform(0, 0.02))
        if task.cancel():
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self.book.add("gave-up")

    async def kick(self) -> None:
        with forgiven("database_unavailable"):
            if await self.jobs.akick("mail", 3):
                self.book.add("kicked")

    async def cancel(self) -> None:
        if self.mine:
            with forgiven("database_unavailable", "invalid_state"):
                job = await self.jobs.acancel(self.dice.choice(self.mine))
                self.book.add("cancelled", job.id)


def work_in_session(app: App, seed: float) -> None:
    """Begin jobs and end them in one way or another, as a worker with a session, until killed."""
    dice = chance.dice(seed)
    session = app.sessions.start("worker", ["mail"])
    while True:
        leases = app.jobs.reserve("mail", limit=3, timeout=0.2, session=session)
        with forgiven("lease_lost"):
            app.sessions.beat(session, started=leases[:2])
            for lease in leases:
                end = dice.choice([app.jobs.complete, app.jobs.bury, partial(fail, app), None])
                if end is None:  # its session holds it
                    continue
                end(lease)
            continue
        session = app.sessions.start("worker", ["mail"])


def fail(app: App, lease: Lease) -> None:
    """Fail a job, to be tried again at once."""
    app.jobs.fail(lease, "bad luck", delay=0)


@contextlib.contextmanager
def forgiven(*codes: str) -> Iterator[None]:
    """Go on after errors that the faults explain."""
    try:
        yield
    except TowpathError as error:
        if error.code not in codes:
            raise


def hold(app: App, topic: str) -> None:
    """Reserve a job, then try the verbs that are asked for."""
    [lease] = app.jobs.reserve(topic)
    say("holding")
    verbs: dict[str, Any] = {
        "complete": app.jobs.complete,
        "fail": lambda lease: app.jobs.fail(lease, "too late"),
        "release": app.jobs.release,
        "release later": lambda lease: app.jobs.release(lease, delay=60, priority=7),
        "bury": app.jobs.bury,
        "touch": app.jobs.touch,
        "say": lambda lease: app.jobs.say(lease, said=0, progress=1, lines=["too late"], logged=0),
        "delete": app.jobs.delete,
    }
    for line in sys.stdin:
        try:
            verbs[line.strip()](lease)
        except TowpathError as error:
            say(error.code)
        else:
            say("done")


async def ahold(app: App, topic: str) -> None:
    """Do the same from an event loop."""
    [lease] = await app.jobs.areserve(topic)
    say("holding")
    verbs: dict[str, Any] = {
        "complete": app.jobs.acomplete,
        "fail": lambda lease: app.jobs.afail(lease, "too late"),
        "release": app.jobs.arelease,
        "release later": lambda lease: app.jobs.arelease(lease, delay=60, priority=7),
        "bury": app.jobs.abury,
        "touch": app.jobs.atouch,
        "say": lambda lease: app.jobs.asay(lease, said=0, progress=1, lines=["too late"], logged=0),
        "delete": app.jobs.adelete,
    }
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            await verbs[line.strip()](lease)
        except TowpathError as error:
            say(error.code)
        else:
            say("done")


def fork(app: App, number: int) -> None:
    """Use the app, fork, and use it on both sides; say who talked to which PostgreSQL processes."""
    app.jobs.enqueue("mail", "before")
    app.jobs.list()
    backends_of(app)
    child = os.fork()
    who = "parent" if child else "child"
    for n in range(number):
        app.jobs.enqueue("mail", [who, n])
        for lease in app.jobs.reserve("mail"):
            app.jobs.complete(lease, who)
    say(who, *backends_of(app))
    if child:
        os.waitpid(child, 0)
    else:
        os._exit(0)


def backends_of(app: App) -> list[int]:
    lanes = getattr(app._database, "_all", [])
    return [lane._wire._pgconn.backend_pid for lane in lanes if lane._wire]


def fork_and_list(app: App) -> None:
    """Enqueue before the fork and after it, and say what each side then finds."""
    app.jobs.enqueue("mail", "before")
    child = os.fork()
    who = "parent" if child else "child"
    app.jobs.enqueue("mail", "after")
    say(who, *(lease.job.payload for lease in app.jobs.reserve("mail", limit=10)))
    if child:
        os.waitpid(child, 0)
    else:
        os._exit(0)


def fork_and_wait(app: App) -> None:
    """Have the child wait for a job, which the parent enqueues when told to."""
    app.jobs.reserve("mail", timeout=0.01)  # the parent has waited too: its bell rings already
    child = os.fork()
    if not child:
        Thread(target=tell_when_waiting, args=(app,)).start()
        leases = app.jobs.reserve("mail", timeout=30)
        say("got", *(lease.job.payload for lease in leases))
        os._exit(0)
    sys.stdin.readline()
    app.jobs.enqueue("mail", "from-the-parent")
    os.waitpid(child, 0)


def tell_when_waiting(app: App) -> None:
    while app.jobs.stats_waiting() != {"mail": 1}:
        time.sleep(0.005)
    say("waiting")


def subscribe(app: App, wakeups: list[tuple[str, str]]) -> None:
    """Tell which wakeups came, each by its place in the list, once all of them are heard."""
    app.migrate()
    heard = SimpleQueue[int]()
    for place, (kind, name) in enumerate(wakeups):
        app._wakeups.subscribe(Wakeup(kind, name), partial(heard.put, place))
    heard.get()  # the first look: it listens
    time.sleep(0.1)
    while not heard.empty():
        heard.get()
    say("listening")
    told: set[int] = set()
    while len(told) < len(wakeups):
        told.add(heard.get())
        say(*sorted(told))


def wait_among_files(app: App, number: int) -> None:
    """Open many files, then wait for jobs: as a thread, and as a task."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * number), hard))
    for _ in range(number):
        os.open(os.devnull, os.O_RDONLY)
    for reserve in (
        lambda: app.jobs.reserve("mail", timeout=20),
        lambda: asyncio.run(app.jobs.areserve("mail", timeout=20)),
    ):
        Thread(target=tell_when_waiting, args=(app,)).start()
        say("got", *(lease.job.payload for lease in reserve()))


def fork_and_close(app: App) -> None:
    """Close the app in the parent; the child goes on and dies without a goodbye."""
    app.jobs.enqueue("mail", "before")
    app.jobs.list()
    from_child, to_parent = os.pipe()
    if os.fork():
        os.read(from_child, 1)
        app.close()
        say("closed")
        os._exit(0)
    app.jobs.list()
    say(app.jobs.enqueue("mail", "while both live").id)
    os.write(to_parent, b"!")
    sys.stdin.readline()
    say(app.jobs.enqueue("mail", "the parent is gone").id)
    os.kill(os.getpid(), signal.SIGKILL)


def fork_and_die(app: App) -> None:
    """Stop for ever in the middle of a transaction, with a child that wants to go on."""
    stopping = False

    def clock() -> int:
        if stopping:
            say("in the middle")
            signal.pause()
        return machine_clock()

    stopper = App(app.url, settings=app.settings, clock=clock)
    stopper.jobs.enqueue("mail", "before")
    if os.fork():
        stopping = True
        stopper.jobs.enqueue("mail", "never")
    sys.stdin.readline()
    say(stopper.jobs.enqueue("mail", "the parent is gone").id)
    os._exit(0)


def enqueue_when_told(app: App) -> None:
    """Enqueue each line that is read, and say what came of it."""
    for line in sys.stdin:
        try:
            say(app.jobs.enqueue("mail", line.strip()).payload)
        except TowpathError as error:
            say(error.code)


def stop_in_backup(app: App, target: str) -> None:
    """Stand still when a backup is copied and has no name yet."""

    def stop(*_: object) -> None:
        say("in the middle")
        signal.pause()

    os.link = stop  # type: ignore[assignment] # nothing comes after it
    app.backup(target)


def stop_inside(app: App) -> None:
    """Stand still in the middle of a transaction until told to go on."""
    stopping = False

    def clock() -> int:
        if stopping:
            say("in the middle")
            sys.stdin.readline()
        return machine_clock()

    stopper = App(app.url, settings=app.settings, clock=clock)
    stopper.migrate()
    stopping = True
    say(stopper.jobs.enqueue("mail", "late").id)


def fork_after_interrupt(app: App) -> None:
    """Fork after an interrupt that came as a connection was given back."""

    class Interrupting(list[object]):
        def append(self, given: object) -> None:
            super().append(given)
            raise KeyboardInterrupt

    job = app.jobs.enqueue("mail")
    app._database.__dict__["_readers"] = Interrupting()
    try:
        app.jobs.get(job)
    except KeyboardInterrupt:
        say("interrupted")
    app._database.__dict__["_readers"] = []
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    app.jobs.get(job)
    say("parent" if child else "child")
    if not child:
        os._exit(0)


def fork_among_threads(app: App, number: int) -> None:
    """Fork while threads use the app all the time; each child has to get through."""
    app.jobs.enqueue("mail", "before")
    stopping = Event()

    def be_busy() -> None:
        while not stopping.is_set():
            app.jobs.enqueue("mail", "by-a-thread")
            for lease in app.jobs.reserve("mail", limit=2):
                app.jobs.complete(lease)
            app.jobs.stats()

    threads = [Thread(target=be_busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(number):
        child = os.fork()
        if not child:
            signal.alarm(10)  # a child that hangs dies of this
            app.jobs.enqueue_many("post", ["by-a-child", "by-its-child"])
            app.jobs.stats()
            if os.fork():
                os.wait()
            [lease] = app.jobs.reserve("post")
            app.jobs.complete(lease)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(os.waitstatus_to_exitcode(status))
    stopping.set()
    for thread in threads:
        thread.join()


def fill(app: App, size: int) -> None:
    """Enqueue until no file may grow any further, then with room again; say what happened."""
    acknowledged = [app.jobs.enqueue("mail", "first")]
    [lease] = app.jobs.reserve("mail")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        while True:
            acknowledged.append(app.jobs.enqueue("mail", "x" * 10_000))
    except TowpathError as error:
        say("refused", type(error).__name__, error)
    outcomes = []
    for verb in (app.jobs.complete, lambda lease: app.jobs.enqueue("mail", "y" * 10_000)):
        try:
            verb(lease)
        except TowpathError as error:
            outcomes.append(type(error).__name__)
    say("meanwhile", *outcomes)
    assert len(app.jobs.list(limit=1_000)) == len(acknowledged)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    app.jobs.complete(lease)
    acknowledged.append(app.jobs.enqueue("mail", "last"))
    say("stored", *(job.id for job in acknowledged))


def keep_schedules(app: App) -> None:
    """Do upkeep until killed."""
    app.upkeep.start()
    say("keeping")
    Event().wait()


def publish_for_good(app: App, record: str, writers: list[int]) -> None:
    """Publish until killed, by our own connection and by Django's."""
    from tests.faults import callers  # noqa: PLC0415 - other programs need none of its drivers

    callers.publish_for_good(app, Record(record).add, writers)


def say(*words: object) -> None:
    """Print a line, wholly or not at all: several processes share the output."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def resolve_all_but(mute: str) -> None:
    ask = socket.getaddrinfo

    def answer_or_hang(host: str, *rest: Any, **options: Any) -> Any:
        if host.endswith(mute):
            Event().wait()
        return ask("127.0.0.1" if host.endswith(".example") else host, *rest, **options)

    socket.getaddrinfo = answer_or_hang  # type: ignore[assignment]


async def deliver(
    app: App,
    *,
    only: str | None = None,
    record: str | None = None,
    slack: float = 1,
    dies: int = 0,
    mute: str | None = None,
) -> None:
    """Deliver webhooks until killed; kill itself after `dies` answers, before their reports.

    Names that end in `mute` are never resolved; those in .example lead to this machine. Whatever
    answers is prompt, however busy the machine is.
    """
    from towpath.model import health  # noqa: PLC0415 - few programs need these
    from towpath.store import deliveries  # noqa: PLC0415
    from towpath.webhooks import reports, worker  # noqa: PLC0415
    from towpath.webhooks.running import Deliveries  # noqa: PLC0415

    deliveries.LEASE_SLACK = int(slack * 1e6)
    health.PROMPT = 600 * health.SECOND  # type: ignore[misc]
    begin, put = worker.DeliveryWorker._begin, reports.Reports.put
    claimed = Record(record) if record else None
    left = [dies]

    def begin_and_record(self: Any, delivery: Any, *rest: Any) -> None:
        if claimed:
            claimed.add(delivery.job, delivery.token, delivery.now, delivery.until)
        begin(self, delivery, *rest)

    def die_or_put(self: Any, *made: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        put(self, *made)

    if mute:
        resolve_all_but(mute)
    worker.DeliveryWorker._begin = begin_and_record  # type: ignore[method-assign]
    reports.Reports.put = die_or_put  # type: ignore[method-assign]
    print("ready", flush=True)  # noqa: T201
    await Deliveries(app, only=only).arun()


PROGRAMS = {
    program.__name__: program
    for program in (
        produce_and_work, aproduce_and_work, produce, aproduce, work, awork, hold, ahold,
        juggle, work_in_session, fork, fork_and_list, fork_and_wait, fork_and_close, fork_and_die,
        fork_after_interrupt, fork_among_threads, fill, stop_inside, stop_in_backup,
        enqueue_when_told, wait_among_files, keep_schedules, subscribe, publish_for_good,
        deliver,
    )
}  # fmt: skip


def main(parent: int, name: str, given: dict[str, Any]) -> None:
    if sys.platform == "linux":  # the process that started us may be killed too
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that wanted this program is gone")
    app = App(given.pop("url"), **given.pop("settings"))
    program = PROGRAMS[name]
    if inspect.iscoroutinefunction(program):
        asyncio.run(closing(app, program(app, **given)))
    else:
        with app:
            program(app, **given)


async def closing(app: App, doing: Any) -> None:
    async with app:
        await doing


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
