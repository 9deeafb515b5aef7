"""`towpath worker`: it starts, says what it does, stops as asked, and starts again on a change."""

import contextlib
import json
import signal

import psutil
import pytest

from tests.behaviour.test_doctor import does
from tests.cli.conftest import Towpath
from tests.conftest import eventually
from towpath.cli.processes import CHILD

MODULE = """
import asyncio
from pathlib import Path
from towpath import App

app = App(beat_every=0.2)

@app.task()
async def mail(to: str) -> str:
    return f"sent to {to}"

@app.task()
async def slow() -> str:
    await asyncio.sleep(2)
    return "slept"

@app.task()
async def endless() -> None:
    Path("begun").touch()
    await asyncio.sleep(600)
"""


@pytest.fixture
def module(tmp_path):
    """The module of a user."""
    path = tmp_path / "shop.py"
    path.write_text(MODULE)
    return path


@pytest.fixture
def start(towpath, module):
    """Start workers, and kill those that are left."""
    with contextlib.ExitStack() as stack:

        def start(*words):
            process = towpath.start("worker", "shop:app", *words)
            stack.callback(process.wait)
            stack.callback(process.kill)
            stack.callback(process.stdout.close)
            stack.callback(process.stderr.close)
            return process

        yield start


def returned(app, job):
    return app.jobs.get(job.id).returned


def test_a_worker_says_what_it_does_and_runs_jobs(app, towpath, start):
    """US2-1"""
    job = app.jobs.enqueue("mail", {"to": "ada"})
    worker = start("--name", "ada's", "--concurrency", 3, "--topics", "mail,slow", "--json")
    started = json.loads(worker.stdout.readline())
    assert (started["worker"], started["concurrency"]) == ("ada's", 3)
    assert started["topics"] == ["mail", "slow"]
    assert started["database"] == app.database
    eventually(lambda: returned(app, job) == "sent to ada")

    [found] = towpath.json("workers")["workers"]
    assert (found["worker"], found["topics"], found["live"]) == ("ada's", ["mail", "slow"], True)
    worker.terminate()
    assert worker.wait(30) == 0
    assert towpath.json("workers")["workers"] == []


def test_sigterm_lets_what_runs_end(app, start):
    """DQ-14"""
    job = app.jobs.enqueue("slow", {})
    worker = start()
    banner = [worker.stdout.readline() for _ in range(3)]
    assert banner[0].startswith("worker ")
    assert banner[1].split() == ["topics", "mail,", "slow,", "endless"]
    assert banner[2].split() == ["concurrency", "10"]
    eventually(lambda: app.jobs.get(job.id).state == "reserved")
    worker.terminate()

    assert worker.wait(30) == 0
    assert returned(app, job) == "slept"
    assert "has stopped" in worker.stderr.read()


def test_a_worker_that_is_asked_to_stop_lets_what_runs_end(app, towpath, start):
    """P3 of the dashboard"""
    job = app.jobs.enqueue("slow", {})
    worker = start("--name", "web-1")
    eventually(lambda: app.jobs.get(job.id).state == "reserved")

    [found] = towpath.json("workers", "--stop", "web-1")["workers"]

    assert found["stopping"]
    assert worker.wait(60) == 0
    assert returned(app, job) == "slept"
    assert "was asked to stop" in worker.stderr.read()
    assert "known: none" in towpath.process("workers", "--stop", "web-1", code=1).stderr


def test_a_second_signal_gives_back_at_once_and_the_end_is_good(app, start, tmp_path):
    job = app.jobs.enqueue("endless", {})
    worker = start("--grace", "10m")
    eventually((tmp_path / "begun").exists)
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)

    assert worker.wait(30) == 0
    app.upkeep.run()  # the worker's next look may have been on its way, and have taken it again
    found = app.jobs.get(job.id)
    assert (found.state, found.retries, found.crashes) == ("ready", 0, 0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shop:app", "module shop is neither in "),
        ("broken:app", "broken could not be imported: ModuleNotFoundError: No module named 'nope'"),
        ("syntax:app", "syntax could not be imported: SyntaxError"),
        ("raising:app", "raising could not be imported: ZeroDivisionError"),
        ("fine:app", "fine has no app; its apps are: other"),
        ("fine:number", "fine:number is a int, not an App"),
        ("fine.py:other", "give the module: fine:other"),
        ("refused:app", "is not a database"),
        ("fine:other", "the app has no tasks"),
    ],
)
def test_an_app_that_cannot_be_had_is_one_clear_line(tmp_path, name, told):
    for module, text in {
        "broken": "import nope",
        "syntax": "def",
        "raising": "def f():\n    1 / 0\nf()",
        "fine": "from towpath import App\nother = App('memory://')\nnumber = 1",
        "refused": "from towpath import App\napp = App('what')",
    }.items():
        (tmp_path / f"{module}.py").write_text(text)
    code = 2 if name == "fine.py:other" else 1
    done = Towpath(tmp_path).process("worker", name, code=code)

    *before, last = done.stderr.splitlines()
    assert last.startswith("towpath: ")
    assert told in last
    # The traceback is there where it helps, and only theirs.
    theirs = name.split(":")[0] in {"broken", "syntax", "raising"}
    assert bool(before) == theirs
    assert not [line for line in before if "towpath" in line or "importlib" in line]
    if name == "raising:app":
        assert any("line 2, in f" in line for line in before)


def test_a_database_of_the_future_ends_a_worker(app, start):
    """MS-11"""
    does(app, "insert into towpath.migration values (99, 99, 0)")
    worker = start()

    assert worker.wait(30) == 1
    assert "upgrade this process" in worker.stderr.read()


def test_it_starts_again_when_a_file_changes(app, start, module):
    worker = start("--reload")
    assert "worker" in worker.stdout.readline()
    first = app.jobs.enqueue("mail", {"to": "ada"})
    eventually(lambda: returned(app, first) == "sent to ada")
    running = app.jobs.enqueue("slow", {})
    eventually(lambda: app.jobs.get(running.id).state == "reserved")

    module.write_text(MODULE.replace("sent to", "flown to"))
    assert "shop.py has changed" in next(line for line in worker.stderr if "changed" in line)
    assert any("worker" in line for line in worker.stdout)  # the next one: the first has ended
    second = app.jobs.enqueue("mail", {"to": "bob"})
    eventually(lambda: returned(app, second) == "flown to bob")
    assert (returned(app, running), app.jobs.get(running.id).epoch) == ("slept", 1)

    module.write_text("def")
    assert any("could not be imported" in line for line in worker.stderr)
    eventually(lambda: not psutil.Process(worker.pid).children())
    module.write_text(MODULE.replace("sent to", "swum to"))
    third = app.jobs.enqueue("mail", {"to": "eve"})
    eventually(lambda: returned(app, third) == "swum to eve")

    worker.terminate()
    assert worker.wait(30) == 0


def test_a_burst_runs_what_can_run_now_and_ends(app, start):
    job, later = app.jobs.enqueue("mail", {"to": "ada"}), app.jobs.enqueue("slow", {}, delay="1h")
    worker = start("--burst", "--log-format", "json")

    assert worker.wait(60) == 0
    assert returned(app, job) == "sent to ada"
    assert app.jobs.get(later).state == "delayed"
    lines = [json.loads(line) for line in worker.stderr.read().splitlines()]
    told = [(each["level"], each["logger"], each["message"].split(" after")[0]) for each in lines]
    number = app.jobs.get(job).seq
    assert told[:2] == [
        ("info", "towpath", f"job {number} of topic 'mail' has started"),
        ("info", "towpath", f"job {number} of topic 'mail' has completed"),
    ]


OWN_ROOT = "logging.basicConfig(level='INFO', format='own %(message)s')"
OWN_LOGGER = """
logging.getLogger("towpath").setLevel("INFO")
logging.getLogger("towpath").addHandler(logging.StreamHandler())
"""


@pytest.mark.parametrize(
    ("configured", "expected"), [(OWN_ROOT, "own job 1 of "), (OWN_LOGGER, "job 1 of ")]
)
def test_an_apps_own_configuration_of_logging_stands(app, start, module, configured, expected):
    module.write_text(f"import logging\n{configured}\n{MODULE}")
    app.jobs.enqueue("mail", {"to": "ada"})
    worker = start("--burst", "--log-format", "json", "--log-level", "error")

    assert worker.wait(60) == 0
    assert worker.stderr.readline().startswith(expected)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_a_task_prints_leaves_in_whole_lines(app, module, start, monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    module.write_text(
        f"{MODULE}\n@app.task()\ndef speak() -> None:\n    import os, sys\n"
        "    print('the first half', end='')\n    os.write(1, b'another task\\n')\n"
        "    print(' and the second')\n    os.write(1, b'a third\\n')\n"
    )
    app.jobs.enqueue("speak", {})

    printed, _ = start("--burst").communicate(timeout=60)

    assert "another task\nthe first half and the second\na third\n" in printed


def test_the_log_is_as_quiet_as_asked(app, start):
    app.jobs.enqueue("mail", {"to": "ada"})
    worker = start("--burst", "--log-level", "warning")

    assert worker.wait(60) == 0
    assert worker.stderr.read() == ""


def test_processes_are_replaced_when_they_die_and_stop_together(app, start):
    worker = start("--processes", 2, "--name", "w")
    eventually(lambda: len(app.sessions.list()) == 2)
    assert sorted(each.worker for each in app.sessions.list()) == ["w-1", "w-2"]
    children = psutil.Process(worker.pid).children()
    children[0].kill()
    eventually(lambda: len(app.sessions.list()) == 3)  # the dead one is noticed later
    job = app.jobs.enqueue("slow", {})
    eventually(lambda: app.jobs.get(job).state == "reserved")
    worker.terminate()

    assert worker.wait(60) == 0
    assert returned(app, job) == "slept"
    assert not [each for each in children if each.is_running()]
    assert "has ended with code -9; another one starts in 1 s" in worker.stderr.read()


def test_a_signal_that_comes_to_a_process_and_from_its_parent_counts_once(app, towpath, start):
    """As systemd and a terminal send it."""
    towpath.environment[CHILD] = "1"
    job = app.jobs.enqueue("slow", {})
    worker = start()
    assert "has started" in worker.stderr.readline()
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)

    assert worker.wait(30) == 0
    assert returned(app, job) == "slept"


def test_processes_of_a_burst_end_by_themselves(app, start):
    jobs = [app.jobs.enqueue("mail", {"to": "ada"}) for _ in range(5)]
    worker = start("--processes", 2, "--burst")

    assert worker.wait(60) == 0
    assert {returned(app, job) for job in jobs} == {"sent to ada"}


def test_an_app_works_on_another_database_if_told_so(tmp_path, module):
    module.write_text(MODULE.replace("App(", "App('sqlite:///own.db', "))
    towpath = Towpath(tmp_path)
    towpath("jobs", "enqueue", "mail", '{"to": "ada"}', "--database", "sqlite:///other.db")
    towpath.process("worker", "shop:app", "--database", "sqlite:///other.db", "--burst")

    assert towpath.json("stats", "--database", "sqlite:///other.db")["completed"] == 1
    assert not (tmp_path / "own.db").exists()
    module.write_text(module.read_text().replace("@app.task()", "@app.task(sandbox=True)"))
    words = ["worker", "shop:app", "--database", "sqlite:///other.db"]
    assert "a sandboxed task would use the database" in towpath.process(*words, code=2).stderr


def test_an_error_before_the_start_is_said_once_for_all_processes(tmp_path):
    towpath = Towpath(tmp_path)
    done = towpath.process("worker", "nope:app", "--processes", 3, code=1)
    assert done.stderr.count("\n") == 1
    assert "must be at least 1" in towpath("worker", "nope:app", "--processes", 0, code=2).stderr
