"""towpath-beanstalkd takes beanstalkd's flags, and listens before all else."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.beanstalkd.conftest import EXECUTABLE, PATIENCE, Raw
from tests.conftest import eventually
from towpath import App
from towpath.server.beanstalkd import standalone
from towpath.server.beanstalkd.fsync_later import _sync_since, syncing
from towpath_beanstalkd import parse


def ran(*options):
    return subprocess.run(
        [sys.executable, str(EXECUTABLE), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={"PYTHONPATH": str(EXECUTABLE.parent)},
    )


def test_it_shows_its_version_and_its_flags():
    version, usage, long = ran("-v"), ran("-h"), ran("--help")

    assert version.stdout.startswith("towpath-beanstalkd ")
    assert usage.returncode == 0
    assert "-b DIR" in usage.stdout
    assert (long.returncode, long.stdout) == (0, usage.stdout)


@pytest.mark.parametrize(
    "wrong",
    [["-x"], ["-p"], ["-p", "http"], ["-p", "65536"], ["serve"], ["-z", "-1"], ["--port", "1"]],
)
def test_it_refuses_what_it_does_not_know(wrong):
    done = ran(*wrong)

    assert done.returncode == 5
    assert "towpath-beanstalkd: " in done.stderr


def test_it_says_where_it_cannot_listen(executable):
    taken = executable()
    taken.client().put()

    done = ran("-l", "127.0.0.1", "-p", str(taken.port))

    assert done.returncode == 111
    assert f"cannot listen on 127.0.0.1 port {taken.port}: Address already in use" in done.stderr


def test_it_says_what_is_wrong_with_a_directory_or_a_user(tmp_path):
    nowhere = ran("-p", "0", "-l", "127.0.0.1", "-b", str(tmp_path / "nowhere"))
    nobody = ran("-p", "0", "-l", "127.0.0.1", "-u", "no-such-user")

    assert nowhere.returncode == 10
    assert "nowhere: No such file or directory; create it first" in nowhere.stderr
    assert (nobody.returncode, nobody.stderr) == (
        33,
        "towpath-beanstalkd: unknown user no-such-user\n",
    )


def test_its_files_are_nobody_elses_to_read(executable, tmp_path):
    executable("-b", str(tmp_path)).client().put()

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes.keys() >= {"lock", "towpath.db", "towpath.db-wal"}
    assert set(modes.values()) == {0o600}


def test_jobs_that_beanstalkd_itself_has_left_are_not_passed_over_in_silence(tmp_path):
    (tmp_path / "binlog.1").touch()
    server = Popen(
        [sys.executable, str(EXECUTABLE), "-l", "127.0.0.1", "-p", "0", "-b", str(tmp_path)],
        stderr=PIPE,
        text=True,
        env={"PYTHONPATH": str(EXECUTABLE.parent)},
    )
    with server:
        said = server.stderr.readline()
        server.terminate()

    assert "has files of beanstalkd (binlog.*); their jobs are not read" in said


@pytest.mark.parametrize(
    ("flags", "environment", "durability"),
    [
        ([], None, "normal"),
        ([], "full", "full"),
        (["-f0"], None, "full"),
        (["-f0"], "normal", "full"),
        (["-f100"], "full", "normal"),
        (["-f0", "-F"], "full", "normal"),
    ],
)
def test_flags_say_how_durable_it_is_and_else_the_environment(
    monkeypatch, tmp_path, flags, environment, durability
):
    monkeypatch.delenv("TOWPATH_DURABILITY", raising=False)
    if environment:
        monkeypatch.setenv("TOWPATH_DURABILITY", environment)

    with contextlib.ExitStack() as stack:
        app = standalone.app_of(parse(["-b", str(tmp_path), *flags]), stack)
        stack.enter_context(app)
        assert app.settings.durability == durability


def test_what_is_written_reaches_the_disk_soon_and_an_idle_file_is_left_alone(tmp_path):
    path = tmp_path / "wal"
    synced = []

    def sync(descriptor):
        synced.append(os.fstat(descriptor).st_size)

    with syncing(path, 0.001, sync):
        path.write_bytes(b"one")
        eventually(lambda: 3 in synced)
        with path.open("ab") as more:
            more.write(b"two")
        eventually(lambda: 6 in synced)
        # Older than the file system's clock can be behind: nothing was written since.
        os.utime(path, (time.time() - 60, time.time() - 60))
        count = len(synced) + 1  # one may be under way
        eventually(lambda: time.time() - path.stat().st_atime > 60.05)
        assert len(synced) <= count
        path.write_bytes(b"at the end")
    assert synced[-1] == 10


def test_a_clock_that_is_set_back_keeps_nothing_from_the_disk(tmp_path):
    path = tmp_path / "wal"
    path.write_bytes(b"x")
    synced = []

    ahead = time.time() + 3_600
    assert _sync_since(path, ahead, synced.append) < ahead
    assert len(synced) == 1


def test_it_takes_every_flag_of_beanstalkd(executable, tmp_path):
    server = executable(
        "-V", "-VVV", "-b", str(tmp_path), "-f", "100", "-F", "-s10485760", "-z8", "-n"
    )
    client = server.client()

    client.ask("put 0 0 1 9\r\n123456789", "JOB_TOO_BIG")
    client.ask("put 0 0 1 8\r\n12345678", "INSERTED 1")
    assert client.told("stats")["max-job-size"] == "8"
    assert server.stop() == 0


def test_it_becomes_another_user_with_none_of_the_groups_of_root(executable):
    """A user that is not root can only become itself."""
    uid = os.geteuid()
    user = pwd.getpwnam("nobody") if uid == 0 else pwd.getpwuid(uid)
    server = executable("-u", user.pw_name)
    server.client().put()

    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    said = dict(line.split(":\t", 1) for line in status.splitlines())

    assert said["Uid"].split() == [str(user.pw_uid)] * 4
    assert said["Gid"].split() == [str(user.pw_gid)] * 4
    groups = os.getgrouplist(user.pw_name, user.pw_gid) if uid == 0 else os.getgroups()
    assert set(map(int, said["Groups"].split())) == set(groups)


def test_the_other_user_need_not_be_allowed_to_read_our_own_files(executable, tmp_path):
    """As where all of it lies in root's home: what is needed was read before."""
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    closed = tmp_path / "closed"
    shutil.copytree(EXECUTABLE.parent, closed)
    about = closed / "towpath-9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: towpath\nVersion: 9.9\n")
    closed.chmod(0o700)
    client = executable("-u", user.pw_name, program=closed / EXECUTABLE.name).client()

    client.put()

    client.ask("reserve", "RESERVED 1 1", "a")
    assert client.told("stats")["version"] == '"1.13 (Towpath 9.9)"'


def test_its_jobs_lie_in_a_database_that_towpath_reads(executable, tmp_path):
    """The same tickets as every other door: durable, and open to inspection."""
    server = executable("-b", str(tmp_path))
    client = server.client()
    client.ask("use mail", "USING mail")
    client.put(b"hello")

    with App(f"sqlite:///{tmp_path}/towpath.db") as app:
        [job] = app.jobs.list(topic="mail")
        assert job.payload == b"hello"
        app.jobs.enqueue("mail", "from elsewhere", priority=0)
    client.ask("watch mail", "WATCHING 2")
    client.ask("reserve", "RESERVED 1 5", "hello")
    client.ask("reserve", "RESERVED 2 16", '"from elsewhere"')


def test_it_listens_before_it_imports_the_server(executable, tmp_path):
    """A client's test suite starts it and connects a moment later."""
    program = shutil.copy(EXECUTABLE, tmp_path)
    (tmp_path / "towpath.py").write_text("import threading\nthreading.Event().wait()\n")

    executable(program=Path(program)).client()


def test_early_clients_are_all_answered(executable):
    server = executable()
    clients = [server.client() for _ in range(150)]
    for nth, client in enumerate(clients):
        client.say(f"use tube-{nth}\r\nlist-tube-used\r\n")

    for nth, client in enumerate(clients):
        client.hear(f"USING tube-{nth}", f"USING tube-{nth}")


def test_one_who_leaves_early_is_forgotten(executable):
    server = executable()
    gone, stays = server.client(), server.client()
    gone.say("put 0 0 1 1\r\na\r\n")
    gone.close()

    stays.ask("reserve-with-timeout 20", "RESERVED 1 1", "a")


def test_a_socket_that_was_opened_by_another_is_used():
    """As systemd does: descriptor 3, for the process of this number."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        command = [sys.executable, str(EXECUTABLE), "-p", "1"]
        environment = {"PYTHONPATH": str(EXECUTABLE.parent), **os.environ}
        shell = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        server = subprocess.Popen(
            ["/bin/sh", "-c", shell, "sh", *command],
            env=environment,
            close_fds=False,
            preexec_fn=lambda: os.dup2(opened.fileno(), 3),  # noqa: PLW1509 - it does no more
        )
        try:
            client = Raw(opened.getsockname())
            client.put()
            client.close()
        finally:
            server.terminate()
            assert server.wait(PATIENCE) == 0


@pytest.mark.parametrize("given", ["0", "", "none"])
def test_where_no_socket_was_opened_it_opens_one(executable, given):
    server = executable()
    server.client().put()
    server.stop()
    command = [sys.executable, str(EXECUTABLE), "-l", "127.0.0.1", "-p", str(server.port)]
    shell = f'LISTEN_PID=$$ LISTEN_FDS={given} exec "$@"'
    server.process = subprocess.Popen(
        ["/bin/sh", "-c", shell, "sh", *command],
        env={"PYTHONPATH": str(EXECUTABLE.parent), **os.environ},
    )

    server.client().put()

    assert server.stop() == 0


def test_its_version_needs_no_port(executable):
    taken = executable()
    taken.client().put()

    done = subprocess.run(
        [sys.executable, str(EXECUTABLE), "-v", "-l", "127.0.0.1", "-p", str(taken.port)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={"PYTHONPATH": str(EXECUTABLE.parent)},
    )

    assert (done.returncode, done.stdout[:19]) == (0, "towpath-beanstalkd ")
