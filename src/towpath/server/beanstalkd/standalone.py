"""towpath-beanstalkd, once it listens: a server of its own, on a database of its own."""

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import pwd
import resource
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from towpath import App, Settings, TowpathError
from towpath.server.beanstalkd.door import Door
from towpath.server.beanstalkd.stats import version_text

NAME: Final = "towpath-beanstalkd"
MOST_BODY: Final = 2**30
LOCKED: Final = 10  # the exit status of beanstalkd where another one has the directory

Early = Sequence[tuple[socket.socket, bytes, float]]


def serve(
    options: Mapping[str, str],
    listening: socket.socket,
    early: Callable[[], Early],
    drained: Sequence[int],
) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if "v" in options:
        sys.stdout.write(f"{NAME} {version_text()}\n")
        return
    _allow_many_files()
    if "u" in options:
        _become(options["u"])
    try:
        with contextlib.ExitStack() as stack:
            app = _app(options, stack)
            gc.freeze()  # what was loaded stays: no collection need look at it again
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_serve(app, int(options["z"]), listening, early, drained))
    except TowpathError as error:
        sys.exit(f"{NAME}: {error}")


async def _serve(
    app: App,
    most_body: int,
    listening: socket.socket,
    early: Callable[[], Early],
    drained: Sequence[int],
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    door = Door(app, name=NAME, most_body=most_body)
    loop.add_signal_handler(signal.SIGUSR1, door.drain)
    door.draining = bool(drained)
    try:
        await door.start(alone=True)
        for client, data, at in early():
            with contextlib.suppress(OSError):
                await door.welcome(client, data, at)
        await door.listen(listening)
        app.upkeep.start()
        await stop.wait()
        await door.close()
    finally:
        await app.aclose()


def _app(options: Mapping[str, str], stack: contextlib.ExitStack) -> App:
    settings = Settings.from_environment(
        max_payload=min(int(options["z"]), MOST_BODY),
        max_waiters_per_topic=0,
        durability="full" if options["f"] == "0" and "F" not in options else "normal",
        topic_cleanup=True,
    )
    if "b" not in options:
        return App("memory://", settings=settings)
    directory = Path(options["b"]).absolute()
    stack.enter_context(_alone_in(directory))
    return App(f"sqlite:///{directory}/towpath.db", settings=settings)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Generator[None]:
    """Keep others out of a directory."""
    try:
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"{NAME}: another one serves {directory}\n")
        sys.exit(LOCKED)
    except OSError as error:
        sys.stderr.write(f"{NAME}: cannot use {directory}: {error}\n")
        sys.exit(LOCKED)
    try:
        yield
    finally:
        os.close(lock)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the quicker event loop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


def _allow_many_files() -> None:
    """Allow as many connections as the system does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _become(user: str) -> None:
    """Give up the rights of who started it."""
    try:
        known = pwd.getpwnam(user)
        if os.geteuid() == 0:
            os.initgroups(user, known.pw_gid)  # or it would keep the groups of root
        os.setgid(known.pw_gid)
        os.setuid(known.pw_uid)
    except (KeyError, OSError) as error:
        sys.exit(f"{NAME}: cannot become {user}: {error}")
