"""Malformed and hostile input neither grows the memory nor stalls others."""

import contextlib
import resource
import socket
import threading

import psutil
import pytest

from tests.conftest import eventually

MEGABYTE = 2**20
LARGE = 64 * MEGABYTE  # of hostile input
MOST_GROWN = 24 * MEGABYTE


@pytest.fixture
def server(executable):
    server = executable()
    server.client().put()
    return server


def memory(server):
    return psutil.Process(server.process.pid).memory_info().rss


def is_well(server):
    """Others are answered."""
    client = server.client()
    number = client.put(b"well", priority=0)
    client.ask(f"reserve-job {number}", f"RESERVED {number} 4", "well")
    client.ask(f"delete {number}", "DELETED")
    client.close()


@pytest.mark.parametrize("beginning", [b"", b"use ", b"put 0 0 1 4294967295\r\n", b"\r", b"\0"])
def test_an_endless_line_or_a_huge_body(server, beginning):
    before = memory(server)
    client = server.client()
    client.say(beginning)
    for _ in range(LARGE // MEGABYTE):
        client.say(b"x" * MEGABYTE)

    is_well(server)
    assert memory(server) - before < MOST_GROWN


def test_many_commands_of_nonsense(server):
    before = memory(server)
    client = server.client()
    client.socket.settimeout(0.5)
    with contextlib.suppress(TimeoutError):  # it reads no more while its answers are not read
        for _ in range(LARGE // MEGABYTE):
            client.say(b"\r\n" * (MEGABYTE // 2))

    is_well(server)
    assert memory(server) - before < MOST_GROWN


def test_one_who_never_reads_its_answers(server):
    producer = server.client()
    number = producer.put(b"x" * 65_535)
    before = memory(server)
    client = server.client()
    client.socket.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        for _ in range(100):
            client.say(f"peek {number}\r\n" * 1_000)

    for _ in range(100):  # meanwhile it would go on answering
        is_well(server)
    assert memory(server) - before < MOST_GROWN


def test_one_who_reserves_much_and_never_reads_its_answers(executable, tmp_path):
    server = executable("-b", str(tmp_path))
    producer = server.client()
    for _ in range(10):
        producer.say((b"put 0 0 600 65535\r\n" + b"x" * 65_535 + b"\r\n") * 100)
        assert all(producer.line().startswith(b"INSERTED") for _ in range(100))
    before = memory(server)

    server.client().say(b"reserve\r\n" * 1_000)

    eventually(lambda: producer.told("stats")["current-jobs-reserved"] != "0")
    for _ in range(100):
        is_well(server)
    assert memory(server) - before < 2 * MOST_GROWN


def test_half_bodies(server):
    clients = [server.client() for _ in range(100)]
    for client in clients:
        client.say(b"put 0 0 1 65535\r\n" + b"x" * 30_000)

    is_well(server)
    assert clients[0].told  # still connected
    clients[0].say(b"x" * 35_535 + b"\r\n")
    assert clients[0].line().startswith(b"INSERTED")


def test_a_body_that_never_ends_is_not_stored(server):
    client = server.client()
    client.say(b"put 0 0 1 100\r\nhalf")
    client.close()

    other = server.client()
    eventually(lambda: other.told("stats")["current-connections"] == "2")
    assert other.told("stats")["total-jobs"] == "1"


def test_thousands_of_connections(server):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8_192), most))
    before = memory(server)
    clients = [server.client() for _ in range(2_000)]
    for client in clients[1_000:]:
        client.say(b"watch other\r\nignore default\r\nreserve\r\n")

    is_well(server)
    other = server.client()
    eventually(lambda: other.told("stats")["current-waiting"] == "1000")
    assert memory(server) - before < 4 * MOST_GROWN
    server.leave()
    other = server.client()
    eventually(lambda: other.told("stats")["current-connections"] == "1")


def test_one_watches_so_many_tubes_at_most(server):
    client = server.client()
    client.say("".join(f"watch t{nth}\r\n" for nth in range(1_200)))
    answers = [client.line() for _ in range(1_200)]

    assert answers[998] == b"WATCHING 1000\r\n"
    assert set(answers[999:]) == {b"OUT_OF_MEMORY\r\n"}
    is_well(server)


def test_one_who_leaves_behind_a_blocked_reserve_is_noticed(server):
    """Even if it has said so much that it is not read any more."""
    client = server.client()
    client.ask("watch empty\r\nignore default", "WATCHING 2", "WATCHING 1")
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MEGABYTE)
    client.say(b"reserve\r\n" + b"use a\r\n" * 20_000)
    other = server.client()
    eventually(lambda: other.told("stats")["current-waiting"] == "1")
    client.close()

    eventually(lambda: other.told("stats")["current-waiting"] == "0")


@pytest.mark.parametrize("rest", [b"", b"use a", b"put 0 0 1 5\r\nab", b"reserve\r\n"])
def test_a_reset_in_the_middle(server, rest):
    client = server.client()
    client.say(rest)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()

    is_well(server)


def test_what_one_has_said_before_it_half_closes_is_all_answered(server):
    """As with `nc -N` and a file of commands, even if it is more than is read at once."""
    client = server.client()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MEGABYTE)
    client.say(
        b"watch empty\r\nignore default\r\nreserve\r\n" + b"put 0 0 60 5\r\nhello\r\n" * 10_000
    )
    client.socket.shutdown(socket.SHUT_WR)

    client.hear("WATCHING 2", "WATCHING 1", "TIMED_OUT")
    client.hear(*(f"INSERTED {number}" for number in range(2, 10_002)))
    client.ends()


@pytest.mark.parametrize("command", [b"\r\n", b"use default\r\n"])
def test_one_who_says_much_at_once_does_not_keep_others_waiting(server, command):
    client, other = server.client(), server.client()
    times = MEGABYTE // 2 // len(command)
    flood = threading.Thread(target=client.say, args=(command * times,))
    hear = threading.Thread(target=lambda: [client.line() for _ in range(times)])
    flood.start()
    hear.start()
    answers = 0
    while hear.is_alive():
        other.ask("list-tube-used", "USING default")
        answers += 1

    assert answers > times // 5_000  # between thousands of others, one of its own


def test_a_client_that_does_not_read_reserves_no_more_than_can_wait_for_it(serve):
    served = serve(most_body=2**20, max_payload=2**20)
    producer, greedy = served.client(), served.client()
    for _ in range(30):
        producer.put(b"x" * 2**20)

    greedy.say("reserve\r\n" * 30)

    def reserved():
        return int(producer.told("stats")["current-jobs-reserved"])

    eventually(lambda: served.connection_of(greedy)._writable)  # what is written is not read
    assert served.door.most_reserved == 1
    assert 0 < reserved() < 20
