"""What a flood of logins cannot do, and what is noted of keys."""

import asyncio

import pytest

from tests.server.conftest import PASSWORD, refused
from towpath import errors
from towpath.app.hashing import MOST_WAITING, Hashing
from towpath.server.accounts import network_of
from towpath.store import access


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


def test_users_change_their_own_name_and_password(web, ada):
    me = web.app.accounts.get("users", "ada@example.org")
    path = f"/api/collections/users/records/{me.id}"
    new = {"password": "another horse", "passwordConfirm": "another horse"}

    assert web("PATCH", path, {"name": "Ada"}, as_=ada).json()["name"] == "Ada"
    for wrong in ({}, {"oldPassword": None}, {"oldPassword": [PASSWORD]}):
        assert refused(web("PATCH", path, {**new, **wrong}, as_=ada)) == (400, "invalid")
    said = web("PATCH", path, {**new, "oldPassword": "guess"}, as_=ada)
    assert refused(said) == (400, "login_refused")
    version = web.app.run(access.version())
    assert web("PATCH", path, {"password": None}, as_=ada).status_code == 200
    assert web.app.run(access.version()) == version  # no process has to read the rules again
    assert web("PATCH", path, {**new, "oldPassword": PASSWORD}, as_=ada).status_code == 200

    assert refused(web.get(path, as_=ada)) == (401, "invalid_token")  # as all its tokens
    web.app.accounts.login("users", "ada@example.org", "another horse")


@pytest.mark.parametrize("change", [{"email": "root@example.org"}, {"role": "admin"}])
def test_users_do_not_change_what_rules_may_ask_for(web, ada, change):
    me = web.app.accounts.get("users", "ada@example.org")

    said = web("PATCH", f"/api/collections/users/records/{me.id}", change, as_=ada)

    assert refused(said) == (403, "forbidden")


def test_nobody_changes_the_name_or_password_of_another(web, ada):
    other = web.app.accounts.create("users", "bob@example.org", PASSWORD)
    for change in ({"name": "B"}, {"password": "another horse", "oldPassword": PASSWORD}):
        said = web("PATCH", f"/api/collections/users/records/{other.id}", change, as_=ada)
        assert refused(said) == (403, "forbidden")
