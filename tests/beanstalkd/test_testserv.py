"""What beanstalkd's own testserv.c is about, by the same names, on every database."""

import os
import signal
import socket

import pytest

from tests.conftest import eventually


def test_unknown_command(client):
    client.ask("nont10knowncommand", "UNKNOWN_COMMAND")


def test_too_long_commandline(client):
    client.ask("x" * 1_000, "BAD_FORMAT")
    client.ask("put 0 0 1 1\r\nA", "INSERTED 1")


def test_put_in_drain(served, client):
    served.door.drain()

    client.ask("put 0 0 1 1\r\nx", "DRAINING")
    assert client.told("stats")["draining"] == "true"


def test_peek_ok(client):
    client.ask("put 0 0 1 1\r\na", "INSERTED 1")
    client.ask("peek 1", "FOUND 1 1", "a")


def test_peek_not_found(client):
    client.put()

    client.ask("peek 2", "NOT_FOUND")
    client.ask("peek 18446744073709551615", "NOT_FOUND")
    client.ask("peek 0", "NOT_FOUND")


@pytest.mark.parametrize("line", ["peek 18446744073709551616", "peek 184467", "peek -1", "peek a"])
def test_peek_bad_format(client, line):
    client.ask(line, "NOT_FOUND" if line == "peek 184467" else "BAD_FORMAT")


@pytest.mark.parametrize("line", ["peek-ready foo", "peek-delayedX", "peek-buried 1", "peek "])
def test_peek_of_a_state_bad_format(client, line):
    client.ask(line, "BAD_FORMAT")


def test_peek_delayed(client):
    client.ask("peek-delayed", "NOT_FOUND")
    client.put(b"A")
    client.put(b"B", delay=100)
    client.put(b"C", delay=10)

    client.ask("peek-delayed", "FOUND 3 1", "C")
    client.ask("delete 3", "DELETED")
    client.ask("peek-delayed", "FOUND 2 1", "B")
    client.ask("delete 2", "DELETED")
    client.ask("peek-delayed", "NOT_FOUND")


def test_peek_buried_kick(client):
    client.put(b"A")
    client.ask("peek-buried", "NOT_FOUND")
    client.ask("reserve-with-timeout 0", "RESERVED 1 1", "A")
    client.ask("bury 1 100", "BURIED")
    client.ask("peek-buried", "FOUND 1 1", "A")
    client.ask("reserve-with-timeout 0", "TIMED_OUT")
    client.ask("kick 1", "KICKED 1")

    client.ask("peek-buried", "NOT_FOUND")
    client.ask("peek-ready", "FOUND 1 1", "A")
    client.ask("reserve-with-timeout 0", "RESERVED 1 1", "A")
    client.ask("release 1 1 0", "RELEASED")


@pytest.mark.parametrize("line", ["touch a111", "touch 111a", "touch !@#!@#"])
def test_touch_bad_format(client, line):
    client.ask(line, "BAD_FORMAT")


def test_touch_not_found(client):
    client.ask("touch 1", "NOT_FOUND")
    client.put()
    client.ask("touch 1", "NOT_FOUND")


@pytest.mark.parametrize("line", ["bury 111abc 2", "bury 111", "bury 111 222abc"])
def test_bury_bad_format(client, line):
    client.ask(line, "BAD_FORMAT")


@pytest.mark.parametrize("line", ["kick-job a111", "kick-job 111a", "kick-job -1"])
def test_kickjob_bad_format(client, line):
    client.ask(line, "BAD_FORMAT")


def test_kickjob_buried(client):
    client.put(b"A")
    client.ask("kick-job 100", "NOT_FOUND")
    client.ask("kick-job 1", "NOT_FOUND")
    client.ask("reserve-with-timeout 0", "RESERVED 1 1", "A")
    client.ask("bury 1 100", "BURIED")

    client.ask("kick-job 1", "KICKED")
    client.ask("kick-job 1", "NOT_FOUND")
    client.ask("reserve-with-timeout 0", "RESERVED 1 1", "A")


def test_kickjob_delayed(client):
    client.put()
    client.put(b"AA", delay=10)
    client.put(delay=10)

    client.ask("kick-job 2", "KICKED")
    client.ask("kick-job 2", "NOT_FOUND")
    client.ask("reserve-with-timeout 0", "RESERVED 1 1", "a")
    client.ask("reserve-with-timeout 0", "RESERVED 2 2", "AA")
    client.ask("reserve-with-timeout 0", "TIMED_OUT")


def test_pause(client):
    client.put()
    client.ask("pause-tube default 100", "PAUSED")

    client.ask("reserve-with-timeout 0", "TIMED_OUT")
    client.ask("pause-tube nothing 100", "NOT_FOUND")
    client.ask("pause-tube default -1", "BAD_FORMAT")


def test_underscore(client):
    client.ask("use x_y", "USING x_y")


def test_2cmdpacket(client):
    client.ask("use a\r\nuse b", "USING a", "USING b")


def test_too_big(serve):
    client = serve(most_body=10).client()

    client.ask("put 0 0 0 11\r\ndelete 9999", "JOB_TOO_BIG")
    client.ask("put 0 0 0 10\r\n0123456789", "INSERTED 1")


@pytest.mark.parametrize("size", ["4294967296", "-1", "1x"])
def test_job_size_invalid(client, size):
    client.ask(f"put 0 0 0 {size}", "BAD_FORMAT")
    client.ask("put 0 0 0 1\r\na", "INSERTED 1")


def test_job_size_max_plus_1(client):
    body = b"a" * 65_536

    client.ask(b"put 0 0 0 65536\r\n" + body, "JOB_TOO_BIG")
    client.ask(b"put 0 0 0 65535\r\n" + body[1:], "INSERTED 1")
    client.ask("peek 1", "FOUND 1 65535", body[1:])


def test_delete_ready(client):
    client.put()

    client.ask("delete 1", "DELETED")
    client.ask("delete 1", "NOT_FOUND")


def test_delete_reserved_by_other(served, client):
    other = served.client()
    client.put()
    other.ask("reserve", "RESERVED 1 1", "a")

    client.ask("delete 1", "NOT_FOUND")
    other.ask("delete 1", "DELETED")


@pytest.mark.parametrize("line", ["delete 18446744073709551616", "delete 184x", "delete foo"])
def test_delete_bad_format(client, line):
    client.ask(line, "BAD_FORMAT")


def test_multi_tube(client):
    client.ask("use abc", "USING abc")
    client.put(b"x", priority=999_999)
    client.ask("use def", "USING def")
    client.put(b"y", priority=99)

    client.ask("watch abc\r\nwatch def", "WATCHING 2", "WATCHING 3")
    client.ask("reserve", "RESERVED 2 1", "y")
    client.ask("reserve", "RESERVED 1 1", "x")


@pytest.mark.parametrize(
    "line", ["put 512 -1 100 0", "put -1kkdj9djjkd9 0 100 1", "put -1 0 100 1"]
)
def test_negative_delay_and_priority_and_garbage_priority(client, line):
    client.ask(line, "BAD_FORMAT")


def test_max_priority(client):
    client.ask("put 4294967295 0 100 1\r\na", "INSERTED 1")


def test_too_big_priority(client):
    client.ask("put 4294967296 0 100 1\r\na", "BAD_FORMAT", "UNKNOWN_COMMAND")


def test_omit_time_left(client):
    client.put()

    assert client.told("stats-job 1")["time-left"] == "0"


def test_small_delay(client):
    client.ask("put 0 1 1 0\r\n", "INSERTED 1")


def test_delayed_to_ready(client):
    client.put(delay=1)
    before = client.told("stats-tube default")
    client.ask("reserve-with-timeout 20", "RESERVED 1 1", "a")

    assert (before["current-jobs-ready"], before["current-jobs-delayed"]) == ("0", "1")
    after = client.told("stats-tube default")
    assert (after["current-jobs-delayed"], after["current-jobs-reserved"]) == ("0", "1")
    assert after["total-jobs"] == "1"


@pytest.mark.parametrize("line", ["stats-job 111ABC", "stats-job ", "stats-tube "])
def test_statsjob_ck_format(client, line):
    client.ask(line, "BAD_FORMAT")


def test_stats_tube(served, client):
    client.ask("use tubea", "USING tubea")
    for _ in range(3):
        client.put(priority=1_023)
    client.put(priority=1_024)
    client.put(delay=100)
    client.ask("watch tubea\r\nignore default", "WATCHING 2", "WATCHING 1")
    client.ask("reserve\r\nreserve", "RESERVED 1 1", "a", "RESERVED 2 1", "a")
    client.ask("bury 2 0\r\ndelete 1", "BURIED", "DELETED")
    client.ask("pause-tube tubea 100", "PAUSED")

    told = client.told("stats-tube tubea")
    left = int(told.pop("pause-time-left"))
    assert 90 <= left < 100
    assert told == {
        "name": '"tubea"',
        "current-jobs-urgent": "1",
        "current-jobs-ready": "2",
        "current-jobs-reserved": "0",
        "current-jobs-delayed": "1",
        "current-jobs-buried": "1",
        "total-jobs": "5",
        "current-using": "1",
        "current-watching": "1",
        "current-waiting": "0",
        "cmd-delete": "1",
        "cmd-pause-tube": "1",
        "pause": "100",
    }


@pytest.mark.parametrize("ttr", [120, 4_294, 4_297, 21_600])
def test_ttrlarge(client, ttr):
    client.put(ttr=ttr)

    assert client.told("stats-job 1")["ttr"] == str(ttr)


def test_ttr_small(client):
    client.put(ttr=0)

    assert client.told("stats-job 1")["ttr"] == "1"


def test_zero_delay(client):
    client.ask("put 0 0 1 0\r\n", "INSERTED 1")


def test_reserve_with_timeout_2conns(served, client):
    other = served.client()
    client.ask("watch foo", "WATCHING 2")
    other.ask("watch foo", "WATCHING 2")
    client.say("reserve-with-timeout 1\r\n")
    other.ask("use foo", "USING foo")

    client.hear("TIMED_OUT")
    other.ask("reserve-with-timeout 0", "TIMED_OUT")


def test_reserve_ttr_deadline_soon(client):
    client.put(ttr=1)
    client.ask("reserve-with-timeout 1", "RESERVED 1 1", "a")
    client.ask("reserve-with-timeout 1", "DEADLINE_SOON")

    eventually(lambda: client.told("stats-job 1")["state"] == "ready")
    client.ask("reserve", "RESERVED 1 1", "a")
    assert client.told("stats-job 1")["timeouts"] == "1"
    assert client.told("stats")["job-timeouts"] == "1"


def test_reserve_job_ttr_deadline_soon(client):
    client.put(ttr=1)
    client.put(ttr=1)
    client.ask("reserve-job 1", "RESERVED 1 1", "a")

    client.ask("reserve-job 2", "RESERVED 2 1", "a")
    client.ask("reserve-with-timeout 0", "DEADLINE_SOON")


def test_reserve_job_already_reserved(served, client):
    client.put()
    client.ask("reserve", "RESERVED 1 1", "a")

    client.ask("reserve-job 1", "NOT_FOUND")
    served.client().ask("reserve-job 1", "NOT_FOUND")


def test_reserve_job_ready(served, client):
    client.put(b"a")
    client.put(b"b")
    client.ask("reserve-job 2", "RESERVED 2 1", "b")

    client.ask("reserve-job 2", "NOT_FOUND")
    assert client.told("stats-job 2")["state"] == "reserved"
    client.ask("release 2 1 0", "RELEASED")
    served.client().ask("reserve-job 2", "RESERVED 2 1", "b")


def test_reserve_job_delayed(client):
    client.put(b"b", delay=100)
    client.ask("reserve-job 1", "RESERVED 1 1", "b")

    assert client.told("stats-job 1")["state"] == "reserved"
    client.ask("release 1 1 0", "RELEASED")
    assert client.told("stats-job 1")["state"] == "ready"


def test_reserve_job_buried(client):
    client.put(b"b")
    client.ask("reserve", "RESERVED 1 1", "b")
    client.ask("bury 1 1", "BURIED")

    client.ask("reserve-job 1", "RESERVED 1 1", "b")
    client.ask("reserve-job 99", "NOT_FOUND")


@pytest.mark.parametrize(
    "line", ["release 18446744073709551616 1 1", "release 3 -3 1", "release 3 1"]
)
def test_release_bad_format(client, line):
    client.ask(line, "BAD_FORMAT")


def test_release_not_found(client):
    client.ask("release 1 1 1", "NOT_FOUND")


def test_close_releases_job(served, client):
    worker = served.client()
    client.put(ttr=100)
    worker.ask("reserve", "RESERVED 1 1", "a")
    worker.close()

    client.ask("reserve-with-timeout 20", "RESERVED 1 1", "a")
    told = client.told("stats-job 1")
    assert (told["reserves"], told["timeouts"], told["releases"]) == ("2", "0", "0")


def test_quit_releases_job(served, client):
    worker = served.client()
    client.put(ttr=100)
    worker.ask("reserve", "RESERVED 1 1", "a")
    worker.say("quit\r\n")
    worker.ends()

    client.ask("reserve-with-timeout 20", "RESERVED 1 1", "a")


def test_unpause_tube(served, client):
    worker = served.client()
    client.put()
    client.ask("pause-tube default 86400", "PAUSED")
    worker.say("reserve\r\n")
    eventually(lambda: client.told("stats")["current-waiting"] == "1")

    client.ask("pause-tube default 0", "PAUSED")

    worker.hear("RESERVED 1 1", "a")
    assert client.told("stats-tube default")["pause"] == "0"


def test_list_tube(client):
    client.ask("watch w\r\nuse u", "WATCHING 2", "USING u")

    assert set(client.text("list-tubes")) == {"---", "- default", "- w", "- u"}
    assert client.text("list-tubes-watched") == ["---", "- default", "- w"]
    client.ask("list-tube-used", "USING u")
    client.ask("ignore w\r\nuse default", "WATCHING 1", "USING default")
    assert client.text("list-tubes") == ["---", "- default"]


def test_use_tube_long(client):
    client.ask(f"use {'0' * 200}", f"USING {'0' * 200}")
    client.ask(f"use {'0' * 201}", "BAD_FORMAT")


def test_longest_command(client):
    name = "0123456789" * 20

    client.ask(f"use {name}", f"USING {name}")
    client.ask(f"pause-tube {name} 4294967295", "PAUSED")


# ---------------------------------------------------------------- those of a process and its files


def test_peek_ok_unix_and_unix_auto_removal(executable, tmp_path):
    path = f"{tmp_path}/door.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(path)
    server = executable("-l", f"unix:{path}")
    client = server.client(path)
    client.put()
    client.ask("peek 1", "FOUND 1 1", "a")
    assert server.stop() == 0


def test_binlog_empty_exit(executable, tmp_path):
    server = executable("-b", str(tmp_path))
    server.client().ask("list-tube-used", "USING default")
    assert server.stop() == 0

    server.start()
    server.client().ask("put 0 0 0 0\r\n", "INSERTED 1")


def test_binlog_bury(executable, tmp_path):
    server = executable("-b", str(tmp_path))
    client = server.client()
    client.put(b"")
    client.ask("reserve-with-timeout 0", "RESERVED 1 0", "")
    client.ask("bury 1 0", "BURIED")
    server.kill()

    server.start()
    assert server.client().told("stats-job 1")["state"] == "buried"


def test_binlog_basic_and_read(executable, tmp_path):
    server = executable("-b", str(tmp_path))
    client = server.client()
    client.ask("use test", "USING test")
    for number in range(1, 5):
        client.put(b"test%d" % number, ttr=120)
    client.ask("watch test", "WATCHING 2")
    client.ask("reserve\r\nrelease 1 1 1", "RESERVED 1 5", "test1", "RELEASED")
    client.ask("delete 2", "DELETED")
    server.kill()

    server.start()
    client = server.client()
    client.ask("watch test", "WATCHING 2")
    client.ask("delete 2", "NOT_FOUND")
    client.ask("reserve\r\ndelete 3", "RESERVED 3 5", "test3", "DELETED")
    client.ask("delete 4\r\ndelete 1", "DELETED", "DELETED")


def test_put_in_drain_by_a_signal(executable):
    server = executable()
    client = server.client()
    client.put()

    os.kill(server.process.pid, signal.SIGUSR1)

    eventually(lambda: client.told("stats")["draining"] == "true")
    client.ask("put 0 0 1 1\r\nx", "DRAINING")
