"""A process that forks: parent and child go on with the same app, and share no connection."""

from uuid import UUID

import pytest

from tests.faults.sizes import many

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])


def test_parent_and_child_use_the_app_side_by_side(start, books):
    number = many(100)

    said = [line.split() for line in start("fork", number=number).finish().splitlines()]

    assert sorted(words[0] for words in said) == ["child", "parent"]
    backends = [pid for words in said for pid in words[1:]]
    assert len(backends) == len(set(backends))
    assert books.count("job") == 1 + 2 * number
    books.check()


@pytest.mark.parametrize("kind", ["memory"])
def test_the_child_of_an_app_in_memory_begins_with_an_empty_database(start):
    said = start("fork_and_list").finish().splitlines()

    assert sorted(said) == ["child after", "parent before after"]


def test_the_child_can_wait_for_a_job(start, books):
    program = start("fork_and_wait")
    assert program.hear() == "waiting"

    program.say("enqueue")

    assert program.hear() == "got from-the-parent"
    program.finish()
    books.check()


def test_what_the_child_enqueues_after_the_parent_has_closed_is_not_lost(start, books):
    """Promise 1: the parent takes nothing along, not even SQLite's log."""
    program = start("fork_and_close")
    first = program.hear()
    assert program.hear() == "closed"
    assert program.wait() == 0

    program.say("enqueue")
    second = program.hear()

    assert {UUID(first), UUID(second)} <= books.ids()
    assert books.count("job") == 3
    books.check()


def test_the_child_goes_on_when_its_parent_is_killed_in_a_transaction(start, books):
    program = start("fork_and_die")
    assert program.hear() == "in the middle"
    program.kill()
    program.wait()

    program.say("enqueue")

    assert UUID(program.hear()) in books.ids()
    assert books.count("job") == 2
    books.check()


def test_a_process_may_fork_while_its_threads_are_busy(start, books):
    number = many(20)

    said = start("fork_among_threads", number=number).finish().split()

    assert said == ["0"] * number
    books.check()


@on_sqlite
def test_a_reader_that_was_interrupted_does_not_hold_up_a_fork(start):
    program = start("fork_after_interrupt")

    assert program.finish(20).split() == ["interrupted", "child", "parent"]
