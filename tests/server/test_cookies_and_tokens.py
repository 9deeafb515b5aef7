"""Logins: by password, by cookie, by tokens of others, and the first of them all."""

import re
import time

import jwt
import pytest

from tests.server.conftest import PASSWORD, Web, refused, token_of

SECRET = "a-shared-secret-of-more-than-32-bytes"
JOB = "/api/jobs/enqueue"
WHO, NOT_YOU, BAD = (401, "login_required"), (403, "forbidden"), (401, "invalid_token")


@pytest.fixture
def cookie(quick_web):
    """A login by cookie, as its header."""
    web = quick_web
    web.app.access.set(access_rule="@request.auth.id != ''")
    web.app.accounts.create("users", "ada@example.org", PASSWORD)
    said = web.post(
        "/api/collections/users/auth-with-password",
        {"identity": "ada@example.org", "password": PASSWORD, "cookie": True},
    )
    set_cookie = said.headers["set-cookie"]
    name, _, attributes = set_cookie.partition("; ")
    assert set(attributes.split("; ")) == {
        "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=604800",
    }  # fmt: skip
    web._client.cookies.clear()
    return name


OURS = {"origin": "http://towpath.test"}


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({}, False),
        (OURS, True),
        ({"origin": "https://towpath.test"}, True),
        ({"origin": "http://evil.test"}, False),
        ({"origin": "http://towpath.test.evil.test"}, False),
        ({"origin": "http://towpath.test:81"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({**OURS, "sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://evil.test", "sec-fetch-site": "same-origin"}, True),
    ],
    ids=str,
)
def test_with_a_cookie_only_our_own_pages_may_change_anything(quick_web, cookie, headers, is_ours):
    headers = {"cookie": cookie, **headers}

    said = quick_web.post(JOB, {"topic": "mail"}, headers=headers)

    assert quick_web.get("/api/jobs", headers=headers).status_code == 200
    if is_ours:
        assert said.status_code == 201
    else:
        assert refused(said) == (403, "csrf_refused")
        assert quick_web.app.jobs.list() == []


def test_a_cookie_is_refreshed_and_taken_away(quick_web, cookie):
    web, headers = quick_web, {"cookie": cookie, **OURS}
    refreshed = web.post("/api/collections/users/auth-refresh", headers=headers)
    assert "HttpOnly" in refreshed.headers["set-cookie"]
    assert refreshed.json()["token"] in refreshed.headers["set-cookie"]

    ended = web.post("/api/collections/users/auth-logout", headers=headers)

    assert ended.status_code == 204
    assert re.match(r"towpath_auth=;.*Max-Age=0", ended.headers["set-cookie"])
    web._client.cookies.clear()
    assert refused(web.get("/api/jobs", headers=headers)) == WHO


def test_a_cookie_over_https_is_for_https_only(quick_web):
    web = quick_web
    web.app.accounts.create("users", "ada@example.org", PASSWORD)
    body = {"identity": "ada@example.org", "password": PASSWORD, "cookie": True}

    said = web.post("https://towpath.test/api/collections/users/auth-with-password", body)

    assert said.headers["set-cookie"].endswith("; Secure")


def test_a_login_without_the_wish_sets_no_cookie(quick_web):
    web = quick_web
    web.app.accounts.create("users", "ada@example.org", PASSWORD)
    body = {"identity": "ada@example.org", "password": PASSWORD}

    said = web.post("/api/collections/users/auth-with-password", body)

    assert "set-cookie" not in said.headers
    assert set(said.json()) == {"token", "record"}
    assert "password" not in said.json()["record"]
    bare = web.get("/api/jobs", headers={"authorization": said.json()["token"]})
    assert refused(bare) == NOT_YOU  # PocketBase's clients send it without Bearer


# ---------------------------------------------------------------- logins


def log_in(web, email, password, collection="users"):
    body = {"identity": email, "password": password}
    return web.post(f"/api/collections/{collection}/auth-with-password", body)


def test_a_wrong_address_and_a_wrong_password_look_the_same(web, ada, root):
    wrong = [
        log_in(web, "ada@example.org", "wrong"),
        log_in(web, "nobody@example.org", PASSWORD),
        log_in(web, "root@example.org", PASSWORD),  # who is no user
        log_in(web, "not an address", PASSWORD),
        log_in(web, "", ""),
    ]

    assert {refused(said) for said in wrong} == {(400, "login_refused")}
    assert len({said.text for said in wrong}) == 1
    assert log_in(web, "ADA@example.org", PASSWORD).status_code == 200


def test_too_many_logins_are_told_to_wait(web, ada, clock):
    statuses = [log_in(web, "ada@example.org", f"wrong {n}").status_code for n in range(50)]
    last = log_in(web, "ada@example.org", PASSWORD)

    assert refused(last) == (429, "too_many_logins")
    assert statuses[0] == 400
    seconds = int(last.headers["retry-after"])
    clock.advance(seconds)
    assert log_in(web, "ada@example.org", PASSWORD).status_code == 200


def enqueues(web, token):
    return web.post(JOB, {"topic": "mail"}, as_=token).status_code


def test_logging_out_ends_what_was_refreshed_and_no_other_login(web, ada):
    web.app.access.set(access_rule="@request.auth.id != ''")
    other = log_in(web, "ada@example.org", PASSWORD).json()["token"]
    refreshed = web.post("/api/collections/users/auth-refresh", as_=ada).json()["token"]
    assert enqueues(web, refreshed) == 201

    assert web.post("/api/collections/users/auth-logout", as_=ada).status_code == 204

    for token in (ada, refreshed):
        assert refused(web.post(JOB, {"topic": "mail"}, as_=token)) == BAD
    assert enqueues(web, other) == 201


def external_token(secret=SECRET, **claims):
    said = {"sub": "u1", "exp": int(time.time()) + 600, "role": "editor", **claims}
    return jwt.encode(said, secret, "HS256")


def test_external_tokens_are_taken_where_a_secret_is_set(make_app, loop, quick_passwords):
    web = Web(make_app(jwt_secret=SECRET), loop)
    web.app.access.set(access_rule="@request.auth.role = 'editor' && @request.auth.id = 'u1'")

    assert enqueues(web, external_token()) == 201
    assert enqueues(web, external_token(sub="u2")) == 403
    assert enqueues(web, external_token(role="reader")) == 403
    for bad in (
        external_token(exp=int(time.time()) - 60),
        external_token("another-secret-of-more-than-32-bytes"),
        jwt.encode({"sub": "u1", "exp": 2**32, "role": "editor"}, None, "none"),
    ):
        assert refused(web.post(JOB, {"topic": "mail"}, as_=bad)) == BAD
    assert (
        refused(web.get("/api/keys", as_=external_token(collectionName="_superusers"))) == NOT_YOU
    )
    refresh = web.post("/api/collections/users/auth-refresh", as_=external_token())
    assert refused(refresh) == BAD
    assert enqueues(web, token_of(web.app, "_superusers", "root@example.org")) == 201
    web.close()


def test_external_tokens_are_refused_where_none_is_set(quick_web):
    quick_web.app.access.set(access_rule="@request.auth.id != ''")

    assert refused(quick_web.post(JOB, {"topic": "mail"}, as_=external_token())) == BAD


# ---------------------------------------------------------------- the set-up link


FIRST = {"token": "from-the-link", "email": "root@example.org", "password": PASSWORD}


def test_the_first_superuser_is_made_once_by_the_link(web):
    web.api.shared.set_up_token = "from-the-link"

    for token in ("", "wrong", "from-the-lin", "from-the-link ", "é"):
        assert refused(web.post("/api/setup", {**FIRST, "token": token})) == NOT_YOU
    made = web.post("/api/setup", FIRST)

    assert made.status_code == 201
    assert web.get("/api/keys", as_=made.json()["token"]).status_code == 200
    assert refused(web.post("/api/setup", FIRST)) == (409, "invalid_state")
    assert web.app.accounts.count("_superusers") == 1


def test_the_first_superuser_may_be_logged_in_by_a_cookie(web):
    web.api.shared.set_up_token = "from-the-link"
    other_site = {"origin": "https://evil.example", "host": "towpath.test"}
    first = {**FIRST, "cookie": True}

    assert refused(web.post("/api/setup", first, headers=other_site)) == (403, "csrf_refused")
    made = web.post("/api/setup", first)

    assert made.status_code == 201
    assert made.headers["set-cookie"].startswith("towpath_auth=")
    assert "HttpOnly" in made.headers["set-cookie"]
    assert web.get("/api/me").json()["record"]["email"] == "root@example.org"


def test_the_link_ends_when_a_superuser_is_made_elsewhere(quick_web):
    quick_web.api.shared.set_up_token = "from-the-link"
    token_of(quick_web.app, "_superusers", "other@example.org")

    assert refused(quick_web.post("/api/setup", FIRST)) == (409, "invalid_state")
    assert quick_web.app.accounts.count("_superusers") == 1


@pytest.mark.parametrize("client", ["192.168.1.5", "10.0.0.1", "::2", "203.0.113.9", "unknown"])
def test_the_link_is_for_this_machine_only(quick_web, loop, client):
    web = Web(quick_web.app, loop, client=client)
    web.api.shared.set_up_token = "from-the-link"

    assert refused(web.post("/api/setup", FIRST)) == NOT_YOU
    assert web.app.accounts.count("_superusers") == 0
    web.close()


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.8.8", "::1"])
def test_every_address_of_this_machine_will_do(quick_web, loop, client):
    web = Web(quick_web.app, loop, client=client)
    web.api.shared.set_up_token = "from-the-link"

    assert web.post("/api/setup", FIRST).status_code == 201
    web.close()


def test_without_a_link_there_is_no_set_up(quick_web):
    assert refused(quick_web.post("/api/setup", FIRST)) == (409, "invalid_state")


def test_a_cookie_that_somebody_made_up_takes_no_time(web):
    hostile = {"cookie": 'towpath_auth="' + "\\a" * 30_000 + '"'}
    web.app.access.set(manage_rule="true")
    begun = time.process_time()

    assert web.get("/api/jobs", headers=hostile).status_code == 200
    assert time.process_time() - begun < 2  # it took 4.5 s of CPU time, without a login


def test_nobody_is_logged_in_by_another_site(web):
    token_of(web.app, "users", "ada@example.org")
    login = {"identity": "ada@example.org", "password": "correct horse", "cookie": True}
    path = "/api/collections/users/auth-with-password"

    foreign = web.post(path, login, headers={"origin": "https://example.net"})
    own = web.post(path, login, headers={"sec-fetch-site": "same-origin"})

    assert refused(foreign) == (403, "csrf_refused")
    assert "set-cookie" in own.headers
