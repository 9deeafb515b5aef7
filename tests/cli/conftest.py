"""The program, in this process or in one of its own."""

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import NamedTuple

import pytest

from towpath import App
from towpath.cli.main import main

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = [sys.executable, "-m", "towpath"]


class Done(NamedTuple):
    """What it said before it ended."""

    stdout: str
    stderr: str


class Towpath:
    """`towpath` in a directory, with an environment."""

    def __init__(self, directory, **environment):
        self.directory = directory
        # This very source, from whatever directory.
        self.environment = {**os.environ, "PYTHONPATH": str(SOURCE), **environment}

    def __call__(self, *words, code=0, said=""):
        """Run it to its end in this process, which is quicker."""
        out, complaints = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.chdir(self.directory),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(complaints),
        ):
            patch.setattr(os, "environ", self.environment)
            patch.setattr(sys, "stdin", io.StringIO(said))
            patch.setattr(sys, "argv", ["towpath", *map(str, words)])
            with pytest.raises(SystemExit) as end:
                main()
        done = Done(out.getvalue(), complaints.getvalue())
        assert end.value.code == code, done
        return done

    def process(self, *words, code=0, said=None):
        """Run it to its end in a process of its own."""
        done = subprocess.run(
            [*PROGRAM, *map(str, words)],
            cwd=self.directory,
            env=self.environment,
            input=said,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return Done(done.stdout, done.stderr)

    def json(self, *words, code=0):
        """Return the document that it answers with."""
        return json.loads(self(*words, "--json", code=code).stdout)

    def start(self, *words, **options):
        """Start it; the caller ends it."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        words = [*PROGRAM, *map(str, words)]
        return subprocess.Popen(words, cwd=self.directory, env=self.environment, **pipes)

    def in_terminal(self, *words, typed="", answers=(), interrupt_at=None, columns=80):
        """Run it in a terminal; return exit code and what it showed.

        An answer is typed when its question is shown, and Ctrl-C pressed at `interrupt_at`.
        """
        asked = list(answers)
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        environment = {**self.environment, "TERM": "xterm-256color"}
        with subprocess.Popen(
            [*PROGRAM, *map(str, words)],
            cwd=self.directory,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,  # so that it asks here, not at the terminal of the tests
        ) as process:
            os.close(theirs)
            os.write(ours, typed.encode())
            shown = b""
            while chunk := _read(ours):
                shown += chunk
                if asked and shown.decode(errors="replace").endswith(asked[0][0]):
                    os.write(ours, asked.pop(0)[1].encode())
                if interrupt_at and interrupt_at in shown.decode(errors="replace"):
                    process.send_signal(signal.SIGINT)
                    interrupt_at = None
            os.close(ours)
            return process.wait(60), shown.decode()


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says so when no process is left at the other end
        return b""


@pytest.fixture
def app(durable_place):
    """An app on the database that the program is told of."""
    url, needed = durable_place
    with App(url, **needed) as app:
        app.migrate()
        yield app


@pytest.fixture
def towpath(durable_place, tmp_path):
    """The program, told of a database by its environment."""
    url, needed = durable_place
    schema = needed.get("schema", "towpath")
    return Towpath(tmp_path, TOWPATH_DATABASE=url, TOWPATH_SCHEMA=schema)
