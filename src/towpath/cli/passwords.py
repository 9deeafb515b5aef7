"""How a shell is asked for a password: never by an argument, which others could see."""

import argparse
import getpass
import sys

from towpath.cli.output import Refused


def add_password(parser: argparse.ArgumentParser) -> None:
    """Add how a password is given."""
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from stdin, one line"
    )


def new_password(given: argparse.Namespace) -> str:
    """Have a new password typed twice, without showing it, or read it from stdin."""
    if given.password_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        msg = "there is no terminal to ask for a password: give it by --password-stdin"
        raise Refused(msg)
    try:
        typed, again = getpass.getpass("password: "), getpass.getpass("once more: ")
    except EOFError:
        msg = "no password was typed; in a script, give it by --password-stdin"
        raise Refused(msg) from None
    if again != typed:
        msg = "the two passwords differ: nothing was done"
        raise Refused(msg, "refused", 1)
    return typed
