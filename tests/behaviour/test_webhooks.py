"""The verbs of webhooks: subscriptions, their secrets, sagas and dead letters."""

import base64
import logging
from pathlib import Path
from uuid import uuid4

import pytest

from tests.webhooks import delivering
from towpath import NewEvent
from towpath.errors import (
    BlockedTarget,
    Conflict,
    Invalid,
    InvalidChannel,
    InvalidHeader,
    InvalidRule,
    InvalidSecret,
    InvalidTarget,
    KeyMissing,
    NotFound,
    SealBroken,
)
from towpath.model.sagas import SagaStatus
from towpath.model.sealing import SealingKeys, new_key
from towpath.model.signatures import new_secret
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.webhooks.memory import MemoryReceiver

URL = "https://receiver.example/hook"
KEY = new_key()
TABLES = Statement(
    "tables",
    {
        "sqlite": "select name from sqlite_master where type = 'table' and name glob 'towpath_*'",
        "postgres": """
select relname from pg_class where relkind = 'r' and relnamespace = to_regnamespace('{schema}')""",
    },
)


@pytest.fixture
def made(make_app, clock):
    return make_app(clock=clock, webhook_key=KEY)


@pytest.fixture
def app(made, colour):
    """An app whose webhooks can be sealed."""
    return colour(made)


@pytest.fixture
def receiver():
    return MemoryReceiver(URL)


@pytest.fixture
def deliver(made, loop, receiver):
    """Make every attempt that is due; say how many."""
    return lambda: delivering.deliver(made, loop, receiver)


def stored(app):
    """All that the database holds, as text; of a file of SQLite also its bytes."""

    def steps():
        names = yield TABLES()
        assert len(names) > 40
        found = ""
        for (name,) in names:
            text = f"select * from towpath.{name.removeprefix('towpath_')}"  # noqa: S608 - our own text
            found += str((yield Statement("x", {"any": text})()))
        return found

    found = app.run(Operation("look", steps))
    if app.url.startswith("sqlite:///"):
        path = Path(app.url.removeprefix("sqlite:///"))
        for each in path.parent.glob(f"{path.name}*"):  # with its -wal
            found += each.read_bytes().decode("latin-1")
    return found


def test_a_subscription_has_the_defaults_that_the_documents_name(app, clock):
    """WH-1"""
    made, secret = app.webhooks.create("orders", URL)

    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert (made.channel, made.url, made.types, made.filter_rule) == ("orders", URL, ("*",), None)
    assert (made.timeout.total_seconds(), made.concurrency, made.pace) == (15, 10, None)
    assert sum(wait.total_seconds() for wait in made.waits) == (75 * 60 + 35) * 60 + 5
    assert len(made.waits) == 9
    assert (made.ordered, made.body, made.owner, made.paused) == (False, "envelope", None, False)
    assert made.created_at == clock.now
    assert app.webhooks.get(made.id) == made
    assert app.webhooks.list() == [made]
    health = app.webhooks.health(made.id)
    assert (health.failures, health.waiting, health.stopped_at) == (0, 0, None)


def test_channel_system_tells_what_is_done_to_a_subscription(make_app, colour, clock):
    """MS-10: once for each change."""
    app = colour(make_app(clock=clock, webhook_key=KEY, lifecycle="all"))
    made, _ = app.webhooks.create("orders", URL)
    for timeout in ("20s", "20s", "30s"):
        app.webhooks.update(made.id, timeout=timeout)
    for verb in ("pause", "resume"):
        for _ in range(2):
            getattr(app.webhooks, verb)(made.id)
    app.webhooks.enable(made.id)
    app.webhooks.rotate(made.id)
    app.webhooks.delete(made.id)

    told = [(event.type, event.payload) for event in app.events.read("system").events]
    what = ["added", "changed", "changed", "paused", "resumed", "enabled", "changed", "deleted"]
    about = {"subscription": made.id, "channel": "orders"}
    assert told == [(f"subscription.{each}", about) for each in what]


def test_a_subscription_is_what_its_creator_says(app):
    options = {
        "types": ["order.*", "order.*", "paid"], "filter_rule": "@event.payload.total > 10",
        "timeout": "30s", "concurrency": 3, "rate": "10/s", "burst": 5, "waits": ["1m", 3600],
        "ordered": True, "body": "payload", "final_statuses": [400, 422], "owner": "ada",
        "description": "the shop",
    }  # fmt: skip
    made, _ = app.webhooks.create("orders", URL, headers={"X-Tenant": "7"}, **options)

    assert (made.types, made.filter_rule) == (("order.*", "paid"), options["filter_rule"])
    assert (made.timeout.total_seconds(), made.concurrency, made.burst) == (30, 3, 5)
    assert made.pace.total_seconds() == 0.1
    assert [wait.total_seconds() for wait in made.waits] == [60, 3600]
    assert (made.ordered, made.body, made.final_statuses) == (True, "payload", (400, 422))
    assert (made.owner, made.description) == ("ada", "the shop")


def test_an_event_reaches_the_receiver_with_the_headers_and_a_signature(app, deliver, receiver):
    """WH-2"""
    made, secret = app.webhooks.create(
        "orders", URL, types=["order.*"], headers={"Authorization": "Bearer abc"}
    )
    app.events.publish("orders", 1, type="other")
    event = app.events.publish("orders", {"total": 9}, type="order.paid")

    assert deliver() == 1

    [request] = receiver.requests
    assert request.payload == {"total": 9}
    assert request.headers["authorization"] == "Bearer abc"
    assert request.verified(secret).id == str(event.id)
    [saga] = app.webhooks.sagas.list(subscription=made.id, status="Completed")
    assert (saga.event, saga.type, saga.attempts) == (event.id, "order.paid", 1)
    assert app.webhooks.sagas.get(saga.id) == saga
    assert app.webhooks.sagas.of_event(event.id) == [saga]
    [attempt] = app.webhooks.sagas.attempts(saga.id)
    assert (attempt.number, attempt.response_status, attempt.error_code) == (1, 204, None)


def test_a_rotated_secret_signs_beside_the_old_one_for_a_day(app, deliver, receiver, clock):
    made, old = app.webhooks.create("orders", URL)
    new = app.webhooks.rotate(made.id)
    app.events.publish("orders", 1)
    deliver()
    clock.advance("24h")
    app.events.publish("orders", 2)
    deliver()

    both, alone = receiver.requests
    assert len(both.headers["webhook-signature"].split()) == 2
    assert both.verified(old) == both.verified(new)
    assert len(alone.headers["webhook-signature"].split()) == 1
    alone.verified(new)


def test_a_secret_may_be_given_and_rotated_without_overlap(app, deliver, receiver):
    given, next_one = new_secret(), new_secret()
    made, secret = app.webhooks.create("orders", URL, secret=given.removeprefix("whsec_"))
    assert secret == given
    assert app.webhooks.rotate(made.id, secret=next_one, overlap=0) == next_one
    assert app.webhooks.rotate(made.id, secret=next_one) == next_one  # it signs already
    app.events.publish("orders", 1)
    deliver()

    [request] = receiver.requests
    assert len(request.headers["webhook-signature"].split()) == 1
    request.verified(next_one)


def test_no_secret_is_stored_told_or_logged(app, deliver, receiver, caplog):
    """Check 18: neither of a subscription nor of its deliveries and dead letters."""
    caplog.set_level(logging.DEBUG)
    given = new_secret()
    made, first = app.webhooks.create("orders", URL, headers={"x-api-key": "hush-4711"}, waits=[])
    receiver.answers(204, 500)
    app.events.publish_many("orders", [NewEvent(1), NewEvent(2)])
    deliver()
    second = app.webhooks.rotate(made.id, secret=given)
    changed = app.webhooks.update(made.id, headers={"x-api-key": "hush-4712"})
    letters = app.webhooks.dead_letters.list()

    assert len(letters) == 1
    told = f"{stored(app)} {made!r} {changed!r} {app.webhooks.list()!r} {caplog.text}"
    told += f"{app.settings!r} {letters!r} {app.webhooks.sagas.list()!r}"
    for secret in (first, second, "hush-4711", "hush-4712", KEY):
        assert secret.removeprefix("whsec_") not in told


def test_what_is_sealed_opens_under_any_of_several_keys(app, make_app, deliver, receiver):
    """A new key in front; the old one behind it still opens."""
    made, _ = app.webhooks.create("orders", URL)
    fresh = new_key()
    both = make_app(webhook_key=f"{fresh}, {KEY}")
    secret = both.webhooks.rotate(made.id)
    alone = make_app(webhook_key=fresh)

    assert alone.webhooks.rotate(made.id, secret=secret) == secret
    with pytest.raises(KeyMissing, match="TOWPATH_WEBHOOK_KEY"):
        app.webhooks.rotate(made.id)


def test_without_a_key_nothing_is_made(make_app, clock):
    for key in ("", "c2hvcnQ=", "no base64"):
        app = make_app(clock=clock, webhook_key=key)
        with pytest.raises(KeyMissing, match="towpath webhooks key"):
            app.webhooks.create("orders", URL)
        assert app.webhooks.list() == []
        assert app.events.list() == []


def test_what_was_changed_in_the_database_does_not_open(app, deliver, receiver):
    made, _ = app.webhooks.create("orders", URL)
    other, _ = app.webhooks.create("orders", URL)

    def steps():
        text = """update towpath.subscriptions set sealed =
            (select sealed from towpath.subscriptions where id = :other) where id = :id"""
        yield Statement("x", {"any": text})(id=made.id, other=other.id)

    app.run(Operation("swap", steps))
    with pytest.raises(SealBroken, match="rotate"):
        app.webhooks.update(made.id, headers={})
    secret = app.webhooks.rotate(made.id)
    app.webhooks.pause(other.id)
    app.events.publish("orders", 1)
    deliver()
    receiver.requests[0].verified(secret)


def test_changes_hold_for_deliveries_that_wait(app, deliver, receiver):
    made, _ = app.webhooks.create("orders", "https://wrong.example/", owner="ada", waits=["1s"])
    app.events.publish("orders", 1)
    assert deliver() == 1
    changed = app.webhooks.update(made.id, url=URL, timeout=5, owner=None)
    app.webhooks.sagas.cancel(app.webhooks.sagas.list()[0].id)
    app.events.publish("orders", 2)

    assert deliver() == 1
    assert (changed.url, changed.timeout.total_seconds(), changed.owner) == (URL, 5, None)
    assert changed.types == made.types
    assert [each.payload for each in receiver.requests] == [2]


def test_a_paused_subscription_holds_its_events_in_order(app, deliver, receiver):
    made, _ = app.webhooks.create("orders", URL)
    assert app.webhooks.pause(made.id) == 0
    for number in range(3):
        app.events.publish("orders", number)

    assert deliver() == 0
    assert app.webhooks.get(made.id).paused
    assert app.webhooks.health(made.id).held == 3
    with pytest.raises(Conflict, match="resume"):
        app.webhooks.ping(made.id)
    assert not app.webhooks.resume(made.id).paused
    assert deliver() == 3
    assert [each.payload for each in receiver.requests] == [0, 1, 2]


def test_a_stopped_subscription_goes_on_when_it_is_enabled(app, deliver, receiver):
    made, _ = app.webhooks.create("orders", URL)
    receiver.answers(410)
    app.events.publish("orders", 1)
    app.events.publish("orders", 2)
    deliver()

    assert app.webhooks.health(made.id).stopped_why == "gone"
    with pytest.raises(Conflict, match="enable"):
        app.webhooks.ping(made.id)
    app.webhooks.enable(made.id)
    assert app.webhooks.health(made.id).stopped_at is None
    deliver()
    assert receiver.requests[-1].payload == 2


def test_a_ping_goes_the_way_of_all_events(app, deliver, receiver):
    made, secret = app.webhooks.create("orders", URL)

    saga = app.webhooks.ping(made.id)

    assert (saga.subscription, saga.type, saga.status) == (made.id, "ping", "Pending")
    assert deliver() == 1
    [request] = receiver.requests
    assert request.verified(secret).payload["type"] == "ping"


def test_a_dead_letter_is_requeued_once_at_a_time(app, deliver, receiver):
    """WH-7, WH-8"""
    made, _ = app.webhooks.create("orders", URL, waits=[])
    receiver.answers(500)
    event = app.events.publish("orders", {"n": 1})
    deliver()

    [letter] = app.webhooks.dead_letters.list(subscription=made.id)
    assert app.webhooks.dead_letters.get(letter.id) == letter
    assert (letter.event, letter.error_code, letter.body) == (event.id, "http_500", '{"n":1}')
    with pytest.raises(Conflict, match="requeue"):
        app.webhooks.sagas.resend(letter.saga, confirm=True)
    saga = app.webhooks.dead_letters.requeue(letter.id, actor="ada")
    assert (saga.event, saga.replay_of, saga.attempts) == (event.id, letter.saga, 0)
    with pytest.raises(Conflict, match="under way"):
        app.webhooks.dead_letters.requeue(letter.id)
    assert app.webhooks.health(saga.subscription).dead_letters == 0
    assert deliver() == 1
    assert app.webhooks.sagas.get(saga.id).status is SagaStatus.COMPLETED
    assert app.webhooks.dead_letters.get(letter.id).requeued_as == saga.id
    assert app.webhooks.dead_letters.delete(letter.id)
    assert not app.webhooks.dead_letters.delete(letter.id)
    with pytest.raises(NotFound):
        app.webhooks.dead_letters.requeue(letter.id)


def test_a_delivered_event_is_sent_again_only_on_confirmation(app, deliver, receiver):
    app.webhooks.create("orders", URL)
    app.events.publish("orders", 1)
    deliver()
    [saga] = app.webhooks.sagas.list()

    with pytest.raises(Conflict, match="confirm"):
        app.webhooks.sagas.resend(saga.id)
    again = app.webhooks.sagas.resend(saga.id, confirm=True)
    with pytest.raises(Conflict, match="cannot be cancelled"):
        app.webhooks.sagas.cancel(saga.id)

    assert deliver() == 1
    assert (again.replay_of, again.event) == (saga.id, saga.event)
    ids = [each.headers["webhook-id"] for each in receiver.requests]
    assert ids == [str(saga.event)] * 2


def test_a_deleted_subscription_leaves_only_what_happened(app, deliver, receiver):
    made, _ = app.webhooks.create("orders", URL, waits=[], headers={"x-key": "hush"})
    receiver.answers(500)
    app.events.publish("orders", 1)
    deliver()
    app.events.publish("orders", 2)
    app.webhooks.pause(made.id)
    deliver()
    app.webhooks.delete(made.id)

    assert deliver() == 0
    assert {saga.status for saga in app.webhooks.sagas.list()} == {"DeadLettered", "Cancelled"}
    [letter] = app.webhooks.dead_letters.list()
    with pytest.raises(Conflict, match="deleted"):
        app.webhooks.dead_letters.requeue(letter.id)
    assert app.webhooks.find(made.id).deleted_at is not None
    for verb in ("get", "update", "pause", "resume", "enable", "rotate", "ping", "delete"):
        given = {"timeout": 5} if verb == "update" else {}
        with pytest.raises(NotFound, match=f"no subscription {made.id}"):
            getattr(app.webhooks, verb)(made.id, **given)
    assert app.webhooks.find(99) is None


def test_lists_go_on_from_where_a_page_ended(app, deliver):
    for owner in ("ada", "bob", "ada"):
        app.webhooks.create("orders", URL, owner=owner)
    app.webhooks.create("chat", URL)
    first = app.webhooks.list(limit=3)
    assert [each.owner for each in first] == ["ada", "bob", "ada"]
    assert [each.channel for each in app.webhooks.list(after=first[-1].id)] == ["chat"]
    assert len(app.webhooks.list(owner="ada", channel="orders")) == 2
    app.events.publish("orders", 1)
    deliver()
    newest, second = app.webhooks.sagas.list(limit=2)
    assert newest.id > second.id
    assert [each.id for each in app.webhooks.sagas.list(before=second.id)] == [second.id - 1]


def test_sagas_are_found_by_the_type_of_their_event(app, deliver):
    made, _ = app.webhooks.create("orders", URL)
    app.events.publish("orders", 1, type="order.paid")
    app.events.publish("orders", 2, type="order.sent")
    deliver()

    [found] = app.webhooks.sagas.list(type="order.paid", subscription=made.id)
    assert found.type == "order.paid"
    assert app.webhooks.sagas.list(type="order") == []


BAD_URLS = [
    "https://user:pass@example.com/", "https://example.com/#x", "https://example.com\\@evil.com/",
    "https://example.com/\r\nx: y", "https://example.com/\0", "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/", "https://0177.0.0.1/", "ftp://example.com/", "file:///etc/passwd",
    "http://example.com/", "https://", "https://exa mple.com/", "https://example.com:0/", "",
    None, 7,
    "https://example.com/" + "x" * 2_050, "https://[::1%25lo]/", "javascript:alert(1)",
]  # fmt: skip
BLOCKED_URLS = [
    "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/", "https://169.254.169.254/",
    "https://[::ffff:127.0.0.1]/", "https://192.168.1.1:8080/x", "https://[fe80::1]/",
]  # fmt: skip
BAD_HEADERS = [
    {"webhook-id": "1"}, {"Towpath-Subscription": "1"}, {"Host": "x"}, {"content-length": "0"},
    {"x": "a\r\nb: c"}, {"x": "a\0"}, {"x\r\ny": "1"}, {"": "1"}, {"x": 7}, {7: "x"},
    {"x": "a", "X": "b"}, {"x": "é"}, {f"x-{n}": "" for n in range(21)}, {"x": "a" * 9_000},
]  # fmt: skip
BAD_OPTIONS = [
    ({"types": []}, "at least one type"),
    ({"types": "order"}, "must be a list"),
    ({"types": ["a b"]}, "not a valid type"),
    ({"types": [7]}, "not a valid type"),
    ({"types": ["a"] * 101}, "at most 100"),
    ({"filter_rule": ""}, "filter_rule is empty"),
    ({"filter_rule": 7}, "must be text"),
    ({"timeout": 0.5}, "between 1 second and 60"),
    ({"timeout": "61s"}, "between 1 second and 60"),
    ({"timeout": 10**20}, "timeout"),
    ({"timeout": "soon"}, "timeout"),
    ({"concurrency": 0}, "between 1 and 100"),
    ({"concurrency": 101}, "between 1 and 100"),
    ({"concurrency": 1.5}, "whole number"),
    ({"rate": "0/s"}, "not a rate"),
    ({"rate": "1/2d"}, "between 1 a day"),
    ({"rate": "1001/s"}, "between 1 a day"),
    ({"rate": 10}, "not a rate"),
    ({"burst": 0}, "between 1 and 1,000"),
    ({"burst": 1_001}, "between 1 and 1,000"),
    ({"waits": [0.5]}, "between 1 second and 7 days"),
    ({"waits": ["8d"]}, "between 1 second and 7 days"),
    ({"waits": [60] * 51}, "at most 50 waits"),
    ({"waits": "1m"}, "must be a list"),
    ({"ordered": "yes"}, "true or false"),
    ({"body": "thin"}, "known bodies"),
    ({"final_statuses": [204]}, "from 300 to 599"),
    ({"final_statuses": [True]}, "from 300 to 599"),
    ({"final_statuses": 400}, "must be a list"),
    ({"owner": ""}, "owner must be text"),
    ({"owner": "a\0"}, "owner must be text"),
    ({"description": "x" * 1_001}, "description must be text"),
    ({"headers": "x: y"}, "mapping"),
    ({"tipes": ["*"]}, "did you mean `types`|unknown option"),
]


@pytest.mark.one_database
def test_a_url_that_cannot_be_called_is_refused(app):
    for url in BAD_URLS:
        with pytest.raises(InvalidTarget) as error:
            app.webhooks.create("orders", url)
        assert "user:pass" not in str(error.value)
    for url in BLOCKED_URLS:
        with pytest.raises(BlockedTarget, match="webhook_allow"):
            app.webhooks.create("orders", url)
    made, _ = app.webhooks.create("orders", URL)
    for url in (*BAD_URLS, *BLOCKED_URLS):
        with pytest.raises(Invalid):
            app.webhooks.update(made.id, url=url)
    assert app.webhooks.list() == [made]


@pytest.mark.one_database
def test_settings_allow_networks_and_plain_http(make_app):
    app = make_app(webhook_key=KEY, webhook_allow="127.0.0.0/8, fd00::/8", webhook_http=True)

    for url in ("http://127.0.0.1:8080/x", "https://[fd00::1]/", "http://example.com/"):
        made, _ = app.webhooks.create("orders", url)
        assert made.url == url
    with pytest.raises(BlockedTarget):
        app.webhooks.create("orders", "http://10.0.0.1/")


@pytest.mark.one_database
def test_a_header_that_cannot_be_sent_is_refused(app):
    made, _ = app.webhooks.create("orders", URL)
    for headers in BAD_HEADERS:
        with pytest.raises(InvalidHeader) as error:
            app.webhooks.create("orders", URL, headers=headers)
        assert "b: c" not in str(error.value)
        with pytest.raises(InvalidHeader):
            app.webhooks.update(made.id, headers=headers)
    assert app.webhooks.list() == [made]


@pytest.mark.one_database
def test_an_option_that_makes_no_sense_is_refused(app):
    made, _ = app.webhooks.create("orders", URL)
    for options, message in BAD_OPTIONS:
        with pytest.raises(Invalid, match=message):
            app.webhooks.create("orders", URL, **options)
        with pytest.raises(Invalid, match=message):
            app.webhooks.update(made.id, **options)
    with pytest.raises(Invalid, match="nothing to change"):
        app.webhooks.update(made.id)
    with pytest.raises(InvalidChannel):
        app.webhooks.create("or ders", URL)
    assert app.webhooks.get(made.id) == made
    assert app.webhooks.list() == [made]


@pytest.mark.one_database
def test_a_filter_that_cannot_be_read_names_its_position(app):
    for rule in ("@event.type =", "@request.auth.id = 'x'", "@job.topic = 'x'", "(" * 51 + "true"):
        with pytest.raises(InvalidRule, match="filter_rule: position") as error:
            app.webhooks.create("orders", URL, filter_rule=rule)
        assert error.value.rule == "filter_rule"


@pytest.mark.one_database
def test_a_secret_that_is_none_is_refused_and_not_repeated(app):
    made, _ = app.webhooks.create("orders", URL)
    short = base64.b64encode(b"x" * 23).decode()
    for secret in ("whsec_", "whsec_not base64", f"whsec_{short}", "hush", "", 7, b"x"):
        for refuse in (
            lambda secret=secret: app.webhooks.create("orders", URL, secret=secret),
            lambda secret=secret: app.webhooks.rotate(made.id, secret=secret),
        ):
            with pytest.raises(InvalidSecret) as error:
                refuse()
            assert "hush" not in str(error.value)
            assert short not in str(error.value)
    for overlap in ("8d", -1, "soon"):
        with pytest.raises(Invalid, match="overlap"):
            app.webhooks.rotate(made.id, overlap=overlap)


@pytest.mark.one_database
def test_what_is_not_there_is_named(app):
    for number in (99, 2**62):
        with pytest.raises(NotFound, match=f"no subscription {number}"):
            app.webhooks.get(number)
        with pytest.raises(NotFound, match=f"no subscription {number}"):
            app.webhooks.health(number)
        for verb in ("get", "attempts", "resend", "cancel"):
            with pytest.raises(NotFound, match=f"no saga {number}"):
                getattr(app.webhooks.sagas, verb)(number)
        for verb in ("get", "requeue"):
            with pytest.raises(NotFound, match=f"no dead letter {number}"):
                getattr(app.webhooks.dead_letters, verb)(number)
    for wrong in ("1", 1.5, True, None, -1, 2**63):
        with pytest.raises(Invalid, match="is not the number of a"):
            app.webhooks.get(wrong)
        with pytest.raises(Invalid, match="is not the number of a"):
            app.webhooks.sagas.get(wrong)
        with pytest.raises(Invalid, match="is not the number of a"):
            app.webhooks.dead_letters.requeue(wrong)
    with pytest.raises(Invalid, match="known statuses"):
        app.webhooks.sagas.list(status="done")
    for wrong in (10**30, "\0", "\ud800", "x" * 201):
        with pytest.raises(Invalid, match="type must be text"):
            app.webhooks.sagas.list(type=wrong)
    with pytest.raises(Invalid, match="UUID"):
        app.webhooks.sagas.of_event("x")
    with pytest.raises(Invalid, match="actor"):
        app.webhooks.dead_letters.requeue(1, actor="\0")
    assert app.webhooks.sagas.of_event(uuid4()) == []


@pytest.mark.one_database
def test_a_key_tells_nothing_of_itself():
    assert KEY not in repr(SealingKeys(KEY))
