"""Reads passwords: never from an argument, which other users of the machine could see."""

import argparse
import getpass
import sys

from towpath.cli.output import Refused


def add_password(parser: argparse.ArgumentParser) -> None:
    """Add the option for passwords."""
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from stdin, one line"
    )


def new_password(given: argparse.Namespace) -> str:
    """Read a new password: typed twice at the terminal without echo, or from stdin."""
    if given.password_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        msg = "no terminal to ask for a password; pass it by --password-stdin"
        raise Refused(msg)
    try:
        typed, again = getpass.getpass("password: "), getpass.getpass("password again: ")
    except EOFError:
        msg = "no password was typed; in a script, pass it by --password-stdin"
        raise Refused(msg) from None
    if again != typed:
        msg = "the two passwords differ; nothing was changed"
        raise Refused(msg, "refused", 1)
    return typed
