"""Values and rules that need no database."""

import itertools
from datetime import timedelta
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towpath import Backoff, Settings
from towpath.errors import Invalid, InvalidPayload, InvalidUrl, PayloadTooLarge
from towpath.model import payload
from towpath.model.event import TypeFilter
from towpath.model.instants import as_datetime, instant, microseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", 250_000),
        ("90s", 90_000_000),
        ("15m", 900_000_000),
        ("1h30m", 5_400_000_000),
        ("1.5d", 129_600_000_000),
        (0, 0),
        (0.25, 250_000),
        (timedelta(minutes=1), 60_000_000),
    ],
)
def test_durations_are_read(text, expected):
    assert microseconds(text) == expected


@pytest.mark.parametrize(
    "nonsense", ["", "m", "15", "-5s", "5 s", "1m1", "٣s", True, None, -0.1, float("inf"), 10**12,
                 1e305, 10**400]
)  # fmt: skip
def test_nonsense_is_no_duration(nonsense):
    with pytest.raises(Invalid):
        microseconds(nonsense)


@given(st.integers(0, 2**52))
def test_an_instant_survives_its_journey(us):
    assert instant(as_datetime(us)) == us


@given(st.integers(1, 10_000))
def test_a_backoff_never_exceeds_its_most(failures):
    assert 0 < Backoff().seconds(failures) <= 86_400


def test_a_star_of_a_type_stands_for_any_characters():
    def words(letters, most):
        return [
            "".join(each) for n in range(most) for each in itertools.product(letters, repeat=n + 1)
        ]

    for pattern in words("ab*", 5):
        wants = TypeFilter([pattern])
        wrong = [type for type in words("ab", 5) if wants(type) != fnmatchcase(type, pattern)]
        assert not wrong, pattern
        assert wants(None) == fnmatchcase("", pattern)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_a_payload_is_stored_exactly_or_refused(value):
    try:
        body, encoding = payload.encode(value, 10_000)
    except (InvalidPayload, PayloadTooLarge):
        return
    assert payload.decode(body, encoding) == value


@given(st.binary())
def test_bytes_are_stored_exactly(value):
    assert payload.decode(*payload.encode(value, 10_000)) == value


def test_bytes_are_the_same_however_they_are_stored():
    assert payload.same("aGVsbG8=", "base64", "hello", "text")
    assert payload.same("hello", "text", "hello", "text")
    assert not payload.same('"hello"', "json", '"hello"', "text")
    assert not payload.same("aGVsbG8=", "base64", "hallo", "text")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"password": "hunter2", "n": 1}', '{"password": "•••", "n": 1}'),
        ('{"password": "hunter2", "n": NaN}', "•••"),
        ('{"password": "hunter2"}\n{"password": "hunter2"}', "•••"),
        (' [{"password": "hunter2"', "•••"),
        ('\ufeff{"password": "hunter2"}', "•••"),
        ("hello", "hello"),
    ],
)
def test_text_that_looks_like_json_is_hidden_where_it_cannot_be_looked_into(text, shown):
    assert payload.redacted(text, "password", strict=False) == shown


@given(st.text(st.characters()))
def test_any_text_can_be_cleaned_for_a_database(text):
    cleaned = payload.clean_text(text, 50)

    assert len(cleaned) <= 50
    assert "\0" not in cleaned
    cleaned.encode()


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("TOWPATH_BUSY_TIMEOUT", "2.5")
    monkeypatch.setenv("TOWPATH_TOPIC_CLEANUP", "true")
    monkeypatch.setenv("TOWPATH_LANES", "2")

    settings = Settings.from_environment(lanes=3)

    assert (settings.busy_timeout, settings.topic_cleanup, settings.lanes) == (2.5, True, 3)


@pytest.mark.parametrize(
    "bad",
    [
        {"durability": "maybe"},
        {"schema": "a;b"},
        {"schema": "a" * 51},
        {"lanes": 0},
        {"colour": "red"},
        {"dead_after": 0},
        {"poll_interval": 0},
        {"busy_timeout": float("nan")},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(bad):
    with pytest.raises(Invalid):
        Settings.from_environment(**bad)


def test_an_environment_that_cannot_be_read_is_refused(monkeypatch):
    monkeypatch.setenv("TOWPATH_LANES", "many")

    with pytest.raises(Invalid, match="TOWPATH_LANES"):
        Settings.from_environment()


def test_a_wrong_url_says_what_to_use():
    from towpath import App  # noqa: PLC0415 - everything else here needs none

    with pytest.raises(InvalidUrl, match="sqlite:///app"):
        App("mysql://user:secret@host/db")
