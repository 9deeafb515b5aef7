"""`./dev demo` keeps what the README says of it, and goes when it is told to."""

import os
import signal
import subprocess
import sys

import psutil

from tests.conftest import eventually

COMMAND = [sys.executable, "-m", "towpath.demo"]


def test_it_runs_each_job_once_though_a_worker_is_killed():
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert "600 of 600 jobs completed, each once. A worker was killed with -9" in done.stdout


def test_ctrl_c_ends_all_of_it_without_noise():
    with subprocess.Popen(
        COMMAND,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        eventually(lambda: len(at_work(demo)) == 3)
        parts = at_work(demo)
        os.killpg(demo.pid, signal.SIGINT)
        said = demo.stderr.read()

    assert (demo.returncode, said) == (130, "")
    assert not any(part.is_running() for part in parts)


def at_work(demo):
    """The parts that have opened the database."""
    return [
        part
        for part in psutil.Process(demo.pid).children()
        if any(file.path.endswith("demo.db") for file in part.open_files())
    ]
