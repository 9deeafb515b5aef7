"""towpath-beanstalkd: a server for beanstalkd's protocol that listens before it imports the rest.

The test suites of beanstalkd's clients start a server and connect a moment later. So this module
listens before it imports even the standard library's sockets. The kernel keeps the connections
and their first commands until the server accepts them. It is outside of the package `towpath`,
which takes long to import.
"""

from __future__ import annotations

import _socket  # `socket` takes many times as long to import
import os
import sys

TYPE_CHECKING = False  # importing it from `typing` takes long
if TYPE_CHECKING:
    from typing import NoReturn

USAGE = """\
Usage: towpath-beanstalkd [OPTIONS]

 -b DIR   keep jobs in DIR, in a SQLite database (default: in memory)
 -f MS    with -b: sync to disk at most MS milliseconds after the reply (default 50); 0: before it
 -F       with -b: never sync; the operating system writes when it chooses
 -l ADDR  listen on address (default 0.0.0.0), or on unix:PATH
 -p PORT  listen on port (default 11300)
 -u USER  become this user and its group
 -z BYTES the largest body (default 65535, at most 536870912)
 -s BYTES accepted and ignored, as are -V, -c and -n
 -v       show version information
 -h       show this help
"""
WITH_VALUE = "bflpuzs"
WITHOUT_VALUE = "FVvhcn"
MOST_PORT = 65_535
BACKLOG = 1_024
FIRST_INHERITED = 3  # file descriptor
FILE_TYPE = 0o170000  # the bits of a file's mode that hold its type
SOCKET = 0o140000  # the type of a socket


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    options = parse(sys.argv[1:])
    if "v" in options:
        from towpath.server.beanstalkd.standalone import show_version  # noqa: PLC0415 - see above

        show_version()
        return
    bound = inherited() or listen(options["l"], int(options["p"]))
    import gc  # noqa: PLC0415 - see above
    import signal  # noqa: PLC0415 - see above
    import socket  # noqa: PLC0415 - see above

    drained: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: drained.append(number))
    listening = socket.socket(fileno=bound.detach())
    gc.disable()  # there is nothing to collect while modules are imported
    from towpath.server.beanstalkd.standalone import serve  # noqa: PLC0415 - see above

    serve(options, listening, drained)


def parse(arguments: list[str]) -> dict[str, str]:
    """Read the options as getopt does."""
    found = {"l": "0.0.0.0", "p": "11300", "z": "65535"}  # noqa: S104 - as beanstalkd does
    rest = list(arguments)
    while rest:
        given = rest.pop(0)
        if given.startswith("--"):
            given = "-h" if given == "--help" else refuse(f"unknown option: {given}")
        if not given.startswith("-") or given == "-":
            refuse(f"unknown argument: {given}")
        flags = given[1:]
        while flags:
            flag, flags = flags[0], flags[1:]
            if flag in WITH_VALUE:
                if not flags and not rest:
                    refuse(f"option requires an argument -- '{flag}'")
                found[flag], flags = flags or rest.pop(0), ""
            elif flag in WITHOUT_VALUE:
                found[flag] = ""
            else:
                refuse(f"unknown option: -{flag}")
    if "h" in found:
        sys.stdout.write(USAGE)
        sys.exit(0)
    check_numbers(found)
    return found


def check_numbers(found: dict[str, str]) -> None:
    """Refuse a value that is not a number, and a port above the last one."""
    for flag in "pzfs":
        if flag in found and not found[flag].isdecimal():
            refuse(f"-{flag} needs a number, not {found[flag]!r}")
    if int(found["p"]) > MOST_PORT:
        refuse(f"-p needs a port of at most {MOST_PORT}, not {found['p']}")


def refuse(reason: str) -> NoReturn:
    """Print an error and exit."""
    sys.stderr.write(f"towpath-beanstalkd: {reason}; -h shows all options\n")
    sys.exit(5)


def inherited() -> _socket.socket | None:
    """Return the listening socket that systemd passed to this process, if any."""
    given = os.environ.get("LISTEN_FDS", "")
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not given.isdecimal() or int(given) == 0:
        return None
    listening = _socket.socket(fileno=FIRST_INHERITED)
    listening.setblocking(False)
    return listening


def listen(address: str, port: int) -> _socket.socket:
    """Listen on an address, or on a socket in the file system."""
    try:
        if address.startswith("unix:"):
            path = address[5:]
            listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            remove_socket(path)
            listening.bind(path)
        else:
            [(family, kind, protocol, _, resolved), *_] = _socket.getaddrinfo(
                address, port, 0, _socket.SOCK_STREAM, 0, _socket.AI_PASSIVE
            )
            listening = _socket.socket(family, kind, protocol)
            listening.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            listening.bind(resolved)
        listening.listen(BACKLOG)
    except OSError as error:
        where = address if address.startswith("unix:") else f"{address} port {port}"
        sys.stderr.write(f"towpath-beanstalkd: cannot listen on {where}: {error.strerror}\n")
        sys.exit(111)
    listening.setblocking(False)
    return listening


def remove_socket(path: str) -> None:
    """Remove the socket of an earlier server; leave any other file."""
    try:
        if os.lstat(path).st_mode & FILE_TYPE == SOCKET:
            os.unlink(path)  # noqa: PTH108 - pathlib takes long to import
    except FileNotFoundError:
        pass


if __name__ == "__main__":
    main()
