"""`towpath webhooks`, on a file and on a server: what people and programs are told."""

import json
import socket

import pytest

from tests.cli.test_commands import lines
from tests.webhooks.delivering import deliver
from towpath import App
from towpath.model.sealing import new_key
from towpath.model.signatures import new_secret
from towpath.webhooks.memory import MemoryReceiver

URL = "https://receiver.example/hook"


@pytest.fixture
def app(durable_place):
    """An app with the key that the program is told of."""
    url, needed = durable_place
    with App(url, webhook_key=new_key(), **needed) as app:
        app.migrate()
        yield app


@pytest.fixture
def hooks(app, towpath):
    """The program, told of the key by its environment."""
    towpath.environment["TOWPATH_WEBHOOK_KEY"] = app.settings.webhook_key
    return lambda verb, *words, **more: towpath("webhooks", verb, *words, **more)


@pytest.fixture
def told(hooks):
    return lambda *words, **more: json.loads(hooks(*words, "--json", **more).stdout)


@pytest.fixture
def receiver(app, loop):
    """A receiver to which all that is due goes at each call."""
    receiver = MemoryReceiver(URL)

    def publish(*answers):
        receiver.answers(*answers)
        app.events.publish("orders", {"token": "hunter2", "n": 1}, type="order.paid")
        deliver(app, loop, receiver)

    receiver.publish = publish
    return receiver


def test_a_subscription_is_made_shown_and_changed(app, hooks, told):
    said = hooks("create", "orders", URL, "--types", "order.*", "paid", "--owner", "ada").stdout
    [made] = app.webhooks.list()
    line, secret = said.splitlines()
    assert line == f"subscription {made.id} calls {URL} for events of orders"
    assert secret.startswith("whsec_")
    assert (made.types, made.owner) == (("order.*", "paid"), "ada")

    options = (
        "--url", "https://new.example/", "--timeout", "30s", "--rate", "10/s", "--burst", 2,
        "--waits", "5s", "1m", "--final", 422, "--body", "payload", "--ordered",
        "--filter", "@event.payload.n > 0", "--concurrency", 3, "--description", "a shop",
    )  # fmt: skip
    changed = told("update", made.id, *options)["subscription"]

    assert (changed["url"], changed["concurrency"]) == ("https://new.example/", 3)
    found = app.webhooks.get(made.id)
    assert (found.body, found.ordered, found.final_statuses) == ("payload", True, (422,))
    assert [wait.total_seconds() for wait in found.waits] == [5, 60]
    assert found.pace.total_seconds() == 0.1
    hooks("update", made.id, "--rate", "none", "--no-ordered", "--waits")
    found = app.webhooks.get(made.id)
    assert (found.pace, found.ordered, found.waits) == (None, False, [])
    shown = hooks("show", made.id).stdout
    assert shown.startswith("subscription")
    assert "https://new.example/" in shown
    assert "a shop" in shown
    assert told("show", made.id)["health"]["waiting"] == 0
    assert [line[:3] for line in lines(hooks("list"))][1] == [
        str(made.id), "orders", "https://new.example/",
    ]  # fmt: skip
    assert told("list", "--owner", "bob") == {"subscriptions": []}


def test_secrets_come_from_stdin_and_are_shown_once(app, hooks, told, receiver):
    given = new_secret()
    made = told(
        "create", "orders", URL, "--secret-stdin", "--header", "x-key", said=f"{given}\nhush-1\n"
    )
    assert made["secret"] == given
    id = made["subscription"]["id"]
    rotated = hooks("rotate", id, "--overlap", "1h").stdout.strip()
    receiver.publish()
    assert receiver.requests[0].headers["x-key"] == "hush-1"
    receiver.requests[0].verified(given)
    receiver.requests[0].verified(rotated)
    hooks("update", id, "--header", "x-key", said="hush-2\n")

    for words in (
        ("show", id),
        ("list",),
        ("pause", id),
        ("resume", id),
        ("sagas",),
        ("enable", id),
    ):
        for json_too in ((), ("--json",)):
            said = hooks(*words, *json_too)
            for secret in (given, rotated, "hush-1", "hush-2", app.settings.webhook_key):
                assert secret.removeprefix("whsec_") not in said.stdout + said.stderr


def test_a_failed_delivery_is_seen_and_requeued(app, hooks, told, receiver):
    id = told("create", "orders", URL, "--waits")["subscription"]["id"]
    receiver.publish(503)
    [saga] = told("sagas", "--subscription", id, "--status", "DeadLettered")["sagas"]
    assert (saga["last_error"], saga["attempts"]) == ("http_503", 1)
    assert lines(hooks("attempts", saga["id"]))[1][:4] == ["1", "Failed", "503", "http_503"]
    [letter] = told("dead-letters")["dead_letters"]
    assert letter["payload"] == {"token": "hunter2", "n": 1}
    shown = hooks("dead-letters", letter["id"]).stdout
    assert "http_503" in shown
    assert "hunter2" not in shown

    said = hooks("requeue", letter["id"], 99, code=1)

    assert f"dead letter {letter['id']}: saga " in said.stdout
    assert "there is no dead letter 99" in said.stdout
    assert "there is no dead letter 99" in said.stderr
    receiver.publish()
    assert len(receiver.requests) == 3
    done = told("sagas", "--status", "Completed", "--limit", 1)["sagas"][0]
    assert "pass `confirm`" in hooks("resend", done["id"], code=1).stderr
    again = told("resend", done["id"], "--confirm")["saga"]
    assert "is Cancelled" in hooks("cancel", again["id"]).stdout
    assert "forgotten" in hooks("forget", letter["id"]).stdout
    assert "no dead letter" in hooks("forget", letter["id"], code=1).stderr


def test_deliveries_are_made_again_by_a_job(app, hooks, told, receiver):
    id = told("create", "orders", URL, "--waits")["subscription"]["id"]
    receiver.publish(204)
    receiver.publish(500)

    assert told("replay", id, "--preview") == {"subscription": id, "count": 1, "job": None}
    asked = ("--status", "Completed", "--types", "order.*", "--rate", "100/s")
    assert "1 delivery of" in hooks("replay", id, *asked, "--preview").stdout
    times = ("--since", "2100-01-01T00:00:00Z", "--until", "2200-01-01")
    assert told("replay", id, *asked, *times, "--preview")["count"] == 0
    job = told("replay", id, *asked)["job"]
    assert app.jobs.get(job).topic == "webhooks-replay"
    assert "is not a time" in hooks("replay", id, "--since", "soon", code=2).stderr
    assert "between 1 a day" in hooks("replay", id, "--rate", "5000/s", code=1).stderr


def test_a_subscription_is_paused_pinged_and_deleted(app, hooks, told, receiver, loop):
    id = told("create", "orders", URL)["subscription"]["id"]
    assert told("pause", id) == {"subscription": id, "under_way": 0}
    assert "resume it first" in hooks("ping", id, code=1).stderr
    assert "resumed" in hooks("resume", id).stdout
    assert "paused" not in hooks("list").stdout
    assert told("ping", id)["saga"]["type"] == "ping"
    deliver(app, loop, receiver)
    assert len(receiver.requests) == 1
    assert "deleted" in hooks("delete", id).stdout
    assert "there is no subscription" in hooks("show", id, code=1).stderr


def test_mistakes_are_one_line(app, hooks, towpath):
    for words, message in (
        (("create", "orders", "https://user:hush@example.com/"), "without user"),
        (("create", "orders", "https://127.0.0.1/"), "not a public address"),
        (("create", "orders", URL, "--filter", "@event.x ="), "filter_rule: position"),
        (("create", "orders", URL, "--timeout", "2m"), "between 1 second and 60"),
        (("create", "orders", URL, "--rate", "5000/s"), "between 1 a day"),
        (("create", "orders", URL, "--header", "host"), "cannot be set"),
        (("create", "orders", URL, "--secret-stdin"), "a webhook's secret is"),
        (("create", "or ders", URL), "not a valid channel"),
        (("update", 99, "--timeout", 5), "there is no subscription 99"),
        (("attempts", 99), "there is no saga 99"),
        (("dead-letters", 99), "there is no dead letter 99"),
    ):
        said = hooks(*words, code=1, said="hush\n")
        assert message in said.stderr
        assert len(said.stderr.splitlines()) == 1
        assert "hush" not in said.stdout + said.stderr
    assert "give an option to change" in hooks("update", 1, code=2).stderr
    towpath.environment["TOWPATH_WEBHOOK_KEY"] = ""
    assert "towpath webhooks key" in hooks("create", "orders", URL, code=1).stderr
    assert app.webhooks.list() == []


def test_a_key_is_made(hooks, told):
    assert len(hooks("key").stdout.strip()) == 44
    assert told("key")["key"] != told("key")["key"]


@pytest.mark.parametrize("words", [("webhooks", "run"), ("serve", "--port", 0)])
def test_what_delivers_logs_lines_of_json_with_the_five_fields(app, hooks, towpath, words):
    """WH-12: as a process of its own, whose handlers are not those of these tests."""
    towpath.environment |= {
        "TOWPATH_WEBHOOK_ALLOW": "127.0.0.0/8",
        "TOWPATH_WEBHOOK_HTTP": "true",
    }
    with socket.socket() as unheard:  # nothing listens here
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}/"
        hooks("create", "orders", url, "--waits")
        app.events.publish("orders", 1)
        process = towpath.start(*words, "--log-format", "json")
        with process:
            lines = map(json.loads, process.stderr)
            said = []
            while "failed for good" not in (said[-1]["message"] if said else ""):
                said.append(next(lines))
            process.kill()

    assert any("may call these networks" in each["message"] for each in said)
    assert said[-1]["error_code"] == "connect_failed"
    assert said[-1].keys() >= {"saga_id", "job_id", "lease_expiration", "worker_id"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TOWPATH_WEBHOOK_KEY", "TOWPATH_WEBHOOK_KEY is not the base64 of 32 bytes"),
        ("TOWPATH_WEBHOOK_ALLOW", "'wrong'"),
    ],
)
def test_settings_that_cannot_be_read_are_told_in_one_line(towpath, name, message):
    """Before anything runs: neither a traceback nor a server without deliveries."""
    towpath.environment[name] = "wrong"
    for words in (
        ("serve", "--port", 0),
        ("webhooks", "run"),
        ("webhooks", "run", "--only=worker"),
    ):
        said = towpath(*words, code=1)
        assert message in said.stderr
        assert len(said.stderr.splitlines()) == 1
