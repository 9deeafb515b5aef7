"""Nothing acknowledged is lost, whenever the server is killed; what was reserved is ready again."""

import subprocess
import sys
import threading

import pytest

from tests.conftest import eventually
from towpath.errors import DatabaseUnavailable

LIFE = [  # each command with its answer, and the states of the jobs that it acknowledges
    ("put 5 0 60 1\r\na", ["INSERTED 1"], {1: "ready"}),
    ("put 5 1000 60 1\r\nb", ["INSERTED 2"], {2: "delayed"}),
    ("put 6 0 60 1\r\nc", ["INSERTED 3"], {3: "ready"}),
    ("reserve", ["RESERVED 1 1", "a"], {1: "reserved"}),
    ("touch 1", ["TOUCHED"], {}),
    ("bury 1 5", ["BURIED"], {1: "buried"}),
    ("reserve", ["RESERVED 3 1", "c"], {3: "reserved"}),
    ("release 3 9 1000", ["RELEASED"], {3: "delayed"}),
    ("kick 1", ["KICKED 1"], {1: "ready"}),
    ("reserve-job 2", ["RESERVED 2 1", "b"], {2: "reserved"}),
    ("delete 2", ["DELETED"], {2: None}),
    ("kick-job 3", ["KICKED"], {3: "ready"}),
    ("delete 3", ["DELETED"], {3: None}),
]


@pytest.mark.parametrize("commands", range(1, len(LIFE) + 1))
def test_killed_between_any_two_commands(executable, tmp_path, commands):
    server = executable("-b", str(tmp_path))
    client = server.client()
    states = {}
    for command, answer, change in LIFE[:commands]:
        client.ask(command, *answer)
        states.update(change)

    server.kill()
    server.start()

    client = server.client()
    for number, state in states.items():
        if state is None:
            client.ask(f"peek {number}", "NOT_FOUND")
        else:
            expected = "ready" if state == "reserved" else state
            assert client.told(f"stats-job {number}")["state"] == expected


def test_killed_while_many_put_and_delete(executable, tmp_path):
    server = executable("-b", str(tmp_path), "-f0")
    stored, deleted = set(), set()
    doubtful = set()  # whose deletion was asked for, and perhaps done

    def put_and_delete():
        client = server.client()
        try:
            while True:
                number = client.put()
                stored.add(number)
                if number % 3 == 0:
                    doubtful.add(number)
                    client.ask(f"delete {number}", "DELETED")
                    deleted.add(number)
        except (OSError, ValueError, AssertionError):
            return  # the server was killed

    threads = [threading.Thread(target=put_and_delete) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(deleted) > 100)
    server.process.kill()
    for thread in threads:
        thread.join()
    server.kill()
    server.start()

    client = server.client()
    found = set()
    while True:
        client.say("reserve-with-timeout 0\r\n")
        words = client.line().split()
        if words == [b"TIMED_OUT"]:
            break
        client.line()
        assert int(words[1]) not in found
        found.add(int(words[1]))
    assert stored - doubtful <= found
    assert not deleted & found


def test_a_stopped_server_gives_back_what_was_reserved(executable, tmp_path):
    server = executable("-b", str(tmp_path))
    client = server.client()
    client.put()
    client.ask("reserve", "RESERVED 1 1", "a")
    assert server.stop() == 0

    server.start()
    assert server.client().told("stats-job 1")["state"] == "ready"


def test_the_leases_of_a_dead_door_come_back_on_a_database_that_many_share(serve, clock):
    """Each door on a database has a session; the process that does upkeep sees that one is dead."""
    served = serve(clock=clock)
    client = served.client()
    client.put(ttr=1_000)
    client.ask("reserve", "RESERVED 1 1", "a")

    served.app.sessions.end(served.door.session)  # as the process that finds it dead does

    client.ask("delete 1", "NOT_FOUND")
    served.client().ask("reserve-with-timeout 0", "RESERVED 1 1", "a")


def test_one_directory_has_one_server(executable, tmp_path):
    executable("-b", str(tmp_path)).client().put()

    second = executable("-b", str(tmp_path))

    assert second.process.wait(30) == 10


def test_a_directory_that_beanstalkd_itself_serves_is_left_alone(executable, tmp_path):
    """It holds the same file by a lock of the same kind."""
    hold = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print(flush=True)
input()
"""
    command = [sys.executable, "-c", hold, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        assert executable("-b", str(tmp_path)).process.wait(30) == 10
        holder.kill()


def test_a_door_whose_new_session_fails_at_first_begins_it_later(serve, monkeypatch):
    """Reservations of a session that is gone are taken back, again and again."""
    served = serve(beat_every=0.05)
    begin, refused = served.app.sessions.astart, []

    async def begin_at_last(name):
        if not refused:
            refused.append(name)
            msg = "away for a moment"
            raise DatabaseUnavailable(msg)
        return await begin(name)

    monkeypatch.setattr(served.app.sessions, "astart", begin_at_last)
    dead = served.door.session
    served.app.sessions.end(dead)  # as the process that finds it dead does

    eventually(lambda: refused and served.door.session != dead)
    assert [each.session for each in served.app.sessions.list()] == [served.door.session]
