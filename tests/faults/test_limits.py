"""Limits, while jobs leave the line, upkeep is late, and others start jobs."""

import contextlib
import functools

import pytest

from towpath import Limit, State
from towpath.errors import Invalid
from towpath.operation import Operation
from towpath.store import leases, limits, reserving

ONE = Limit("printer", concurrency=1)
LEAVES = {
    "cancel": lambda app, job: app.jobs.cancel(job),
    "delete": lambda app, job: app.jobs.delete(job),
    "replace": lambda app, job: app.jobs.enqueue("print", "new", key="k", unique="replace"),
    "update": lambda app, job: app.jobs.enqueue("print", "new", key="k", unique="update"),
    "debounce": lambda app, job: app.jobs.enqueue(
        "print", "new", key="k", unique="debounce", delay=60, limit=ONE
    ),
}


def numbers(found):
    return [lease.job.payload for lease in found]


@pytest.mark.parametrize("leave", LEAVES)
def test_one_that_leaves_the_line_makes_room_for_the_next(app, leave):
    app.jobs.enqueue("print", 1, limit=ONE)
    second = app.jobs.enqueue("print", 2, limit=ONE, key="k")
    app.jobs.enqueue("print", 3, limit=ONE)
    [lease] = app.jobs.reserve("print", limit=9)
    app.jobs.complete(lease)
    assert app.jobs.get(second).state is State.READY

    LEAVES[leave](app, second)

    assert 3 in numbers(app.jobs.reserve("print", limit=9))


def test_a_purged_topic_makes_room_for_another(app):
    app.jobs.enqueue("print", 1, limit=ONE)
    app.jobs.enqueue("print", 2, limit=ONE, priority=90)
    [lease] = app.jobs.reserve("print", limit=9)
    app.jobs.complete(lease)
    app.jobs.purge("print")
    app.jobs.enqueue("print", 3, limit=ONE)

    assert numbers(app.jobs.reserve("print", limit=9)) == [3]


@pytest.mark.parametrize(
    "limit",
    [
        Limit(None, concurrency=1), Limit("x", rate=10), Limit("x", rate="9" * 5_000 + "/s"),
        Limit("x", rate="1/nand"), Limit("x", rate=float("nan")), Limit("a\0b", concurrency=1),
        Limit("x", rate="1/36500d", burst=2**31 - 1), Limit("\ud800", concurrency=1),
        Limit("x", rate="1/0s"),
    ],
)  # fmt: skip
def test_a_limit_that_would_wedge_its_topic_is_refused(app, limit):
    with pytest.raises(Invalid):
        app.jobs.enqueue("print", limit=limit)


def overdue():
    """Read when a reservation of another topic should have looked again, if that is past."""

    def steps():
        [[due_at, now, _]] = yield from reserving.sql.next_due(topics=("other",))
        return None if due_at is None or due_at > now else due_at

    return Operation("next_due", steps)


def test_a_rate_that_becomes_a_number_lets_go_of_those_that_waited(app, clock):
    app.jobs.enqueue_many("mail", range(3), limit=Limit("smtp", rate="1/m"))
    assert numbers(app.jobs.reserve("mail", limit=3)) == [0]
    app.jobs.enqueue("mail", 3, limit=Limit("smtp", concurrency=4))

    found = app.jobs.reserve("mail", limit=9)
    found += app.jobs.reserve("mail", limit=9)

    assert sorted(numbers(found)) == [1, 2, 3]
    clock.advance("2m")
    assert app.run(overdue()) is None


def died(_rows):
    """As if the process that ended a lease had died before it could tell those that wait."""
    return set()
    yield


def test_upkeep_looks_at_every_key_in_its_turn(app, monkeypatch):
    monkeypatch.setattr(limits, "KEYS_AT_ONCE", 2)
    for key in "abcd":
        app.jobs.enqueue_many("mail", [key, key], limit=Limit(key, concurrency=1))
    *_, last = app.jobs.reserve("mail", limit=9)
    with monkeypatch.context() as patch:
        patch.setattr(leases, "freed", died)
        app.jobs.complete(last)

    for _ in range(3):
        app.upkeep.run()

    assert app.jobs.stats_topic("mail").ready == 1


def asking(query):
    return (yield query)


def test_the_end_of_one_does_not_forget_what_others_start_meanwhile(app):
    """A caller that frees a place on PostgreSQL holds nothing from one statement to the next."""
    app.jobs.enqueue_many("mail", range(4), limit=Limit("smtp", rate="1/m", burst=2))
    app.jobs.reserve("mail")
    freeing, rows = limits.freed(["smtp"]), None
    with contextlib.suppress(StopIteration):
        while True:
            query = freeing.send(rows)
            if query.statement.name == "pace_limits":
                assert numbers(app.jobs.reserve("mail", limit=4)) == [1]
            rows = app.run(Operation("ask", functools.partial(asking, query), autocommit=True))
    app.upkeep.run()

    assert app.jobs.reserve("mail", limit=4) == []


def test_a_reservation_with_a_token_finds_what_has_a_limit(app):
    """Also the first one, which did not expect any."""
    app.jobs.enqueue_many("print", range(2), limit=ONE)

    first, again = (app.jobs.reserve("print", limit=2, token=7) for _ in range(2))

    assert numbers(first) == numbers(again) == [0]
