"""Accounts: who may log in, and which tokens hold."""

import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import jwt
import psycopg
import pytest
from argon2 import PasswordHasher, Type

from tests.conftest import eventually
from towpath import App
from towpath.errors import (
    AccountExists,
    Conflict,
    ExtraMissing,
    Invalid,
    InvalidState,
    InvalidToken,
    LoginRefused,
    NotFound,
    TooManyLogins,
)
from towpath.model import passwords
from towpath.model.ids import uuid7
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import accounts as store
from towpath.store.accounts import NewAccount

pytestmark = pytest.mark.usefixtures("quick_passwords")

PASSWORD = "correct horse"
HASHER, UNKNOWN = passwords._hasher.__wrapped__, passwords._hash_of_unknown.__wrapped__
SHARED = "another-secret-that-is-long-enough-for-hs256"


@pytest.fixture
def ada(app):
    return app.accounts.create("users", "ada@example.com", PASSWORD)


@pytest.fixture
def hashes(monkeypatch):
    """What argon2 was asked to do."""
    asked = []
    for verb in ("hash", "verify"):
        real = getattr(PasswordHasher, verb)

        def counted(self, *args, real=real, verb=verb, **kwargs):
            asked.append(verb)
            return real(self, *args, **kwargs)

        monkeypatch.setattr(PasswordHasher, verb, counted)
    passwords._hash_of_unknown()
    asked.clear()
    return asked


def claims(token):
    return jwt.decode(token, options={"verify_signature": False})


def secret_of(app):
    def steps():
        [[secret]] = yield Statement("x", {"any": "select secret from towpath.access"})()
        return secret

    return app.run(Operation("secret", steps))


# ---------------------------------------------------------------- storage


def test_an_account_is_found_by_its_id_and_by_its_address(app, clock):
    made = app.accounts.create(
        "users", "ada@example.com", PASSWORD, name="Ada", fields={"role": "editor"}
    )

    assert (made.collection, made.email, made.name) == ("users", "ada@example.com", "Ada")
    assert (made.fields, made.generation) == ({"role": "editor"}, 0)
    assert made.created_at == made.updated_at == clock.now
    assert app.accounts.get("users", made.id) == made
    assert app.accounts.get("users", "ada@example.com") == made
    for wrong in ("_superusers", made.id), ("_superusers", "ada@example.com"), ("users", "b@c.d"):
        with pytest.raises(NotFound):
            app.accounts.get(*wrong)


def test_what_is_no_id_is_nobodys(app):
    for wrong in ("", "7", "x" * 10**6, "a\0b@c.d", "\ud800@c.d", None, 7):
        with pytest.raises(NotFound):
            app.accounts.get("users", wrong)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ada@example.com", "ADA@Example.COM"),
        ("ada@example.com", " ada@example.com "),
        ("zo\u00eb@example.com", "Zoe\u0308@example.com"),
        ("\u212aelvin@example.com", "kelvin@example.com"),
    ],
)
def test_an_address_is_one_however_it_is_typed(app, first, second):
    made = app.accounts.create("users", first, PASSWORD)

    with pytest.raises(AccountExists):
        app.accounts.create("users", second, PASSWORD)
    assert app.accounts.get("users", second) == made
    assert app.accounts.login("users", second, PASSWORD)[0] == made
    app.accounts.create("_superusers", second, PASSWORD)  # another collection


WRONG = [
    {"email": ""},
    {"email": "ada"},
    {"email": "@example.com"},
    {"email": "ada@"},
    {"email": "a da@example.com"},
    {"email": "ada@b@example.com"},
    {"email": "ada\n@example.com"},
    {"email": "ada\0@example.com"},
    {"email": "\ud800@example.com"},
    {"email": "a" * 10**6 + "@example.com"},
    {"email": None},
    {"email": 7},
    {"password": "short"},
    {"password": "x" * 1_001},
    {"password": "\ud800" * 8},
    {"password": None},
    {"name": "x" * 201},
    {"name": "a\0b"},
    {"name": "\ud800"},
    {"name": None},
    {"collection": "admins"},
    {"collection": ""},
    {"fields": []},
    {"fields": "x"},
    {"fields": {"id": "x"}},
    {"fields": {"email": "x"}},
    {"fields": {"collectionName": "_superusers"}},
    {"fields": {"": 1}},
    {"fields": {"a.b": 1}},
    {"fields": {7: 1}},
    {"fields": {"a": float("nan")}},
    {"fields": {"a": "\ud800"}},
    {"fields": {"a": object()}},
    {"fields": {"a": "x" * 16_384}},
]


def test_what_cannot_be_an_account_is_refused(app, hashes):
    for wrong in WRONG:
        said = {"collection": "users", "email": "ada@example.com", "password": PASSWORD, **wrong}
        with pytest.raises(Invalid):
            app.accounts.create(
                said.pop("collection"), said.pop("email"), said.pop("password"), **said
            )
    assert app.accounts.count("users") == 0
    assert hashes == []  # no memory was used for it


def test_fields_are_not_nested_without_end(app):
    deep = leaf = {}
    for _ in range(100_000):
        leaf["a"] = leaf = {}
    with pytest.raises(Invalid, match="nested"):
        app.accounts.create("users", "ada@example.com", PASSWORD, fields={"a": deep})
    while deep:  # freeing it all at once would overflow
        deep = deep["a"]


def test_fields_come_back_as_they_were(app, ada):
    fields = {"role": "editor", "teams": [1, 2.5, None, True], "at": {"nul": "\0", "emoji": "🚣"}}
    assert app.accounts.update("users", ada.id, fields=fields).fields == fields
    assert app.accounts.get("users", ada.id).fields == fields


def test_fields_that_are_not_named_stay_and_one_of_none_goes(app, ada):
    app.accounts.update("users", ada.id, fields={"role": "editor", "team": 7})

    assert app.accounts.update("users", ada.id, fields={"role": None}).fields == {"team": 7}
    assert app.accounts.update("users", ada.id, fields={}).fields == {"team": 7}
    app.accounts.update("users", ada.id, fields={"a": "x" * 9_000})
    with pytest.raises(Invalid, match="bytes"):  # of all together
        app.accounts.update("users", ada.id, fields={"b": "x" * 9_000})


def test_accounts_are_listed_in_pages_the_oldest_first(app):
    made = [app.accounts.create("users", f"u{n}@example.com", PASSWORD) for n in range(3)]
    app.accounts.create("_superusers", "root@example.com", PASSWORD)

    assert app.accounts.list("users") == made
    assert app.accounts.list("users", limit=2, offset=1) == made[1:]
    assert app.accounts.count("users") == 3
    for wrong in {"limit": 0}, {"limit": 1_001}, {"offset": -1}, {"offset": 2**70}, {"limit": "1"}:
        with pytest.raises(Invalid):
            app.accounts.list("users", **wrong)


def test_a_change_leaves_the_rest(app, ada, clock):
    clock.advance(5)
    changed = app.accounts.update("users", ada.id, name="Ada L.")
    assert (changed.name, changed.email, changed.updated_at) == ("Ada L.", ada.email, clock.now)
    assert app.accounts.update("users", ada.id, email="L@example.com").email == "l@example.com"
    assert app.accounts.update("users", ada.id, email="L@example.com").name == "Ada L."

    app.accounts.create("users", "bob@example.com", PASSWORD)
    with pytest.raises(AccountExists):
        app.accounts.update("users", ada.id, email="BOB@example.com")
    for wrong in ("_superusers", ada.id), ("users", "ada@example.com"):
        with pytest.raises(NotFound):
            app.accounts.update(*wrong, name="x")
    with pytest.raises(Invalid):
        app.accounts.update("users", ada.id, password="short")


def test_the_last_superuser_cannot_be_deleted(app):
    first = app.accounts.create_first("root@example.com", PASSWORD)
    with pytest.raises(Conflict):
        app.accounts.delete("_superusers", first.id)

    second = app.accounts.create("_superusers", "toor@example.com", PASSWORD)
    app.accounts.delete("_superusers", first.id)
    with pytest.raises(Conflict):
        app.accounts.delete("_superusers", second.id)
    with pytest.raises(NotFound):
        app.accounts.delete("_superusers", first.id)


def test_the_set_up_is_for_the_first_superuser_only(app):
    app.accounts.create("users", "ada@example.com", PASSWORD)
    made = app.accounts.create_first("root@example.com", PASSWORD)
    assert made.collection == "_superusers"
    with pytest.raises(InvalidState):
        app.accounts.create_first("toor@example.com", PASSWORD)


def test_of_many_that_set_up_at_once_one_succeeds(durable_place):
    url, needed = durable_place
    apps = [App(url, **needed) for _ in range(4)]
    apps[0].migrate()

    def set_up(app):
        try:
            return app.accounts.create_first(f"root{id(app)}@example.com", PASSWORD).id
        except InvalidState:
            return None

    with ThreadPoolExecutor() as pool:
        made = list(pool.map(set_up, apps))
    [stored] = apps[0].accounts.list("_superusers")
    assert [id for id in made if id] == [stored.id]
    for app in apps:
        app.close()


def test_a_set_up_waits_for_another_that_has_not_committed_yet(postgres, postgres_schema):
    first = NewAccount(
        id=uuid7(), collection="_superusers", email="root@example.com", name="", fields="{}"
    )
    patient = App(postgres.url(), schema=postgres_schema, busy_timeout=60)
    with patient as app, ThreadPoolExecutor(1) as pool:
        app.migrate()
        with psycopg.connect(postgres.url()) as theirs, psycopg.connect(postgres.url()) as watch:
            watch.autocommit = True
            app.run(store.create(first, "a hash", first=True), theirs)
            second = pool.submit(app.accounts.create_first, "toor@example.com", PASSWORD)

            def waits():
                waiting = (
                    "select 1 from pg_stat_activity"
                    " where wait_event_type = 'Lock' and datname = current_database()"
                )
                return second.done() or watch.execute(waiting).fetchall()

            eventually(waits)
        with pytest.raises(InvalidState):
            second.result(60)
        assert app.accounts.count("_superusers") == 1


# ---------------------------------------------------------------- logins


def test_a_login_returns_a_token_that_holds(app, ada):
    account, token = app.accounts.login("users", "Ada@Example.com", PASSWORD, client="10.0.0.1")

    assert account == ada
    assert app.accounts.verify(token) == ada
    ours = {"sub", "col", "gen", "jti", "login", "iat", "exp", "until"}
    pocketbases = {"type", "id", "collectionId", "collectionName"}  # which its clients read
    assert claims(token).keys() == ours | pocketbases


NOT_ADA = [
    ("ada@example.com", "wrong password"),
    ("ada@example.com", ""),
    ("ada@example.com", "x" * 10**6),
    ("ada@example.com", "\ud800"),
    ("ada@example.com", None),
    ("bob@example.com", PASSWORD),
    ("", PASSWORD),
    ("a" * 10**6 + "@example.com", PASSWORD),
    ("a\0da@example.com", PASSWORD),
    ("\ud800@example.com", PASSWORD),
    (None, PASSWORD),
]


def test_whatever_was_wrong_is_answered_alike_and_takes_the_same_work(app, ada, hashes):
    for n, (email, password) in enumerate(NOT_ADA):
        hashes.clear()
        with pytest.raises(LoginRefused) as refused:
            app.accounts.login("users", email, password, client=f"10.0.0.{n}")

        assert str(refused.value) == (
            "failed to log in: there is no such account, or the password is another"
        )
        assert hashes == ["verify"]


def test_a_password_that_is_changed_during_a_login_is_not_let_in(app, ada, monkeypatch):
    real = passwords.matches

    def steps():
        yield Statement("x", {"any": "update towpath.account set password = 'another'"})()

    def matches(*args):
        right = real(*args)
        app.run(Operation("change", steps))
        return right

    monkeypatch.setattr(passwords, "matches", matches)
    with pytest.raises(LoginRefused):
        app.accounts.login("users", ada.email, PASSWORD)


def test_a_user_is_no_superuser(app, ada):
    with pytest.raises(LoginRefused):
        app.accounts.login("_superusers", "ada@example.com", PASSWORD)


def test_a_password_is_the_same_on_every_keyboard(app):
    app.accounts.create("users", "ada@example.com", "caf\u00e9 au lait")
    app.accounts.login("users", "ada@example.com", "cafe\u0301 au lait")


def test_an_outdated_hash_is_renewed_by_a_login(app, ada):
    old = PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash(PASSWORD)

    def set_hash():
        yield Statement("x", {"any": "update towpath.account set password = :old"})(old=old)

    def hash_now():
        [[found]] = yield Statement("x", {"any": "select password from towpath.account"})()
        return found

    app.run(Operation("old", set_hash))
    _, token = app.accounts.login("users", ada.email, PASSWORD)
    renewed = app.run(Operation("look", hash_now))
    assert passwords.is_outdated(old)
    assert not passwords.is_outdated(renewed)
    assert app.accounts.verify(token) == ada
    app.accounts.login("users", ada.email, PASSWORD)
    assert app.run(Operation("look", hash_now)) == renewed


def fail(app, times, email="ada@example.com", client="10.0.0.1"):
    for _ in range(times):
        with pytest.raises(LoginRefused):
            app.accounts.login("users", email, "wrong password", client=client)


def throttled(app, email="ada@example.com", client="10.0.0.1", password=PASSWORD):
    with pytest.raises(TooManyLogins) as error:
        app.accounts.login("users", email, password, client=client)
    return error.value.retry_after


def test_after_five_failures_one_waits_even_with_the_right_password(app, ada, clock, hashes):
    fail(app, 5)
    hashes.clear()
    assert throttled(app) == 12
    assert hashes == []  # charged before anything is hashed

    clock.advance(11)
    assert throttled(app) == 1
    clock.advance(1)
    fail(app, 1)
    assert throttled(app) == 12
    clock.advance(12)
    app.accounts.login("users", "ada@example.com", PASSWORD, client="10.0.0.1")
    fail(app, 5)  # all forgiven


def test_a_stranger_does_not_lock_an_owner_out(app, ada):
    fail(app, 5, client="6.6.6.6")
    throttled(app, client="6.6.6.6")

    app.accounts.login("users", "ada@example.com", PASSWORD, client="10.0.0.1")
    throttled(app, client="6.6.6.6")  # the owner's success does not forgive the stranger


def test_one_client_may_not_try_many_addresses(app, ada, clock):
    for n in range(30):
        fail(app, 1, email=f"u{n}@example.com")
    assert throttled(app, email="another@example.com") == 2
    clock.advance(2)
    fail(app, 1, email="another@example.com")


def test_a_success_costs_its_client_nothing(app, ada):
    for n in range(29):
        fail(app, 1, email=f"u{n}@example.com")
    for _ in range(3):
        app.accounts.login("users", "ada@example.com", PASSWORD, client="10.0.0.1")
    fail(app, 1, email="another@example.com")
    throttled(app, email="another@example.com")


def test_many_clients_may_not_try_one_address_without_end(app, clock):
    for n in range(100):
        fail(app, 1, client=f"10.0.0.{n}")
    assert throttled(app, client="10.0.1.1") == 1
    fail(app, 1, email="bob@example.com", client="10.0.1.1")


def test_every_instance_counts_the_same_failures(make_app, clock):
    one, two = make_app(clock=clock), make_app(clock=clock)
    one.accounts.create("users", "ada@example.com", PASSWORD)
    if one.url == "memory://":
        two = one
    fail(one, 3)
    fail(two, 2)
    throttled(one)
    throttled(two)


def test_upkeep_forgets_attempts_that_are_paid_for(app, ada, clock):
    fail(app, 2)
    clock.advance(13)
    app.upkeep.run()
    assert rows(app, "login_attempt") == 1  # the tight one is still owed
    clock.advance(61)
    app.upkeep.run()
    assert rows(app, "login_attempt") == 0


def rows(app, table):
    def steps():
        statements = {
            "login_attempt": "select key from towpath.login_attempt",
            "revoked_token": "select id from towpath.revoked_token",
        }
        return len((yield Statement("x", {"any": statements[table]})()))

    return app.run(Operation("count", steps))


def test_at_most_two_passwords_are_hashed_at_once(app, ada, monkeypatch):
    now, most = [], []
    pair = Barrier(2, timeout=60)
    real = passwords.matches

    def watched(*args):
        now.append(1)
        most.append(len(now))
        pair.wait()
        try:
            return real(*args)
        finally:
            now.pop()

    monkeypatch.setattr(passwords, "matches", watched)
    with ThreadPoolExecutor(8) as pool:
        logins = [
            pool.submit(app.accounts.login, "users", ada.email, PASSWORD, client=f"10.0.0.{n}")
            for n in range(8)
        ]
        assert {login.result()[0].id for login in logins} == {ada.id}
    assert max(most) == 2


# ---------------------------------------------------------------- tokens


def test_a_token_expires_by_the_clock_of_the_database(make_app, colour, clock):
    app = colour(make_app(clock=clock, token_lifetime=60))
    ada = app.accounts.create("users", "ada@example.com", PASSWORD)
    token = app.accounts.token(ada)
    clock.advance(59)
    assert app.accounts.verify(token) == ada
    clock.advance(1)
    with pytest.raises(InvalidToken, match="expired"):
        app.accounts.verify(token)


def test_a_refreshed_token_lives_on_and_the_old_one_ends_at_its_time(app, ada, clock):
    old = app.accounts.token(ada)
    clock.advance("6d")
    account, new = app.accounts.refresh(old)
    assert account == ada
    assert app.accounts.verify(old) == app.accounts.verify(new) == ada
    clock.advance("1d")
    for verb in (app.accounts.verify, app.accounts.refresh, app.accounts.revoke):
        with pytest.raises(InvalidToken):
            verb(old)
    assert app.accounts.verify(new) == ada


def test_a_revoked_token_ends_and_another_one_does_not(app, ada):
    one, two = app.accounts.token(ada), app.accounts.token(ada)
    app.accounts.revoke(one)
    for verb in (app.accounts.verify, app.accounts.refresh, app.accounts.revoke):
        with pytest.raises(InvalidToken):
            verb(one)
    assert app.accounts.verify(two) == ada


def test_logging_out_ends_a_token_that_lives_longer_than_those_refreshed_from_it(app, ada, clock):
    """Tokens may have been made shorter since."""
    long = app.accounts.token(ada)
    app.accounts._lifetime = 3_600_000_000
    _, short = app.accounts.refresh(long)
    app.accounts.revoke(short)

    clock.advance(4 * 3_600)
    app.upkeep.run()

    with pytest.raises(InvalidToken):
        app.accounts.verify(long)


def test_logging_out_ends_every_token_of_that_login_and_no_other(app, ada):
    first, elsewhere = app.accounts.token(ada), app.accounts.token(ada)
    _, second = app.accounts.refresh(first)
    _, third = app.accounts.refresh(second)
    _, other = app.accounts.refresh(elsewhere)
    app.accounts.revoke(second)
    for token in (first, second, third):
        for verb in (app.accounts.verify, app.accounts.refresh, app.accounts.revoke):
            with pytest.raises(InvalidToken):
                verb(token)
    assert app.accounts.verify(elsewhere) == app.accounts.verify(other) == ada


def test_a_login_stays_ended_until_its_last_token_expires(app, ada, clock):
    first = app.accounts.token(ada)
    clock.advance("6d")
    _, second = app.accounts.refresh(first)
    app.accounts.revoke(first)
    for _ in range(7):
        clock.advance("23h")
        app.upkeep.run()
        with pytest.raises(InvalidToken, match="ended"):
            app.accounts.verify(second)


def test_a_token_of_the_version_before_is_a_login_of_its_own(app, ada):
    said = claims(app.accounts.token(ada))
    del said["login"]
    old = jwt.encode(said, secret_of(app))
    _, fresh = app.accounts.refresh(old)
    app.accounts.revoke(fresh)
    for token in (old, fresh):
        with pytest.raises(InvalidToken):
            app.accounts.verify(token)


def test_a_new_password_ends_every_token(app, ada):
    token = app.accounts.token(ada)
    app.accounts.update("users", ada.id, name="Ada", email="l@example.com")
    assert app.accounts.verify(token).name == "Ada"

    changed = app.accounts.update("users", ada.id, password="a new password")
    for old in (token, app.accounts.token(ada)):
        with pytest.raises(InvalidToken):
            app.accounts.verify(old)
    assert app.accounts.verify(app.accounts.token(changed)) == changed
    with pytest.raises(LoginRefused):
        app.accounts.login("users", "l@example.com", PASSWORD)
    app.accounts.login("users", "l@example.com", "a new password")


def test_all_tokens_of_an_account_can_be_ended(app, ada):
    token = app.accounts.token(ada)
    bob = app.accounts.create("users", "bob@example.com", PASSWORD)
    others = app.accounts.token(bob)
    app.accounts.revoke_all(ada)
    with pytest.raises(InvalidToken):
        app.accounts.verify(token)
    assert app.accounts.verify(others) == bob


def test_a_deleted_account_has_no_tokens_even_if_it_comes_back(app, ada):
    token = app.accounts.token(ada)
    app.accounts.delete("users", ada.id)
    app.accounts.create("users", ada.email, PASSWORD)
    with pytest.raises(InvalidToken):
        app.accounts.verify(token)
    with pytest.raises(NotFound):
        app.accounts.revoke_all(ada)


def forged(token, **changes):
    """What an attacker makes of a token, without the secret."""
    said = {**claims(token), **changes}
    header, _, signature = token.split(".")
    body = jwt.encode(said, SHARED).split(".")[1]
    return {
        "other claims under the old signature": f"{header}.{body}.{signature}",
        "another secret": jwt.encode(said, SHARED),
        "none": jwt.encode(said, None, algorithm="none"),
        "none with a signature": jwt.encode(said, None, algorithm="none") + signature,
        "no signature": f"{header}.{body}.",
        "cut": token[:-1],
        "two parts": f"{header}.{body}",
    }


def test_a_forged_token_is_refused(app, ada):
    token = app.accounts.token(ada)
    root = app.accounts.create_first("root@example.com", PASSWORD)
    for wrong in forged(token, sub=root.id, col="_superusers").values():
        with pytest.raises(InvalidToken):
            app.accounts.verify(wrong)
    assert app.accounts.verify(token) == ada


NOT_OURS = [
    {"col": "_superusers"},
    {"col": "admins"},
    {"gen": 1},
    {"gen": "0"},
    {"sub": "x"},
    {"sub": "00000000-0000-7000-8000-000000000000"},
    {"jti": None},
    {"exp": None},
    {"exp": "never"},
    {"exp": 10**30},
    {"gen": 10**30},
    {"login": "mine"},
    {"exp": 0},
]


def test_claims_that_we_did_not_make_are_refused_even_if_signed(app, ada):
    ours, secret = claims(app.accounts.token(ada)), secret_of(app)
    assert app.accounts.verify(jwt.encode(ours, secret)) == ada
    for changes in NOT_OURS:
        made = {name: said for name, said in {**ours, **changes}.items() if said is not None}
        with pytest.raises(InvalidToken):
            app.accounts.verify(jwt.encode(made, secret))


def test_only_hs256_is_ours(app, ada):
    made = claims(app.accounts.token(ada))
    for algorithm in ("HS384", "HS512"):
        with pytest.raises(InvalidToken):
            app.accounts.verify(jwt.encode(made, secret_of(app) * 2, algorithm=algorithm))


NO_TOKENS = [
    "",
    ".",
    "..",
    "a.b.c",
    "tow_x",
    "x" * 10**7,
    "\0",
    "\ud800.\ud800.\ud800",
    None,
    7,
    b"x",
    "eyJhbGciOiJIUzI1NiJ9." + "W1tb" * 2_000 + ".x",
    "W1tb" * 2_000 + ".e30.x",
]


def test_what_is_no_token_is_refused(app, ada):
    app.accounts.token(ada)
    for wrong in NO_TOKENS:
        with pytest.raises(InvalidToken):
            app.accounts.verify(wrong)
        with pytest.raises(InvalidToken):
            app.accounts.revoke(wrong)


def test_no_token_holds_where_none_was_made(app, ada):
    with pytest.raises(InvalidToken):
        app.accounts.verify(jwt.encode({"sub": ada.id}, SHARED))


def test_a_token_of_another_database_is_refused(app, ada, clock):
    with App("memory://", clock=clock) as other:
        there = other.accounts.create("users", "ada@example.com", PASSWORD)
        token = other.accounts.token(there)
        assert other.accounts.verify(token) == there
    with pytest.raises(InvalidToken):
        app.accounts.verify(token)


def test_instances_that_start_at_once_agree_on_the_secret(durable_place):
    url, needed = durable_place
    apps = [App(url, **needed) for _ in range(4)]
    ada = apps[0].accounts.create("users", "ada@example.com", PASSWORD)

    def forget():
        yield Statement("x", {"any": "delete from towpath.access"})()

    apps[0].run(Operation("forget", forget))
    with ThreadPoolExecutor() as pool:
        tokens = list(pool.map(lambda app: app.accounts.token(ada), apps))
    for app in apps:
        assert [app.accounts.verify(token) for token in tokens] == [ada] * 4
        app.close()


def test_upkeep_forgets_ended_logins_when_their_tokens_have_expired(app, ada, clock):
    token = app.accounts.token(ada)
    app.accounts.revoke(token)
    clock.advance("14d")
    app.upkeep.run()
    assert rows(app, "revoked_token") == 1
    clock.advance("1h")
    app.upkeep.run()
    assert rows(app, "revoked_token") == 0
    with pytest.raises(InvalidToken):
        app.accounts.verify(token)


# ---------------------------------------------------------------- without the extra


def test_without_argon2_jobs_go_on_and_a_password_says_what_to_install(app, monkeypatch):
    monkeypatch.setitem(sys.modules, "argon2", None)
    monkeypatch.setattr(passwords, "_hasher", HASHER)
    monkeypatch.setattr(passwords, "_hash_of_unknown", UNKNOWN)
    app.jobs.enqueue("mail")
    app.keys.create("ci", scopes=["enqueue"])
    app.access.get()
    for verb in (app.accounts.create, app.accounts.login):
        with pytest.raises(ExtraMissing, match=r"pip install 'towpath\[server\]'"):
            verb("users", "ada@example.com", PASSWORD)


def test_without_pyjwt_a_token_says_what_to_install(app, ada, monkeypatch):
    token = app.accounts.token(ada)
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'towpath\[server\]'"):
        app.accounts.verify(token)


def test_passwords_are_hashed_as_rfc_9106_asks_where_memory_is_short():
    hasher = HASHER()
    assert (hasher.type, hasher.time_cost) == (Type.ID, 3)
    assert (hasher.memory_cost, hasher.parallelism) == (64 * 1024, 4)


# ---------------------------------------------------------------- the caller's transaction


def test_an_account_is_made_in_the_callers_transaction_or_not_at_all(tmp_path):
    url = f"sqlite:///{tmp_path}/test.db"
    with App(url) as app, closing(sqlite3.connect(tmp_path / "test.db")) as connection:
        app.migrate()
        connection.execute("begin")
        app.accounts.create("users", "ada@example.com", PASSWORD, connection=connection)
        with pytest.raises(AccountExists):
            app.accounts.create("users", "ada@example.com", PASSWORD, connection=connection)
        connection.rollback()
        assert app.accounts.count("users") == 0
        connection.execute("begin")
        app.accounts.create("users", "ada@example.com", PASSWORD, connection=connection)
        connection.commit()
        app.accounts.login("users", "ada@example.com", PASSWORD)


# ---------------------------------------------------------------- the migration
