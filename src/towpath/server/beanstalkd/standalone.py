"""towpath-beanstalkd after its imports: a server that has a database to itself."""

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
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from towpath import App, Settings, TowpathError
from towpath.server.beanstalkd.fsync_later import syncing
from towpath.server.beanstalkd.server import BeanstalkdServer
from towpath.server.beanstalkd.stats import version_text
from towpath.server.event_loops import loop_factory

log: Final = logging.getLogger("towpath")

NAME: Final = "towpath-beanstalkd"
SYNC_EVERY: Final = 50  # ms; beanstalkd's default
MOST_BODY: Final = 2**29  # bytes; as base64 the largest that SQLite can store
LOCKED: Final = 10  # beanstalkd's exit status if another server uses the directory
NO_USER: Final = 33  # beanstalkd's exit status if the user is unknown


def serve(options: Mapping[str, str], listening: socket.socket, drained: Sequence[int]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    _allow_many_files()
    new_loop = loop_factory()  # imported now: the new user may not be allowed to read our files
    if "u" in options:
        version_text()  # cached now, likewise
        _become(options["u"])
    try:
        with contextlib.ExitStack() as stack:
            app = app_of(options, stack)
            gc.freeze()  # modules stay loaded, so no collection needs to visit them
            gc.enable()
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(_serve(app, int(options["z"]), listening, drained))
    except TowpathError as error:
        sys.exit(f"{NAME}: {error}")


def show_version() -> None:
    """Print the version."""
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
    """Return the app that the options describe; lock its directory."""
    if int(options["z"]) > MOST_BODY:
        log.warning("-z %s is too large; the largest body is %d bytes", options["z"], MOST_BODY)
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
        log.warning("%s has files of beanstalkd (binlog.*); their jobs are not read", directory)
    path = directory / "towpath.db"
    if settings.durability == "normal" and every:
        stack.enter_context(syncing(Path(f"{path}-wal"), every / 1000))
    return App(f"sqlite:///{path}", settings=settings)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Generator[None]:
    """Lock a directory, so that no other server uses it."""
    try:
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        advice = "; create it first" if isinstance(error, FileNotFoundError) else ""
        sys.stderr.write(f"{NAME}: cannot use {directory}: {error.strerror}{advice}\n")
        sys.exit(LOCKED)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as beanstalkd itself does
    except OSError:
        sys.stderr.write(f"{NAME}: another server uses {directory}\n")
        sys.exit(LOCKED)
    try:
        yield
    finally:
        os.close(lock)


def _allow_many_files() -> None:
    """Raise the limit of open files, and so of connections, to the largest allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _become(user: str) -> None:
    """Give up the rights of the user that started the process."""
    try:
        known = pwd.getpwnam(user)
    except KeyError:
        sys.stderr.write(f"{NAME}: unknown user {user}\n")
        sys.exit(NO_USER)
    try:
        if os.geteuid() == 0:
            os.initgroups(user, known.pw_gid)  # otherwise the process keeps the groups of root
        os.setgid(known.pw_gid)
        os.setuid(known.pw_uid)
    except OSError as error:
        sys.exit(f"{NAME}: cannot become {user}: {error.strerror}")
