"""DQ-17: what a hostile reviewer has found in the door, as sentences."""

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.beanstalkd.conftest import EXECUTABLE, PATIENCE, Raw
from tests.conftest import eventually
from towpath import App
from towpath.server.beanstalkd.commands import Wish
from towpath.server.beanstalkd.door import Door
from towpath.server.beanstalkd.together import MOST_ITEMS, Together

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
in_memory = pytest.mark.parametrize("kind", ["memory"], indirect=True)


def locked(app):
    """Keep everybody from writing, as another program may."""
    connection = sqlite3.connect(app._database.path, isolation_level=None)
    connection.execute("begin immediate")
    return closing(connection)


@on_sqlite
def test_what_cannot_be_given_back_now_is_given_back_later(serve, caplog):
    served = serve(busy_timeout=0.05)
    holder, other = served.client(), served.client()
    holder.put(ttr=3_600)
    holder.ask("reserve", "RESERVED 1 1", "a")

    with locked(served.app):
        holder.close()
        eventually(lambda: "given back" in caplog.text)

    other.ask("reserve-with-timeout 20", "RESERVED 1 1", "a")


@on_sqlite
def test_of_a_run_of_deletes_those_that_were_done_are_told(serve):
    """Though the database becomes busy in the middle of the run."""
    served = serve(busy_timeout=0.05)
    client = served.client()
    for _ in range(50):
        client.put()
    other = sqlite3.connect(
        served.app._database.path, isolation_level=None, check_same_thread=False
    )
    deleted = []

    async def delete_and_lock(id, delete=served.app.jobs.adelete):
        await delete(id)
        deleted.append(id)
        if len(deleted) == 20:
            other.execute("begin immediate")

    served.app.jobs.adelete = delete_and_lock
    with closing(other):
        client.say("".join(f"delete {number}\r\n" for number in range(1, 51)))
        heard = [client.line() for _ in range(50)]

    assert heard == [b"DELETED\r\n"] * 20 + [b"INTERNAL_ERROR\r\n"] * 30
    told = client.told("stats-tube default")
    assert (told["cmd-delete"], told["current-jobs-ready"]) == ("20", "30")


@on_sqlite
def test_of_puts_beyond_a_limit_those_that_were_stored_are_told(serve):
    """Though the database becomes busy between two parts of the run."""
    served = serve(busy_timeout=0.05, max_jobs_per_topic=150)
    client = served.client()
    other = sqlite3.connect(
        served.app._database.path, isolation_level=None, check_same_thread=False
    )

    async def store_and_lock(calls, store=served.door.put._call):
        jobs = await store(calls)
        other.execute("begin immediate")
        return jobs

    served.door.put._call = store_and_lock
    with closing(other):
        client.say("put 0 0 60 1\r\na\r\n" * 200)
        heard = [client.line().split()[0] for _ in range(200)]

    assert heard == [b"INSERTED"] * 100 + [b"INTERNAL_ERROR"] * 100
    assert client.told("stats")["current-jobs-ready"] == "100"


def test_deletes_are_done_in_the_order_in_which_they_are_asked_for(served):
    client, other = served.client(), served.client()
    for _ in range(5):
        client.put()
    for number in (2, 4):
        client.ask(f"reserve-job {number}", f"RESERVED {number} 1", "a")
    other.ask("reserve-job 5", "RESERVED 5 1", "a")

    client.ask(
        "delete 1\r\ndelete 2\r\ndelete 2\r\ndelete 5\r\ndelete 4\r\ndelete 3",
        *["DELETED", "DELETED", "NOT_FOUND", "NOT_FOUND", "DELETED", "DELETED"],
    )


def test_who_does_not_read_reserves_no_more_than_can_wait_for_it(serve):
    served = serve(most_body=2**20, max_payload=2**20)
    producer, greedy = served.client(), served.client()
    for _ in range(30):
        producer.put(b"x" * 2**20)

    greedy.say("reserve\r\n" * 30)

    def reserved():
        return int(producer.told("stats")["current-jobs-reserved"])

    eventually(lambda: served.connection_of(greedy)._writable)  # nobody reads what is written
    assert served.door.most_reserved == 1
    assert 0 < reserved() < 20


def test_who_is_left_out_of_a_look_has_the_next_one():
    async def ask():
        async with App("memory://") as app:
            door = Door(app)
            door._most_taken = 2
            await door.start()
            await app.jobs.aenqueue_many("mail", range(7))
            wishes = [Wish(("mail",), 2)] * 3 + [Wish(("mail",), 1)] * 2
            taken = await door._take(wishes)
            await door.close()
            return [[lease.job.payload for lease in leases] for leases in taken]

    assert asyncio.run(ask()) == [[0, 1], [2, 3], [4, 5], [6], []]


def test_however_much_is_due_it_is_ready(serve, clock):
    served = serve(clock=clock)
    client = served.client()
    calls = [("default", b"x", {"priority": 5_000 - nth, "delay": 10}) for nth in range(2_500)]
    served.app.jobs.enqueue_all(calls)

    clock.advance(11)

    client.ask("peek-ready", "FOUND 2500 1", "x")
    client.ask("peek-delayed", "NOT_FOUND")
    client.ask("kick 10000", "KICKED 0")


@in_memory
def test_a_kick_of_many_stops_where_the_buried_end(serve):
    served = serve()
    client = served.client()
    served.app.jobs.enqueue_many("default", [1] * 2_000)
    for lease in served.app.jobs.reserve("default", limit=2_000):
        served.app.jobs.bury(lease)
    client.put(delay=1_000)

    client.ask("kick 5000", "KICKED 2000")
    client.ask("kick 5000", "KICKED 1")
    client.ask("kick 5000", "KICKED 0")


def test_one_call_for_many_is_no_larger_than_others_can_wait_for():
    sizes = []

    async def call(items):
        sizes.append(len(items))
        return items

    async def ask():
        together = Together(call)
        await asyncio.gather(*(together(nth, [nth] * 300) for nth in range(10)))

    asyncio.run(ask())
    assert sum(sizes) == 3_000
    assert max(sizes) <= MOST_ITEMS + 300


def test_a_tube_that_does_not_exist_is_not_remembered(client, served):
    client.put()
    before = len(served.door._tubes)

    client.ask("stats-tube nowhere", "NOT_FOUND")
    client.ask("pause-tube nowhere 1", "NOT_FOUND")

    assert len(served.door._tubes) == before


def test_a_tube_that_has_vanished_begins_anew(served):
    client = served.client()
    client.ask("use mail", "USING mail")
    number = client.put()
    client.ask("use other", "USING other")
    client.ask("use mail", "USING mail")
    assert client.told("stats-tube mail")["total-jobs"] == "1"  # it was not empty

    client.ask(f"delete {number}", "DELETED")
    client.ask("use other", "USING other")
    client.ask("watch mail", "WATCHING 2")

    told = client.told("stats-tube mail")
    assert (told["total-jobs"], told["cmd-delete"]) == ("0", "0")
    assert (told["current-using"], told["current-watching"]) == ("0", "1")


def test_what_is_over_when_its_connection_ends_counts_as_timed_out(serve, clock):
    served = serve(clock=clock)
    holder, other = served.client(), served.client()
    holder.put(ttr=1)
    holder.ask("reserve", "RESERVED 1 1", "a")

    for held in served.connection_of(holder)._held.values():
        held.deadline -= 2
    served.connection_of(holder)._soonest -= 2
    clock.advance(2)
    holder.close()

    eventually(lambda: other.told("stats")["job-timeouts"] == "1")
    other.ask("peek-ready", "FOUND 1 1", "a")
    assert other.told("stats-job 1")["timeouts"] == "1"


def test_commands_count_when_they_have_come(served):
    client, waiting = served.client(), served.client()
    waiting.say("reserve\r\nreserve\r\n")
    eventually(lambda: client.told("stats")["current-waiting"] == "1")

    client.ask("put 0 0 1 70000\r\n" + "x" * 70_000, "JOB_TOO_BIG")
    client.ask("put 0 0 1 1\r\nxyz", "EXPECTED_CRLF", "UNKNOWN_COMMAND")

    told = client.told("stats")
    assert (told["cmd-reserve"], told["cmd-put"]) == ("1", "2")


def test_the_delay_of_a_job_that_was_released_is_not_that_of_its_put(client):
    client.put(delay=1_000)
    client.ask("reserve-job 1", "RESERVED 1 1", "a")
    client.ask("release 1 0 0", "RELEASED")

    assert client.told("stats-job 1")["delay"] == "0"


def test_who_reserves_in_vain_by_number_is_no_worker(served):
    client, worker = served.client(), served.client()
    client.put()
    worker.ask("reserve", "RESERVED 1 1", "a")
    client.ask("reserve-job 7", "NOT_FOUND")
    client.ask("reserve-job 1", "NOT_FOUND")

    assert client.told("stats")["current-workers"] == "1"


def test_a_timeout_that_no_signed_number_holds_is_refused(client):
    client.ask("reserve-with-timeout 2147483648", "BAD_FORMAT")


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
