"""Sandboxes: a task in a process of its own that may hang, crash or eat memory, alone."""

import importlib
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests import workers
from tests.behaviour import sandboxed
from tests.conftest import eventually
from towpath import App
from towpath.errors import Invalid, JobFailed
from towpath.worker import Worker
from towpath.worker.sandbox import Ending, Flush, Flushed
from towpath.worker.sandbox_child import Sender, receive

pytestmark = pytest.mark.one_database


@pytest.fixture
def tasks(place, monkeypatch):
    """The tasks, on the database of this test: here, and in every sandbox that is started."""
    url, needed = place
    monkeypatch.setenv("TOWPATH_DATABASE", url)
    monkeypatch.setenv("TOWPATH_SCHEMA", needed.get("schema", "towpath"))
    monkeypatch.setenv("TOWPATH_BEAT_EVERY", "0.1")
    tasks = importlib.reload(sandboxed)
    with tasks.app:
        yield tasks


@pytest.fixture
def working():
    """Run a worker of the tasks in a thread for a while."""
    return lambda tasks, **options: workers.working(tasks.app, **options)


def error_of(job):
    with pytest.raises(JobFailed) as failed:
        job.result(60)
    return str(failed.value)


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_sandboxed_task_runs_in_another_process_which_the_next_job_uses_too(tasks, working):
    with working(tasks):
        word, first = tasks.where.enqueue("a").result(60)
        again, second = tasks.where_async.enqueue("b").result(60)

    assert (word, again) == ("a", "b")
    assert first == second != os.getpid()


def test_sandboxes_work_side_by_side(tasks, working, tmp_path):
    notes = [str(tmp_path / name) for name in ("a", "b")]
    with working(tasks, grace=0):
        for note in notes:
            tasks.hang.enqueue(note, "sleep")
        eventually(lambda: all(os.path.exists(note) for note in notes), 60)  # noqa: PTH110


def test_an_error_in_a_sandbox_is_kept_as_elsewhere(tasks, working):
    job = tasks.raise_error.enqueue("no ink")
    with working(tasks):
        assert "ValueError: no ink" in error_of(job)
    assert "raise ValueError(text)" in tasks.app.jobs.failures(job)[0].traceback


def test_a_task_in_a_sandbox_says_what_is_to_become_of_its_job(tasks, working):
    with working(tasks):
        assert tasks.choose.enqueue("retry").result(60) == "retry"
        bury = tasks.choose.enqueue("bury")
        error_of(bury)
    assert tasks.app.jobs.get(bury.id).retries == 1


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("exit", "its process ended with exit code 3"),
        ("kill", "its process was killed by SIGKILL"),
        ("crash", "its process was killed by SIGSEGV"),
        ("fork and exit", "its process ended with exit code 4"),
    ],
)
def test_a_task_that_kills_its_process_fails_alone(tasks, working, how, why):
    """It counts as a failure of the job, not as a crash of the worker."""
    with working(tasks, concurrency=2) as worker:
        job = tasks.die.enqueue(how)
        assert f"SandboxFailed: {why}" in error_of(job)
        assert tasks.where.enqueue("after").result(60)[0] == "after"
        assert worker.sick is None

    found = tasks.app.jobs.get(job.id)
    assert (found.retries, found.crashes, found.epoch) == (2, 0, 2)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("sys.exit", "exited: enough"),
        ("interrupt", "KeyboardInterrupt"),
        ("recursion", "RecursionError"),
    ],
)
def test_a_task_that_wants_to_leave_a_sandbox_fails_alone(tasks, working, how, error):
    """MS-9"""
    with working(tasks):
        assert error in error_of(tasks.leave.enqueue(how))


def test_a_task_that_eats_memory_in_a_sandbox_fails_alone(tasks, working):
    with working(tasks):
        assert "MemoryError" in error_of(tasks.eat.enqueue(1_000))
        assert tasks.eat.enqueue(100).result(60) == 100 * 2**20


@pytest.mark.parametrize("how", ["sleep", "regex"])
def test_a_sandboxed_task_past_its_time_limit_is_killed(tasks, working, tmp_path, how):
    """EC-2: With the processes that it has started, and whatever it does with signals."""
    note = tmp_path / "note"
    with working(tasks):
        job = tasks.hang.using(timeout=1).enqueue(str(note), how)
        assert "TimeLimitExceeded: the job ran longer than its timeout of 1 s" in error_of(job)
        pids = [int(pid) for pid in note.read_text().split()]
        eventually(lambda: all(map(is_gone, pids)))
        assert tasks.where.enqueue("after").result(60)[0] == "after"


def test_a_sandboxed_task_that_is_cancelled_is_killed(tasks, working, tmp_path):
    note = tmp_path / "note"
    with working(tasks):
        job = tasks.hang.enqueue(str(note), "sleep")
        eventually(note.exists)
        tasks.app.jobs.cancel(job.id)
        eventually(lambda: tasks.app.jobs.get(job.id).state == "cancelled")
        pids = [int(pid) for pid in note.read_text().split()]
        eventually(lambda: all(map(is_gone, pids)))


def test_a_sandboxed_task_that_outlasts_the_grace_period_is_killed_and_given_back(
    tasks, working, tmp_path
):
    """DQ-14"""
    note = tmp_path / "note"
    with working(tasks, grace=0.1):
        job = tasks.hang.enqueue(str(note), "sleep")
        eventually(note.exists)

    found = tasks.app.jobs.get(job.id)
    assert (found.state, found.retries, found.crashes) == ("ready", 0, 0)
    pids = [int(pid) for pid in note.read_text().split()]
    eventually(lambda: all(map(is_gone, pids)))  # a child of its own dies by itself, moments later


def test_no_sandbox_outlives_its_worker(tasks, working):
    with working(tasks):
        _, pid = tasks.where.enqueue("a").result(60)
        assert not is_gone(pid)
    assert is_gone(pid)


def test_a_sandbox_that_died_while_it_was_idle_fails_nobody(tasks, working):
    with working(tasks):
        _, pid = tasks.where.enqueue("a").result(60)
        os.kill(pid, signal.SIGKILL)
        job = tasks.where.enqueue("b")
        assert job.result(60)[1] != pid
    assert tasks.app.jobs.get(job.id).retries == 0


def test_a_signal_to_the_whole_service_ends_no_sandbox(tasks, working):
    """Such as the SIGTERM by which systemd stops all processes: the worker decides."""
    with working(tasks):
        _, pid = tasks.where.enqueue("a").result(60)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        assert tasks.where.enqueue("b").result(60)[1] == pid


def test_a_result_that_cannot_be_stored_fails_the_sandboxed_job(tasks, working):
    with working(tasks):
        assert "the result is not JSON" in error_of(tasks.return_object.enqueue())


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
def test_a_context_in_a_sandbox_has_an_app_of_its_own(tasks, working):
    """A database in memory stays with its process."""
    with working(tasks):
        job = tasks.know.enqueue()
        assert job.result(60) == (str(job.id), "reserved")


def test_a_task_that_no_sandbox_could_find_is_refused(tasks):
    with pytest.raises(Invalid, match="at the top level of its module"):

        @tasks.app.task(sandbox=True)
        def inner() -> None: ...

    tasks.app.task(sandbox=True)(tasks.plain)
    with pytest.raises(Invalid, match=r"tests\.behaviour\.sandboxed has no task plain"):
        Worker(tasks.app)


def test_memory_is_a_size_and_belongs_to_a_sandbox(tasks):
    with pytest.raises(Invalid, match="`memory` requires sandbox=True"):
        tasks.app.task(memory="1GiB")(tasks.plain)
    for wrong in ("much", "0", 0, -1, "1 GB", True, 1.5):
        with pytest.raises(Invalid, match="is not a size"):
            tasks.app.task(sandbox=True, memory=wrong)(tasks.plain)
    for right in ("1GiB", "1024 mib", 2**30):
        assert tasks.app.task(sandbox=True, memory=right)(tasks.plain).memory == 2**30


def test_a_flush_that_its_task_gave_up_reads_its_answer_before_the_next_job_comes():
    """Two threads that read at once would take parts of each other's messages."""
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(2) as threads, ours, theirs:
        sender = Sender(theirs)
        flushing = threads.submit(sender.flush)
        receive(ours, Flush)

        ending = threads.submit(sender.end, Ending())
        with pytest.raises(TimeoutError):
            ending.result(0.1)
        Sender(ours).send(Flushed(3))

        assert flushing.result(10) == 3
        receive(ours, Ending)


UNGUARDED = """
from towpath import App
from towpath.worker import Worker

app = App("sqlite:///unguarded.db")

@app.task(sandbox=True, max_retries=1)
def one() -> int:
    return 1

@app.task(max_retries=1)
def stop() -> None:
    worker.stop()

one.enqueue()
stop.using(delay=3).enqueue()
worker = Worker(app)
worker.run()
"""


def test_a_main_program_that_does_more_than_define_tasks_is_not_run_again(tmp_path):
    """Each sandbox would enqueue and work again, and start sandboxes of its own."""
    (tmp_path / "program.py").write_text(UNGUARDED)

    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True, timeout=60)

    with App(f"sqlite:///{tmp_path}/unguarded.db") as app:
        _, one = app.jobs.list()
        assert "__main__" in one.last_error
        assert "if __name__" in one.last_error
