"""Calls that several connections make at the same time are one call."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from towpath import App
from towpath.errors import InvalidTopic
from towpath.server.beanstalkd.commands import WantedJobs
from towpath.server.beanstalkd.server import BeanstalkdServer

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


@pytest.mark.parametrize("kind", ["memory"], indirect=True)
def test_a_limit_of_one_tube_does_not_keep_others_from_putting(serve):
    served = serve(max_jobs_per_topic=1)
    full, other = served.client(), served.client()
    full.put()

    for nth in range(20):
        full.say("put 0 0 1 1\r\nx\r\n")
        other.ask(f"use tube-{nth}", f"USING tube-{nth}")
        other.put()
        full.hear("OUT_OF_MEMORY")


def test_of_pipelined_puts_as_many_are_stored_as_there_is_room_for(serve):
    served = serve(max_jobs_per_topic=5)
    client = served.client()

    client.say("put 0 0 1 1\r\nx\r\n" * 9)

    client.hear(*(f"INSERTED {nth}" for nth in range(1, 6)), *["OUT_OF_MEMORY"] * 4)
    assert client.told("stats-tube default")["total-jobs"] == "5"
    client.ask("delete 3", "DELETED")
    assert client.put() > 5


def test_connections_that_watch_the_same_tubes_share_a_look_and_the_first_gets_the_job():
    async def ask():
        async with App("memory://") as app:
            door = BeanstalkdServer(app)
            await door.start()
            await app.jobs.aenqueue_many("mail", range(3))
            await app.jobs.aenqueue("post", "a letter")
            wishes = [
                WantedJobs(("mail",), 1),
                WantedJobs(("post",), 2),
                WantedJobs(("mail",), 5),
                WantedJobs(("mail",), 1),
            ]
            taken = await asyncio.gather(*(door.reserve(wish) for wish in wishes))
            await door.close()
            return [[lease.job.payload for lease in leases] for leases in taken]

    assert asyncio.run(ask()) == [[0], ["a letter"], [1, 2], []]


def test_a_look_that_fails_fails_for_those_who_share_it():
    async def ask():
        async with App("memory://") as app:
            door = BeanstalkdServer(app)
            await door.start()
            await app.jobs.aenqueue("post", "a letter")
            return await door._reserve([WantedJobs(("no topic",), 1), WantedJobs(("post",), 1)])

    refused, [lease] = asyncio.run(ask())
    assert isinstance(refused, InvalidTopic)
    assert lease.job.payload == "a letter"


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

    async def store_and_lock(calls, store=served.app.jobs.aenqueue_all):
        jobs = await store(calls)
        other.execute("begin immediate")
        return jobs

    served.app.jobs.aenqueue_all = store_and_lock
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


def test_a_connection_that_is_left_out_of_a_look_has_the_next_one():
    async def ask():
        async with App("memory://") as app:
            door = BeanstalkdServer(app)
            door._most_per_call = 2
            await door.start()
            await app.jobs.aenqueue_many("mail", range(7))
            wishes = [WantedJobs(("mail",), 2)] * 3 + [WantedJobs(("mail",), 1)] * 2
            taken = await door._reserve(wishes)
            await door.close()
            return [[lease.job.payload for lease in leases] for leases in taken]

    assert asyncio.run(ask()) == [[0, 1], [2, 3], [4, 5], [6], []]
