"""API keys: secrets of programs."""

import pytest

from towpath.errors import Invalid, InvalidToken, InvalidTopic, NotFound
from towpath.operation import Operation
from towpath.statement import Statement


def test_a_key_is_known_by_its_secret(app, clock):
    key, secret = app.keys.create("ci", scopes=["enqueue", "work", "enqueue"], topics=["mail"])

    assert secret.startswith("tow_")
    assert len(secret) >= 46
    assert secret.startswith(key.prefix)
    assert (key.name, key.scopes, key.topics) == ("ci", ("enqueue", "work"), ("mail",))
    assert (key.created_at, key.expires_at, key.last_used_at) == (clock.now, None, None)
    assert app.keys.verify(secret) == key
    assert app.keys.list() == [key]


def test_a_secret_is_not_stored(app):
    _, secret = app.keys.create("ci", scopes=["enqueue"])

    def steps():
        return (yield Statement("x", {"any": "select * from towpath.api_key"})())

    assert secret not in str(app.run(Operation("look", steps)))


def test_a_key_expires_by_the_clock_of_the_database(app, clock):
    key, secret = app.keys.create("ci", scopes=["metrics"], expires_in="90d")
    assert (key.expires_at - key.created_at).days == 90
    clock.advance("89d")
    app.keys.verify(secret)
    clock.advance("1d")
    with pytest.raises(InvalidToken):
        app.keys.verify(secret)
    assert app.keys.list() == [key]


def test_a_revoked_key_is_refused_and_the_others_hold(app):
    key, secret = app.keys.create("ci", scopes=["enqueue"])
    other, others = app.keys.create("cd", scopes=["manage"])
    app.keys.revoke(key.id)

    with pytest.raises(InvalidToken):
        app.keys.verify(secret)
    assert app.keys.verify(others) == other
    for wrong in (key.id, "", "x", None, "\0"):
        with pytest.raises(NotFound):
            app.keys.revoke(wrong)


def test_what_is_no_key_is_refused(app):
    _, secret = app.keys.create("ci", scopes=["enqueue"])
    for wrong in ("", "tow_", secret[:-1], secret + "x", "x" * 10**7, "\0", "\ud800", None, 7):
        with pytest.raises(InvalidToken):
            app.keys.verify(wrong)


def test_its_last_use_is_noted_once_a_minute_and_the_version_stays(app, clock):
    key, secret = app.keys.create("ci", scopes=["enqueue"])
    other, _ = app.keys.create("cd", scopes=["enqueue"])
    version = app.access.version()

    def used():
        app.keys.used([key.id, key.id])
        return app.keys.verify(secret).last_used_at

    first = clock.now
    assert used() == first
    clock.advance(59)
    assert used() == first
    clock.advance(1)
    assert used() == clock.now
    app.keys.used([])
    assert {each.id: each.last_used_at for each in app.keys.list()}[other.id] is None
    assert app.access.version() == version


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"scopes": []}, Invalid),
        ({"scopes": ["admin"]}, Invalid),
        ({"scopes": [7]}, Invalid),
        ({"topics": ["no topic"]}, InvalidTopic),
        ({"topics": [""]}, Invalid),
        ({"name": "a\0b"}, Invalid),
        ({"name": "x" * 201}, Invalid),
        ({"expires_in": -1}, Invalid),
        ({"expires_in": "soon"}, Invalid),
    ],
)
@pytest.mark.one_database
def test_what_cannot_be_a_key_is_refused(app, wrong, error):
    with pytest.raises(error):
        app.keys.create(**{"name": "ci", "scopes": ["enqueue"], **wrong})
    assert app.keys.list() == []
