"""Tubes and topics name each other, both ways."""

import re

from hypothesis import given
from hypothesis import strategies as st

from towpath.server.beanstalkd.tubes import topic_of, tube_of

TUBES = st.from_regex(r"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199}", fullmatch=True)
TOPICS = st.from_regex(r"[A-Za-z0-9_-]{1,200}", fullmatch=True)


@given(TUBES)
def test_a_tube_is_found_again_by_its_topic(tube):
    topic = topic_of(tube)

    if topic is None:
        assert len(tube) > 98  # only a long name can become too long
    else:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,200}", topic)
        assert tube_of(topic) == tube


@given(TOPICS | TUBES.map(topic_of).filter(bool))
def test_a_topic_is_found_again_by_its_tube(topic):
    tube = tube_of(topic)

    assert tube is None or topic_of(tube) == topic


def test_a_topics_own_name_is_its_tube():
    assert topic_of("default") == "default"
    assert topic_of("a_b-c") == "a_b-c"
    assert topic_of("x--a") == "x--x----a"
    assert topic_of("a.b/c+d;e$f(g)-") == "x--a-db-sc-pd-ce-mf-lg-r--"


def test_what_no_tube_can_name():
    assert tube_of("-a") is None
    assert tube_of("x--plain") is None
    assert tube_of("x--") is None
    assert topic_of("." * 99) is None


def test_a_tube_that_does_not_exist_is_not_remembered(client, served):
    client.put()
    before = len(served.door._tubes)

    client.ask("stats-tube nowhere", "NOT_FOUND")
    client.ask("pause-tube nowhere 1", "NOT_FOUND")

    assert len(served.door._tubes) == before


def test_a_tube_that_has_vanished_begins_anew(served):
    client = served.client()
    client.ask("use mail", "USING mail")
    number = client.put()
    client.ask("use other", "USING other")
    client.ask("use mail", "USING mail")
    assert client.told("stats-tube mail")["total-jobs"] == "1"  # it was not empty

    client.ask(f"delete {number}", "DELETED")
    client.ask("use other", "USING other")
    client.ask("watch mail", "WATCHING 2")

    told = client.told("stats-tube mail")
    assert (told["total-jobs"], told["cmd-delete"]) == ("0", "0")
    assert (told["current-using"], told["current-watching"]) == ("0", "1")


def test_the_topic_of_replays_has_no_tube(served):
    """It belongs to Towpath: its jobs can be neither put nor seen here."""
    client, jobs = served.client(), served.app.jobs
    job = jobs.enqueue("webhooks-replay", {"subscription": 1})

    client.ask("use webhooks-replay", "BAD_FORMAT")
    client.ask("watch webhooks-replay", "BAD_FORMAT")
    for verb in ("reserve-job", "peek", "delete", "kick-job", "stats-job"):
        client.ask(f"{verb} {job.seq}", "NOT_FOUND")
    assert client.text("list-tubes") == ["---", "- default"]
    assert jobs.get(job.id).status == "pending"
