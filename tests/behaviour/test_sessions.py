"""Sessions and upkeep: crashes are noticed, outages forgiven, old things forgotten."""

import asyncio
import contextlib
import logging
import os
import socket
import sqlite3
import threading
from datetime import timedelta
from importlib.metadata import version

import pytest

from tests.conftest import eventually
from towpath import App, State
from towpath.errors import DatabaseBusy, LeaseLost, NotFound
from towpath.store.sessions import adopt_orphans
from towpath.worker import Worker


def silence(app, clock, seconds):
    """Let time pass while upkeep looks every second."""
    for _ in range(seconds):
        clock.advance(1)
        app.upkeep.run()


def test_the_leases_of_a_silent_session_are_taken_back(app, clock):
    """US5-2: DESIGN promise 3: dead after 30 s, whatever the ttr."""
    app.jobs.enqueue("mail", {})
    session = app.sessions.start("w1")
    [lease] = app.jobs.reserve("mail", session=session)
    assert lease.until is None
    app.sessions.beat(session, started=[lease])
    app.upkeep.run()

    silence(app, clock, 29)
    assert app.jobs.get(lease.job).state is State.RESERVED
    silence(app, clock, 1)

    found = app.jobs.get(lease.job)
    assert (found.state, found.crashes, found.retries, found.timeouts) == (State.READY, 1, 0, 0)
    assert found.last_error == "the worker died while it ran this job"
    with pytest.raises(LeaseLost):
        app.jobs.complete(lease)
    with pytest.raises(LeaseLost):
        app.sessions.beat(session)


def remote(app):
    """Name, topics and leases of each worker that has no session."""
    return [(each.worker, each.topics, each.leases) for each in app.sessions.remote()]


def test_a_worker_without_a_session_is_known_by_its_requests_and_its_leases(app, clock):
    started = clock.now
    app.sessions.hear("gold", ["mail", "post"])
    assert remote(app) == [("gold", ("mail", "post"), 0)]
    clock.advance(60)
    app.jobs.enqueue_many("mail", [1, 2, 3])
    leases = app.jobs.reserve("mail", limit=2, worker="gold")
    app.jobs.reserve("mail", worker="silver")
    clock.advance(5)
    assert remote(app) == [("gold", ("mail", "post"), 2), ("silver", (), 1)]
    [gold, _] = app.sessions.remote()
    assert (gold.started_at, gold.silent.total_seconds()) == (started, 5)
    app.jobs.touch(leases[0])
    [gold, _] = app.sessions.remote()
    assert (gold.beat_at, gold.silent.total_seconds()) == (clock.now, 0)
    for lease in leases:
        app.jobs.complete(lease)
    app.sessions.hear("gold", ["post"])
    assert remote(app) == [("gold", ("post",), 0), ("silver", (), 1)]


def test_a_run_of_a_job_that_chooses_its_workers_is_a_lease_of_its_worker(app):
    app.jobs.enqueue("mail", {}, workers=2)
    session = app.sessions.start("bronze")
    app.jobs.reserve("mail", worker="gold")
    app.jobs.reserve("mail", worker="bronze", session=session)
    assert remote(app) == [("gold", (), 1)]


def test_a_lease_of_several_topics_names_its_worker_too(app):
    app.jobs.enqueue("mail", {})
    app.jobs.reserve(["mail", "post"], worker="gold")
    assert remote(app) == [("gold", (), 1)]


def test_a_worker_with_a_session_is_listed_once(app):
    """Also while it runs what it shows to live by pings, which no session holds."""
    app.jobs.enqueue("mail", {})
    app.jobs.enqueue("mail", {}, worker_timeout=60, ping_interval=5)
    session = app.sessions.start("w1")
    assert len(app.jobs.reserve("mail", worker="w1", session=session)) == 1
    assert len(app.jobs.reserve("mail", worker="w1", session=session)) == 1
    assert [each.worker for each in app.sessions.list()] == ["w1"]
    assert remote(app) == []


def test_a_worker_without_a_session_is_forgotten_after_an_hour_of_silence(app, clock):
    app.jobs.enqueue("mail", {}, ttr="3h")
    app.sessions.hear("gold", ["mail"])
    app.sessions.hear("silver", ["mail"])
    app.jobs.reserve("mail", worker="gold")
    clock.advance("59m")
    app.upkeep.run()
    assert remote(app) == [("gold", ("mail",), 1), ("silver", ("mail",), 0)]
    clock.advance("1m")
    app.upkeep.run()
    assert remote(app) == [("gold", (), 1)]


@contextlib.contextmanager
def locked(path):
    """Keep everybody else from writing; they still read."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        yield


def test_silence_says_nothing_while_nobody_can_write(tmp_path, clock):
    """As on a full disk: reading goes on, beats fail. With room again, the session beats again."""
    app = App(f"sqlite:///{tmp_path}/towpath.db", clock=clock, busy_timeout=0.001)
    app.jobs.enqueue("mail", {})
    session = app.sessions.start("w1")
    [lease] = app.jobs.reserve("mail", session=session)
    app.upkeep.run()

    with locked(tmp_path / "towpath.db"):
        silence(app, clock, 100)
        with pytest.raises(DatabaseBusy):
            app.sessions.beat(session)
    silence(app, clock, 14)
    app.sessions.beat(session)
    app.upkeep.run()
    silence(app, clock, 29)

    assert app.jobs.get(lease.job).state is State.RESERVED
    silence(app, clock, 1)
    assert app.jobs.get(lease.job).state is State.READY
    app.close()


def test_silence_counts_anew_where_writing_failed_again(tmp_path, clock):
    app = App(f"sqlite:///{tmp_path}/towpath.db", clock=clock, busy_timeout=0.001)
    app.jobs.enqueue("mail", {})
    [lease] = app.jobs.reserve("mail", session=app.sessions.start("w1"))
    app.upkeep.run()

    for seconds in (15, 300):
        with locked(tmp_path / "towpath.db"):
            silence(app, clock, seconds)
        silence(app, clock, 1)

    assert app.jobs.get(lease.job).state is State.RESERVED
    silence(app, clock, 15)
    assert app.jobs.get(lease.job).state is State.READY
    app.close()


def test_a_session_that_beats_keeps_its_leases_for_ever(app, clock):
    app.jobs.enqueue("mail", {}, ttr=1)
    session = app.sessions.start()
    [lease] = app.jobs.reserve("mail", session=session)
    for _ in range(10):
        silence(app, clock, 20)
        app.sessions.beat(session)

    app.jobs.complete(lease)


def test_a_job_that_had_not_started_is_not_blamed_for_a_crash(app, clock):
    """A poison job's prefetched neighbours are not punished."""
    app.jobs.enqueue_many("mail", ["poison", "neighbour"])
    session = app.sessions.start()
    poison, neighbour = app.jobs.reserve("mail", limit=2, session=session)
    app.sessions.beat(session, started=[poison])
    app.upkeep.run()

    silence(app, clock, 30)

    assert app.jobs.get(poison.job).crashes == 1
    assert app.jobs.get(neighbour.job).crashes == 0


def test_a_job_that_kills_its_workers_ends_dead(app, clock):
    """MS-5"""
    app.jobs.enqueue("mail", {}, max_crashes=3)
    for crash in range(3):
        session = app.sessions.start()
        [lease] = app.jobs.reserve("mail", session=session)
        app.sessions.beat(session, started=[lease])
        app.upkeep.run()
        silence(app, clock, 30)
        assert app.jobs.get(lease.job).crashes == crash + 1

    assert app.jobs.get(lease.job).state is State.BURIED
    assert [failure.kind for failure in app.jobs.failures(lease.job)] == ["crash"] * 3


def test_an_outage_does_not_rescue_the_whole_fleet(app, clock):
    """No session is called dead before the observer itself saw it silent through dead_after."""
    app.jobs.enqueue("mail", {})
    session = app.sessions.start()
    [lease] = app.jobs.reserve("mail", session=session)
    app.upkeep.run()

    clock.advance("10m")  # no process could look, and none could beat
    app.upkeep.run()
    silence(app, clock, 5)
    app.sessions.beat(session)
    silence(app, clock, 29)

    assert app.jobs.get(lease.job).state is State.RESERVED


def test_a_session_that_ends_gives_its_jobs_back_uncounted(app):
    app.jobs.enqueue_many("mail", range(3))
    session = app.sessions.start()
    leases = app.jobs.reserve("mail", limit=3, session=session)
    app.sessions.beat(session, started=leases)

    app.sessions.end(session)

    assert len(app.jobs.reserve("mail", limit=3)) == 3
    assert {app.jobs.get(lease.job).crashes for lease in leases} == {0}


def test_a_lease_taken_while_its_session_died_is_not_lost(app):
    app.jobs.enqueue("mail", {})
    session = app.sessions.start()
    app.sessions.end(session)
    [lease] = app.jobs.reserve("mail", session=session)

    app.upkeep.run()

    assert app.jobs.get(lease.job).state is State.READY


def test_leases_whose_session_is_gone_are_taken_back_in_portions(app):
    app.jobs.enqueue_many("mail", range(5))
    session = app.sessions.start()
    app.sessions.end(session)
    app.jobs.reserve("mail", limit=5, session=session)

    ready, upto = [], 0
    for _ in range(3):
        upto = app.run(adopt_orphans(upto, limit=2)).upto
        ready.append(app.jobs.stats().ready)

    assert (ready, upto) == ([2, 4, 5], 0)


def test_a_beat_tells_which_jobs_are_to_stop(app):
    app.jobs.enqueue_many("mail", range(2))
    session = app.sessions.start()
    one, _ = app.jobs.reserve("mail", limit=2, session=session)

    app.jobs.cancel(one.job)

    assert app.sessions.beat(session).cancelled == [(one.job.seq, one.epoch)]


def test_a_worker_that_is_asked_to_stop_learns_it_with_its_next_beat(app):
    session = app.sessions.start("web-1")
    assert not app.sessions.beat(session).stopping

    app.sessions.stop(session)
    [found] = app.sessions.list()
    assert found.stopping

    assert app.sessions.beat(session).stopping
    app.sessions.end(session)
    with pytest.raises(NotFound, match="its worker may have ended"):
        app.sessions.stop(session)


def test_a_session_tells_where_its_worker_runs_and_what_it_holds(app):
    jobs = app.jobs.enqueue_many("mail", range(4))
    session = app.sessions.start("web-1", ["mail"], concurrency=7)
    app.jobs.reserve("mail", limit=3, session=session)

    [found] = app.sessions.list()
    place = found.place

    assert (place.host, place.pid, place.concurrency) == (socket.gethostname(), os.getpid(), 7)
    assert place.version == version("towpath")
    held = app.sessions.jobs(most=2)
    assert [brief.id for brief in held[session]] == [job.id for job in jobs[:2]]


def test_leases_without_a_session_and_a_name_are_counted_by_topic(app, clock):
    app.jobs.enqueue_many("mail", range(3), ttr=60)
    app.jobs.reserve("mail", limit=2)
    app.jobs.reserve("mail", worker="node-7")

    [unnamed] = app.sessions.unnamed()

    assert (unnamed.topic, unnamed.leases) == ("mail", 2)
    assert unnamed.oldest_until == clock.now + timedelta(seconds=60)


def test_a_worker_that_is_asked_to_stop_ends_its_jobs_and_takes_no_more(make_app):
    """P3 of the dashboard: gently, by its heartbeat."""
    app = make_app(beat_every=0.1)
    begun, goes_on = threading.Event(), threading.Event()

    @app.task()
    def slow() -> None:
        begun.set()
        goes_on.wait(60)

    running = slow.enqueue()
    worker = Worker(app, topics=["slow"], concurrency=1, grace=60)
    thread = threading.Thread(target=lambda: asyncio.run(worker.arun()))
    thread.start()
    assert begun.wait(60)
    waiting = slow.enqueue()
    [session] = app.sessions.list()
    app.sessions.stop(session.session)
    eventually(worker._stopping.is_set)
    goes_on.set()
    thread.join(60)

    assert not thread.is_alive()
    assert app.jobs.get(running.id).state is State.COMPLETED
    assert app.jobs.get(waiting.id).state is State.READY
    assert app.sessions.list() == []


def test_finished_jobs_are_forgotten_after_their_retention(app, clock):
    """MS-11"""
    job = app.jobs.enqueue("mail", {})
    brief = app.jobs.enqueue("mail", {}, retention="1m")
    for lease in app.jobs.reserve("mail", limit=2):
        app.jobs.complete(lease)
    app.jobs.enqueue("mail", "buried")
    [lease] = app.jobs.reserve("mail")
    app.jobs.bury(lease)

    clock.advance("1m")
    app.upkeep.run()
    assert [j.id for j in app.jobs.list(status="completed")] == [job.id]
    assert brief.id not in [j.id for j in app.jobs.list()]
    clock.advance("3d")
    app.upkeep.run()
    assert [j.payload for j in app.jobs.list()] == ["buried"]


def test_upkeep_promotes_and_rescues_in_every_topic(app, clock):
    for number in range(5):
        app.jobs.enqueue(f"t{number}", {}, delay=10)
        app.jobs.enqueue(f"t{number}", {}, ttr=10)
        app.jobs.reserve(f"t{number}")
    clock.advance(10)

    app.upkeep.run()

    assert (app.jobs.stats().ready, app.jobs.stats().delayed, app.jobs.stats().reserved) == (
        10,
        0,
        0,
    )


def test_upkeep_runs_by_itself_when_started(live):
    job = live.jobs.enqueue("mail", {}, delay=0.05)
    live.upkeep.start()

    eventually(lambda: live.jobs.get(job).state is State.READY)
    live.upkeep.stop()


def test_upkeep_notices_a_dead_session_by_itself_even_if_that_must_be_quick(make_app):
    app = make_app(dead_after=0.5)
    app.jobs.enqueue("mail", {})
    session = app.sessions.start()
    [lease] = app.jobs.reserve("mail", session=session)

    app.upkeep.start()

    eventually(lambda: app.jobs.get(lease.job).state is State.READY)


def test_it_is_logged_whose_jobs_were_taken_back(app, clock, caplog):
    caplog.set_level(logging.INFO, "towpath")
    app.jobs.enqueue_many("mail", range(3))
    app.jobs.reserve("mail", limit=2, session=app.sessions.start("vm:1"))
    app.sessions.start("without jobs")
    app.upkeep.run()
    silence(app, clock, 30)

    assert caplog.messages == ["took back 2 jobs of worker vm:1, which was silent"]


def test_a_stale_failure_is_refused_after_the_session_died(app, clock):
    app.jobs.enqueue("mail", {})
    session = app.sessions.start()
    [lease] = app.jobs.reserve("mail", session=session)
    app.sessions.beat(session, started=[lease])
    app.upkeep.run()
    silence(app, clock, 30)

    with pytest.raises(LeaseLost):
        app.jobs.fail(lease, "too late")
