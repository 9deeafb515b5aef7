"""towpath-beanstalkd takes beanstalkd's flags, and listens before all else."""

import asyncio
import os
import pwd
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.beanstalkd.conftest import EXECUTABLE, PATIENCE
from towpath import App


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
    version, usage = ran("-v"), ran("-h")

    assert version.stdout.startswith("towpath-beanstalkd ")
    assert usage.returncode == 0
    assert "-b DIR" in usage.stdout


@pytest.mark.parametrize(
    "wrong", [["-x"], ["-p"], ["-p", "http"], ["-p", "65536"], ["serve"], ["-z", "-1"]]
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
    assert "cannot listen on 127.0.0.1" in done.stderr


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
    """Who is not root can only become itself."""
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


def test_what_is_said_before_it_can_answer_counts_from_when_it_was_said(served, loop):
    """A client that connects at once waits for the answer, and not for its delay as well."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    said = b"put 0 100 60 1\r\na\r\nreserve-with-timeout 99\r\nreserve-with-timeout 99\r\n"
    welcome = served.door.welcome(ours, said, time.monotonic() - 100)
    asyncio.run_coroutine_threadsafe(welcome, loop).result(PATIENCE)

    with theirs, theirs.makefile("rb") as answers:
        theirs.settimeout(PATIENCE)
        assert [answers.readline() for _ in range(4)] == [
            b"INSERTED 1\r\n", b"RESERVED 1 1\r\n", b"a\r\n", b"TIMED_OUT\r\n",
        ]  # fmt: skip
        theirs.sendall(b"put 0 100 60 1\r\nb\r\n")
        answers.readline()
        assert served.app.jobs.numbered(2).state == "delayed"


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
