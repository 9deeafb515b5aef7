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
from typing import Any, Final

from towpath import App, Settings, TowpathError
from towpath.server.beanstalkd.fsync_later import syncing
from towpath.server.beanstalkd.server import BeanstalkdServer
from towpath.server.beanstalkd.stats import version_text

log: Final = logging.getLogger("towpath")

NAME: Final = "towpath-beanstalkd"
SYNC_EVERY: Final = 50  # ms, as beanstalkd does unless told
MOST_BODY: Final = 2**29  # bytes, which as base64 SQLite can still hold
LOCKED: Final = 10  # the exit status of beanstalkd where another one has the directory
NO_USER: Final = 33  # and where there is no such user


def serve(options: Mapping[str, str], listening: socket.socket, drained: Sequence[int]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    _allow_many_files()
    loop_factory = _loop_factory()
    if "u" in options:
        version_text()  # remembered: the new user may not be allowed to read our own files
        _become(options["u"])
    try:
        with contextlib.ExitStack() as stack:
            app = app_of(options, stack)
            gc.freeze()  # what was loaded stays: no collection need look at it again
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(_serve(app, int(options["z"]), listening, drained))
    except TowpathError as error:
        sys.exit(f"{NAME}: {error}")


def show_version() -> None:
    """Say which version this is."""
    sys.stdout.write(f"{NAME} {version_text()}\n")


async def _serve(
    app: App, most_body: int, listening: socket.socket, drained: Sequence[int]
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    server = BeanstalkdServer(app, name=NAME, most_body=most_body)
    loop.add_signal_handler(signal.SIGUSR1, server.drain)
    server.draining = bool(drained)
    try:
        await server.start(alone=True)
        await server.listen(listening)
        app.upkeep.start()
        await stop.wait()
        await server.close()
    finally:
        await app.aclose()


def app_of(options: Mapping[str, str], stack: contextlib.ExitStack) -> App:
    """Return an app as the flags say, on a directory that is its own."""
    if int(options["z"]) > MOST_BODY:
        log.warning("the largest body is %d bytes", MOST_BODY)
    every = None if "F" in options else int(options.get("f", SYNC_EVERY))
    given: dict[str, Any] = {"durability": "full" if every == 0 else "normal"}
    if not options.keys() & {"f", "F"} and "TOWPATH_DURABILITY" in os.environ:
        given = {}
    settings = Settings.from_environment(
        max_payload=min(int(options["z"]), MOST_BODY),
        max_waiters_per_topic=0,
        topic_cleanup=True,
        **given,
    )
    if "b" not in options:
        return App("memory://", settings=settings)
    directory = Path(options["b"]).absolute()
    stack.enter_context(_alone_in(directory))
    if any(directory.glob("binlog.*")):
        log.warning("%s has jobs of beanstalkd itself (binlog.*), which are not read", directory)
    path = directory / "towpath.db"
    if settings.durability == "normal" and every:
        stack.enter_context(syncing(Path(f"{path}-wal"), every / 1000))
    return App(f"sqlite:///{path}", settings=settings)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Generator[None]:
    """Keep others out of a directory."""
    try:
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        advice = "; create it first" if isinstance(error, FileNotFoundError) else ""
        sys.stderr.write(f"{NAME}: cannot use {directory}: {error.strerror}{advice}\n")
        sys.exit(LOCKED)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as beanstalkd itself does
    except OSError:
        sys.stderr.write(f"{NAME}: another one serves {directory}\n")
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
    except KeyError:
        sys.stderr.write(f"{NAME}: there is no user {user}\n")
        sys.exit(NO_USER)
    try:
        if os.geteuid() == 0:
            os.initgroups(user, known.pw_gid)  # or it would keep the groups of root
        os.setgid(known.pw_gid)
        os.setuid(known.pw_uid)
    except OSError as error:
        sys.exit(f"{NAME}: cannot become {user}: {error.strerror}")
