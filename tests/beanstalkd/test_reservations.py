"""Reservations of a connection: given back, timed out, due, kicked."""

import sqlite3
from contextlib import closing

import pytest

from tests.conftest import eventually

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
        eventually(lambda: "cannot give back" in caplog.text)

    other.ask("reserve-with-timeout 20", "RESERVED 1 1", "a")


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


def test_a_reservation_ends_at_its_ttr_while_its_holder_sends_other_commands(serve):
    served = serve()
    holder, other = served.client(), served.client()
    holder.put(ttr=1)
    holder.ask("reserve", "RESERVED 1 1", "a")
    other.say("reserve\r\n")
    eventually(lambda: served.door.tube("default").waiting == 1)

    while served.door.tube("default").waiting:
        holder.ask("list-tube-used", "USING default")

    other.hear("RESERVED 1 1", "a")
    holder.ask("touch 1", "NOT_FOUND")
