"""Random lives of jobs that speak, and readers of their streams: against a small model."""

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from towpath import App
from towpath.errors import CursorReset, LeaseLost, NotFound, WordsMissing

TRY = "a try"  # stands for the event that announces one

_topics = itertools.count(1)


def when(*states):
    return precondition(lambda self: self.state in states)


class Streams(RuleBasedStateMachine):
    """One job after another, as the database has it and as it should be."""

    def __init__(self, app):
        super().__init__()
        self.app = app
        self.topic = f"talk{next(_topics)}"

    @initialize()
    def begin(self):
        self.job = self.app.jobs.enqueue(self.topic, {}, max_retries=1_000)
        self.name = f"job:{self.job.id}"
        self.state, self.ended = "ready", None
        self.lease, self.lost = None, []  # the leases that have ended
        self.said, self.is_cancelled = 0, False
        self.words, self.speaker = [], None  # of the stream; the lease that spoke last
        self.base = None  # what the cursors of the stream begin with
        self.stale = []  # cursors of streams of before

    # ---------------------------------------------------------------- the life of the job

    @when("gone", "ended")
    @rule()
    def enqueue(self):
        self.begin()

    @when("ready")
    @rule()
    def reserve(self):
        [self.lease] = self.app.jobs.reserve(self.topic)
        self.state, self.said = "reserved", 0

    @when("reserved")
    @rule(verb=st.sampled_from(["complete", "release", "fail", "bury"]))
    def end(self, verb):
        more = {"fail": [ValueError("no"), 0]}.get(verb, [])
        getattr(self.app.jobs, verb)(self.lease, *more)
        self.lost.append(self.lease)
        self.state = "ready"
        if verb == "complete":
            self.state, self.ended = "ended", "completed"
        elif self.is_cancelled:
            self.state, self.ended = "revivable", "cancelled"
        elif verb == "bury":
            self.state, self.ended = "buried", "failed"
        self.is_cancelled = False

    @when("ready", "reserved")
    @rule()
    def cancel(self):
        self.app.jobs.cancel(self.job)
        if self.state == "ready":
            self.state, self.ended = "revivable", "cancelled"
        else:
            self.is_cancelled = True

    @when("buried", "revivable")
    @rule()
    def requeue(self):
        self.app.jobs.requeue(self.job)
        self.begins_again()

    @when("buried")
    @rule()
    def kick(self):
        assert self.app.jobs.kick(self.topic, 1) == 1
        self.begins_again()

    def begins_again(self):
        if self.words:
            self.stale.append(self.cursor(len(self.words)))
        self.state, self.ended = "ready", None
        self.words, self.speaker, self.base = [], None, None

    @when("ready", "reserved", "buried", "revivable")
    @rule()
    def delete(self):
        held = self.state == "reserved"
        self.app.jobs.delete(self.lease if held else self.job)
        if held:
            self.lost.append(self.lease)
        self.state, self.ended, self.is_cancelled = "gone", "deleted", False

    @rule()
    def upkeep(self):
        self.app.upkeep.run()

    # ---------------------------------------------------------------- what it says

    @when("reserved")
    @rule(again=st.integers(0, 2), more=st.integers(0, 3))
    def say(self, again, more):
        """Send words; some of them were sent before."""
        said = max(0, self.said - again)
        words = [[self.lease.epoch, n] for n in range(said, self.said + more)]
        if not words:
            return
        told = self.app.jobs.say(self.lease, said=said, events=words)
        assert (told.said, told.cancel_requested) == (self.said + more, self.is_cancelled)
        if more and self.speaker not in {None, self.lease.epoch}:
            self.words.append(TRY)
        self.words += words[self.said - said :]
        if more:
            self.speaker = self.lease.epoch
        self.said += more

    @when("reserved")
    @rule()
    def say_too_early(self):
        with pytest.raises(WordsMissing):
            self.app.jobs.say(self.lease, said=self.said + 1, events=["early"])

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def say_too_late(self, data):
        with pytest.raises(LeaseLost):
            self.app.jobs.say(data.draw(st.sampled_from(self.lost)), said=0, events=["late"])

    # ---------------------------------------------------------------- what is read

    def cursor(self, place):
        """Return the cursor behind so many words."""
        if self.base is None:
            self.base = self.app.events.read(self.name).head[:17]
        return f"{self.base}{place:016}"

    @precondition(lambda self: self.state != "gone")
    @rule(place=st.integers(0, 30), limit=st.integers(1, 9))
    def read(self, place, limit):
        place = min(place, len(self.words))
        after = self.cursor(place) if place else None
        page = self.app.events.read(self.name, after, limit=limit)
        found = [TRY if event.type else event.payload for event in page.events]
        assert found == self.words[place : place + limit]
        reaches_end = place + len(found) == len(self.words)
        assert page.ended == (self.ended if reaches_end else None)

    @when("gone")
    @rule()
    def read_gone(self):
        with pytest.raises(NotFound):
            self.app.events.read(self.name)
        cursor = f"{self.base or '0000000000000001_'}{1:016}"
        assert self.app.events.read(self.name, cursor).ended == "deleted"

    @precondition(lambda self: self.stale and self.state != "gone")
    @rule(data=st.data())
    def read_stale(self, data):
        with pytest.raises(CursorReset):
            self.app.events.read(self.name, data.draw(st.sampled_from(self.stale)))


def test_random_jobs_say_what_their_readers_read(durable_place):
    """EV-1, EV-4"""
    url, needed = durable_place
    with App(url, **needed) as app:
        app.migrate()
        run_state_machine_as_test(
            lambda: Streams(app),
            settings=settings(
                max_examples=40,
                stateful_step_count=25,
                suppress_health_check=list(HealthCheck),
            ),
        )
