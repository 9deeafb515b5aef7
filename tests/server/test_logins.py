"""What a flood of logins cannot do, and what is noted of keys."""

import asyncio

import pytest

from tests.server.conftest import refused
from towpath import errors
from towpath.app.hashing import MOST_WAITING, Hashing
from towpath.server.accounts import network_of


def test_a_line_of_passwords_that_is_too_long_takes_no_more():
    hashing = Hashing()

    async def flood():
        gate = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wait():
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()

        waiting = [asyncio.ensure_future(hashing.arun(wait)) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(errors.TooManyLogins):
            await hashing.arun(wait)
        gate.set()
        await asyncio.gather(*waiting)
        return await hashing.arun(lambda: "room again")

    assert asyncio.run(flood()) == "room again"


@pytest.mark.parametrize(
    ("client", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_a_client_is_known_by_what_it_cannot_change_at_will(client, network):
    assert network_of(client) == network


def test_the_use_of_a_key_is_noted(web, clock):
    _, secret = web.app.keys.create("k", scopes=["manage"])

    assert web.get("/api/jobs", as_=secret).status_code == 200

    [found] = web.app.keys.list()
    assert found.last_used_at == clock.now


def test_a_revoked_key_is_refused_at_once(web):
    key, secret = web.app.keys.create("k", scopes=["manage"])
    assert web.get("/api/jobs", as_=secret).status_code == 200

    web.app.keys.revoke(key.id)

    assert refused(web.get("/api/jobs", as_=secret)) == (401, "invalid_token")
