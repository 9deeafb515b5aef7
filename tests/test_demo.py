"""`./dev demo` keeps what the README says of it, and goes when it is told to."""

import os
import re
import signal
import subprocess
import sys

import httpx
import psutil

from tests.agents import AGENT
from tests.conftest import eventually

COMMAND = [sys.executable, "-m", "towpath.demo"]


def test_it_runs_each_job_once_and_loses_no_word_and_no_webhook():
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=200, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    told = " ".join(done.stdout.split())
    assert "600 of 600 jobs completed, each once. A worker was killed with -9" in told
    assert "none was lost, none came twice" in told
    assert "delivered again under the same webhook-id" in told
    assert all(word in told for word in ("DeadLettered", "connect_failed", "Completed"))


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


def test_ctrl_c_during_deliveries_ends_all_of_it_without_noise(tmp_path):
    url = f"sqlite:///{tmp_path / 'demo.db'}"
    program = f"from towpath.demo.delivery import show; show({url!r})"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        found = []
        # One look for both: at a second one, the first process may be gone.
        eventually(lambda: found.extend(at_work(demo)) or found)
        [deliverer] = found
        os.killpg(demo.pid, signal.SIGINT)
        said = demo.stderr.read()

    assert said.splitlines()[-1:] == ["KeyboardInterrupt"]  # which the demo itself swallows
    assert not deliverer.is_running()


def test_the_page_of_the_agent_is_served_until_ctrl_c():
    told = {name: text for name, text in os.environ.items() if name != "DATABASE_URL"}
    with subprocess.Popen(
        [sys.executable, "-m", "agent.demo"],
        cwd=AGENT,
        env=told,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        said = ""
        while "Ctrl-C" not in said:
            line = demo.stdout.readline()
            assert line, demo.stderr.read()
            said += line
        [address] = re.findall(r"http://[\d.:]+/", said)
        page = httpx.get(address, follow_redirects=True, timeout=60)
        parts = psutil.Process(demo.pid).children()
        named = re.findall(r"kill -9 ([\d ]+)\b", said)
        demo.send_signal(signal.SIGINT)
        noise = demo.stderr.read()

    assert "<title>Agent" in page.text
    assert sorted(" ".join(named).split()) == sorted(str(part.pid) for part in parts)
    assert len(parts) == 3
    assert (demo.returncode, noise) == (0, "")
    assert not any(part.is_running() for part in parts)


def at_work(demo):
    """The parts that have opened the database."""
    return [
        part
        for part in psutil.Process(demo.pid).children()
        if any(file.path.endswith("demo.db") for file in part.open_files())
    ]
