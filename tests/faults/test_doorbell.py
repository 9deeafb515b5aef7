"""Doorbells between processes: what rings while we ring ourselves is heard."""

import select

import pytest

from towpath.database.wakeups import PostgresBell
from towpath.settings import Settings


@pytest.fixture
def bells(postgres, postgres_schema):
    bells = [PostgresBell(postgres.url(), Settings(schema=postgres_schema)) for _ in range(2)]
    for bell in bells:
        assert bell.wait(0, listening=True) is None  # it has just begun to listen
    yield bells
    for bell in bells:
        bell.close()


def test_a_ring_that_comes_while_a_bell_rings_itself_is_heard(bells):
    here, there = bells
    there.announce(["mail"])
    select.select([here._connection], [], [], 5)

    here.announce(["post"])

    assert here.wait(0, listening=True) == {"mail"}
    assert here.wait(0, listening=True) == set()
