"""`towpath events` and `towpath restored`, on a file and on a server."""

import signal

import pytest

from tests.cli.test_commands import lines
from towpath.errors import CursorReset


def test_an_event_is_published_and_read(app, towpath):
    told = towpath("events", "publish", "chat", '{"n": 1}', "--type", "said", "--key", "a").stdout
    [event] = app.events.read("chat").events
    assert told == f"event {event.id} is at {event.cursor} of chat\n"
    assert (event.payload, event.type, event.key) == ({"n": 1}, "said", "a")
    towpath("events", "publish", "chat", "-", said="[2]")

    found = towpath.json("events", "read", "chat")

    assert [each["payload"] for each in found["events"]] == [{"n": 1}, [2]]
    assert found["cursor"] == found["head"] == app.events.position("chat")
    rest = towpath.json("events", "read", "chat", "--after", event.cursor, "--limit", 1)
    assert [each["payload"] for each in rest["events"]] == [[2]]
    assert '{"n": 1}' in towpath("events", "read", "chat").stdout
    assert "is not JSON" in towpath("events", "publish", "chat", "{", code=1).stderr


def test_a_published_event_is_answered_as_json(towpath):
    event = towpath.json("events", "publish", "chat", "1")

    assert (event["channel"], event["payload"], event["type"]) == ("chat", 1, None)


def test_passwords_in_events_are_not_shown_to_people(app, towpath):
    app.events.publish("chat", {"password": "hunter2"})

    assert "hunter2" not in towpath("events", "read", "chat").stdout
    assert "hunter2" not in towpath("events", "tail", "chat", "--timeout", "0.01").stdout


def test_stored_text_does_not_control_the_terminal(app, towpath):
    app.events.publish("chat", "\x1b[31mred")

    shown = towpath("events", "read", "chat").stdout
    assert "\x1b" not in shown + towpath("events", "tail", "chat", "--timeout", "0.01").stdout


def test_tail_shows_what_happens_to_jobs(app, towpath):
    """MS-10"""
    app.jobs.enqueue("mail", {"to": "a@b.c"})
    app.jobs.bury(app.jobs.reserve("mail")[0], error="no such address")

    shown = towpath("events", "tail", "system", "--types", "job.*", "--timeout", "0.01").stdout

    assert "job.failed" in shown
    assert "no such address" in shown
    assert "a@b.c" not in shown


def test_channels_are_listed_by_name(app, towpath):
    for name in ("order:1", "chat", "order:2"):
        app.events.publish(name, 1)
    app.events.close("order:2")

    assert [line[:3] for line in lines(towpath("events", "list"))] == [
        ["channel", "events", "bytes"],
        ["chat", "1", "1"],
        ["order:1", "1", "1"],
        ["order:2", "1", "1"],
    ]
    assert "closed" in towpath("events", "list", "order:2").stdout
    found = towpath.json("events", "list", "order", "--after", "order:1", "--limit", 1)
    assert [each["name"] for each in found["channels"]] == ["order:2"]


def test_tail_shows_the_last_events_until_the_channel_ends(app, towpath):
    cursors = [app.events.publish("chat", n, type=f"t.{n % 2}").cursor for n in range(12)]
    app.events.close("chat")

    def tailed(*options):
        shown = towpath("events", "tail", "chat", *options).stdout
        return [int(line.split()[-1]) for line in shown.splitlines()]

    assert tailed() == list(range(2, 12))
    assert tailed("--last", 2) == [10, 11]
    assert tailed("--after", "start") == list(range(12))
    assert tailed("--after", cursors[8]) == [9, 10, 11]
    assert tailed("--after", "start", "--types", "t.1") == [1, 3, 5, 7, 9, 11]


def test_tail_follows_and_ends_quietly_at_ctrl_c(app, towpath):
    app.events.publish("chat", "first")
    tailing = towpath.start("events", "tail", "chat", "--json")
    try:
        assert '"payload":"first"' in tailing.stdout.readline()
        app.events.publish("chat", "second")
        assert '"payload":"second"' in tailing.stdout.readline()
        tailing.send_signal(signal.SIGINT)
        rest, complaints = tailing.communicate(timeout=60)
    finally:
        tailing.kill()
        tailing.wait()

    assert (tailing.returncode, rest, complaints) == (0, "", "")


def test_consumers_are_listed_moved_and_forgotten(app, towpath):
    cursor = app.events.publish("chat", 1).cursor
    app.events.attach("chat", "mailer")

    [_, [name, lag, *_]] = lines(towpath("events", "consumers", "chat"))
    assert (name, lag) == ("mailer", "1")
    [found] = towpath.json("events", "consumers", "chat")["consumers"]
    assert (found["lag"], found["generation"], found["is_expired"]) == (1, 1, False)
    moved = towpath("events", "move", "chat", "mailer", "now").stdout
    assert moved == f"consumer mailer of chat goes on behind {cursor}\n"
    assert app.events.consumers("chat")[0].lag == 0
    assert "is forgotten" in towpath("events", "forget", "chat", "mailer").stdout
    assert "there is no consumer" in towpath("events", "forget", "chat", "mailer").stdout
    assert app.events.consumers("chat") == []


def test_after_a_restored_backup_cursors_of_before_are_reset(app, towpath):
    cursor = app.events.publish("chat", 1).cursor
    assert "confirm with --yes" in towpath("restored", code=2).stderr
    assert app.events.read("chat", cursor).events == []

    assert towpath("restored", "--yes").stdout == "era 1 has begun; cursors of before are reset\n"

    with pytest.raises(CursorReset) as reset:
        app.events.read("chat", cursor)
    assert reset.value.reason == "era"
    assert towpath.json("restored", "--yes") == {"era": 2}


def test_nothing_is_made_by_a_look(app, towpath):
    assert towpath.json("events", "read", "chat")["events"] == []
    assert towpath.json("events", "consumers", "chat")["consumers"] == []
    assert towpath.json("events", "list")["channels"] == app.events.list() == []
