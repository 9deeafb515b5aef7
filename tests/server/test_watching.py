"""The live stream of the dashboard: one count for all viewers, and none without."""

import json

import pytest

from tests.conftest import eventually
from tests.server.conftest import Web, refused, token_of
from tests.server.listening import Listener, sent_events
from towpath.server import live_counts, streaming, watching

PATH = "/api/live"


def frames(listener, kind=None):
    """What a viewer was told, of one kind or of all."""
    told = [json.loads(data) for _, _, data in sent_events(listener.text) if data]
    return [each[kind] for each in told if kind in each] if kind else told


def counts(listener):
    """The counts that a page has by now."""
    known = {}
    for frame in frames(listener, "counts"):
        known |= {topic["topic"]: topic for topic in frame["topics"]}
        for name in frame["gone"]:
            known.pop(name, None)
    return known


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Count more often than a server does."""
    monkeypatch.setattr(live_counts, "EVERY", 0.05)
    monkeypatch.setattr(live_counts, "EVERY_FOR_EACH", 0.0)
    monkeypatch.setattr(live_counts, "SHARE", 1.0)


@pytest.fixture
def watch(live_web):
    """Open the live stream of a server on real time."""
    root = token_of(live_web.app, "_superusers", "root@example.org")
    made = []

    def watch(token=root, read=True):
        made.append(Listener(live_web, token, PATH))
        if read:
            made[-1].read()
        return made[-1]

    yield watch
    for each in made:
        each.leave()
        each.ended()


def test_a_viewer_gets_all_counts_and_then_what_has_changed(watch, live_web):
    live_web.app.jobs.enqueue("mail")
    live_web.app.jobs.enqueue("post")
    viewer = watch()
    eventually(lambda: frames(viewer, "counts"))
    assert {name: each["ready"] for name, each in counts(viewer).items()} == {"mail": 1, "post": 1}

    live_web.app.jobs.enqueue("mail")

    eventually(lambda: counts(viewer)["mail"]["ready"] == 2)
    [_, *later] = frames(viewer, "counts")
    assert {topic["topic"] for frame in later for topic in frame["topics"]} == {"mail"}
    assert {"topics": ["mail"]} in frames(viewer, "changed")


def test_the_end_of_a_job_is_told(watch, live_web):
    live_web.app.jobs.enqueue("mail")
    [lease] = live_web.app.jobs.reserve("mail")
    viewer = watch()
    eventually(lambda: counts(viewer).get("mail", {}).get("reserved") == 1)

    live_web.app.jobs.complete(lease)

    eventually(lambda: counts(viewer)["mail"]["completed"] == 1)
    assert counts(viewer)["mail"]["reserved"] == 0


def test_a_server_counts_once_for_all_viewers_and_never_without(watch, live_web, monkeypatch):
    """L2"""
    counter = live_web.api.shared.counts
    live_web.app.jobs.enqueue("mail")
    assert counter.looks == 0

    monkeypatch.setattr(live_counts, "EVERY", 3_600.0)
    viewers = [watch() for _ in range(20)]
    eventually(lambda: all(counts(each) for each in viewers))
    assert counter.looks == 1

    counting = counter._task
    for each in viewers:
        each.leave()
        each.ended()
    eventually(counting.done)
    live_web.app.jobs.enqueue("mail")
    again = watch()
    eventually(lambda: counts(again).get("mail", {}).get("ready") == 2)
    assert counter.looks == 2


@pytest.mark.parametrize(
    ("took", "viewers", "rest"),
    [(0.0, 1, 1.0), (0.01, 12, 0.99), (2.0, 12, 38.0), (0.01, 50, 3.99), (0.01, 5_000, 9.99)],
)
def test_counting_takes_at_most_a_twentieth_of_the_time(monkeypatch, took, viewers, rest):
    """L2: a page asks for its rows after a change, so for many pages changes come more seldom."""
    monkeypatch.undo()

    assert live_counts.rest_after(took, viewers) == pytest.approx(rest)


def test_a_bulk_act_is_followed_from_its_beginning_to_its_end(watch, live_web):
    live_web.app.jobs.enqueue_many("mail", range(3))
    viewer = watch()
    eventually(lambda: frames(viewer, "counts"))

    bulk = live_web.app.bulk.begin("delete", up_to=10**6, delay=0, topic="mail")
    eventually(lambda: frames(viewer, "bulk"))
    late = watch()
    eventually(lambda: [each["id"] for each in frames(late, "bulk")] == [str(bulk.id)])
    live_web.app.upkeep.run()

    eventually(lambda: frames(viewer, "bulk")[-1]["state"] == "done")
    eventually(lambda: frames(late, "bulk")[-1]["done"] == 3)
    last = watch()
    eventually(lambda: frames(last, "counts"))
    assert frames(last, "bulk") == []


def test_a_viewer_that_does_not_read_gets_the_newest_counts_and_no_more(watch, live_web):
    live_web.app.jobs.enqueue("mail")
    slow, quick = watch(read=False), watch()
    eventually(lambda: slow.pieces and counts(quick))
    for number in range(2, 12):
        live_web.app.jobs.enqueue("mail")
        eventually(lambda number=number: counts(quick)["mail"]["ready"] == number)

    slow.read()

    eventually(lambda: counts(slow).get("mail", {}).get("ready") == 11)
    assert len(frames(slow, "counts")) <= 3


def test_a_superuser_that_is_deleted_is_told_so_and_gets_no_more(watch, live_web):
    account = live_web.app.accounts.create("_superusers", "ada@example.org", "correct horse")
    viewer = watch(live_web.app.accounts.token(account))
    eventually(lambda: frames(viewer, "counts"))

    live_web.app.accounts.delete("_superusers", account.id)
    live_web.app.jobs.enqueue("mail")

    assert viewer.ended()
    assert frames(viewer)[-1] == {"reset": {"reason": "invalid_token"}}
    assert counts(viewer) == {}


def test_it_beats_while_nothing_changes(watch, monkeypatch):
    monkeypatch.setattr(watching, "BEAT", 0.05)
    viewer = watch()

    eventually(lambda: len(frames(viewer, "beat")) > 2)
    eventually(lambda: frames(viewer, "beat")[-1]["countedAt"] is not None)


def test_a_server_that_stops_says_goodbye(watch, live_web):
    viewer = watch()
    eventually(lambda: frames(viewer, "counts"))

    live_web._loop.call_soon_threadsafe(live_web.api.close)

    assert viewer.ended()
    assert frames(viewer)[-1]["bye"]["code"] == "going_away"


def test_only_superusers_watch(web, ada):
    key = web.app.keys.create("ci", scopes=["manage", "subscribe"])[1]

    assert refused(web.get(PATH)) == (401, "login_required")
    assert refused(web.get(PATH, as_=ada)) == (403, "forbidden")
    assert refused(web.get(PATH, as_=key)) == (403, "forbidden")


def test_an_answer_that_lasts_long_ends_with_a_goodbye(make_app, loop, quick_passwords):
    web = Web(make_app(stream_lifetime=0.3), loop)
    viewer = Listener(web, token_of(web.app, "_superusers", "r@example.org"), PATH)
    viewer.read()

    assert viewer.ended()
    assert "bye" in frames(viewer)[-1]
    assert web.api.shared.counts._task is None
    assert streaming.BEAT > 1
    web.close()
