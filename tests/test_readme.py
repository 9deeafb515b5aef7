"""The README, as a newcomer reads it: every program and every command runs, twice.

A block of Python that begins with `# NAME.py` is a file of the project; each other one is a
program, and `# →` begins a line that it prints. In a block `console`, `$ ` begins a command, which
runs in the directory of the project; the lines below are its output, in which `…` is any text.
"""

import ast
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import eventually
from towpath import App
from towpath.testing import isolated

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
FILES = {
    name: text
    for kind, text in BLOCKS
    if (name := text.partition("\n")[0].removeprefix("# ")).endswith((".py", ".toml"))
}
PROGRAMS = [text for kind, text in BLOCKS if kind == "python" and text not in FILES.values()]
SESSIONS = [text for kind, text in BLOCKS if kind == "console"]
FOREVER = "towpath serve"  # this command runs until a signal
MARK = "the exit status was"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def project(tmp_path):
    """The directory that a newcomer has made."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def environment():
    """Return the variables of a shell in which the package is installed."""
    known = {name: text for name, text in os.environ.items() if not name.startswith("TOWPATH_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**known, "PATH": path}


def matches(shown: str, printed: str) -> bool:
    """Say whether the README shows what was printed; a line that is `…` stands for any lines.

    The width of a column depends on what is in it, so spaces are not counted.
    """
    shown, printed = (re.sub(" +", " ", text).replace("\n ", "\n") for text in (shown, printed))
    pattern = "".join(
        "(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in shown.rstrip().splitlines()
    )
    return bool(re.fullmatch(pattern, printed.rstrip() + "\n" if printed.strip() else ""))


def test_it_begins_with_the_install_line_and_a_project():
    kinds = [kind for kind, _ in BLOCKS[:4]]

    assert kinds == ["sh", "toml", "python", "console"]
    assert BLOCKS[0][1].startswith("pip install towpath ")
    assert set(FILES) == {"pyproject.toml", "tasks.py"}


def test_the_first_project_is_short():
    lines = [line for line in FILES["tasks.py"].splitlines() if line.strip()]

    assert len(lines) <= 10


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_prints_what_it_shows_however_often_it_runs(number, project):
    program = project / "example.py"
    program.write_text(PROGRAMS[number])
    shown = "\n".join(re.findall(r"^ *# → (.*)$", PROGRAMS[number], re.MULTILINE))

    assert shown, "it shows nothing"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, program],
            cwd=project,
            env=environment(),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=100,
        )
        printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
        assert matches(shown, printed), printed


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_names_the_packages_that_it_needs(number):
    program = PROGRAMS[number]
    named = " ".join(re.findall(r"^# pip install (.*)$", program, re.MULTILINE))
    for extra in re.findall(r"towpath\[(\w+)\]", named):
        named += " ".join(PROJECT["optional-dependencies"][extra])
    used = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }

    missing = [name for name in used - {"towpath"} - sys.stdlib_module_names if name not in named]
    assert not missing
    assert "psycopg" in named or 'App("postgresql:' not in program


class Shell:
    """A shell in the directory of the project, which keeps its variables."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._bash = subprocess.Popen(
            [shutil.which("bash")],
            cwd=directory,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> str:
        """Run a command; return what it prints."""
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n{MARK} %s\\n' $?\n")
        self._bash.stdin.flush()
        printed = []
        while not (line := self._bash.stdout.readline()).startswith(MARK):
            assert line, "the shell has ended"
            printed.append(line)
        told = "".join(printed)
        assert line.split()[-1] == "0", f"{command}: {told}"
        return told

    def start(self, command: str, shown: str) -> None:
        """Run a command until the shell is closed, and wait for what the README shows."""
        log = self._directory / "log"
        log.touch()
        self.run(f"{command} >{log} 2>&1 &")
        eventually(lambda: matches(shown, log.read_text()))

    def close(self) -> None:
        """End the shell and what it has started."""
        os.killpg(self._bash.pid, signal.SIGTERM)
        self._bash.stdin.close()
        self._bash.stdout.close()
        self._bash.wait()


@pytest.fixture
def shell(project):
    shell = Shell(project)
    yield shell
    shell.close()


def test_every_command_works_in_the_project_and_prints_what_is_shown(shell):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    commands = [
        (command, shown)
        for session in SESSIONS
        for command, _, shown in (
            each.partition("\n") for each in session.replace("8090", port).split("$ ")[1:]
        )
    ]
    for command, shown in commands:
        if command == FOREVER:
            shell.start(f"{command} --port {port}", shown)
        elif "curl" not in command or shutil.which("curl"):
            printed = shell.run(command)
            assert matches(shown, printed), f"{command}: {printed}"
    shell.run("kill %1; wait %1 || true")

    for command, _ in commands:  # again, in the same directory
        if command != FOREVER and "curl" not in command:
            shell.run(command)


def test_a_job_gives_up_when_the_readme_says():
    """Five minutes after the first failure, which is the third."""
    assert "about five minutes after the first failure" in " ".join(README.split())
    app = App("memory://")

    @app.task()
    def refuse() -> None:
        raise ConnectionError

    with isolated(app) as jobs:
        job = refuse.enqueue()
        begin = jobs.clock.now
        ran = []
        while job.refresh().status == "pending":
            jobs.clock.advance(job.refresh().run_at - jobs.clock.now)
            ran += jobs.run(raises=False)
        assert len(ran) == 3
        assert (jobs.clock.now - begin).total_seconds() == 300
        assert job.refresh().state == "buried"
