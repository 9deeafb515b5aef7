"""Answers that get lost: a repeated word holds once, and what cannot be repeated is not.

The proxy lets PostgreSQL do the work and closes the connection instead of handing on its answer.
A SQLite answer can only be lost together with its process: tests/faults/test_kill.py.
"""

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.faults.books import Books
from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from tests.faults.proxy import COMMIT, Proxy
from towpath.database.bells import PostgresBell
from towpath.errors import Conflict, DatabaseUnavailable, NotFound
from towpath.operation import Mode, Operation, Wakeup
from towpath.settings import Settings
from towpath.statement import Statement
from towpath.store.jobs import sql

clock = sql.clock
MAIL, POST = Wakeup("topic", "mail"), Wakeup("topic", "post")

# Words that only this statement has.
ENQUEUE = "made as ("
STANDING = "select i.nth, s.seq"
RESERVE = "leased as ("
COMPLETE = "'completed' as goal, c.name"
SETTLE = "left_behind as ("
DISCARD = "'gone' as goal, case"
TOUCH = "set until = case"


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def proxy(postgres, request):
    with Proxy(postgres.port, pooler=getattr(request, "param", False)) as proxy:
        yield proxy


@pytest.fixture
def place(proxy, postgres_schema):
    return proxy.url(), {"schema": postgres_schema}


@pytest.fixture
def books(postgres, postgres_schema):
    return Books(postgres.url(), postgres_schema)


@pytest.fixture
def app(live):
    live.topics.list()  # the tables are there
    return live


# ---------------------------------------------------------------- what may be said again


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"delay": 60}], ids=str)
def test_an_enqueue_whose_answer_is_lost_stores_one_job(app, proxy, books, options, lose):
    getattr(proxy, lose)(ENQUEUE)

    job = app.jobs.enqueue("mail", {"a": 1}, **options)

    assert proxy.happened.is_set()
    assert books.ids() == {job.id}
    assert app.jobs.get(job) == job
    books.check()


def test_many_jobs_whose_answer_is_lost_are_stored_once(make_app, colour, proxy, books):
    app = colour(make_app(batch_size=100))
    app.topics.list()
    proxy.lose_answer(COMMIT)

    jobs = app.jobs.enqueue_many("mail", range(250))

    assert proxy.happened.is_set()
    assert [job.payload for job in jobs] == list(range(250))
    assert books.ids() == {job.id for job in jobs}
    books.check()


@pytest.mark.parametrize("unique", ["update", "debounce"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_job_that_moves_on_while_the_answer_to_its_change_is_lost_has_no_second(
    make_app, threads, proxy, unique, ends
):
    app, other = make_app(), make_app()
    first = app.jobs.enqueue("mail", 1, key="k")
    options = {"key": "k", "unique": unique, "delay": 0}
    proxy.lose_answer(COMMIT)

    # Only a repeated enqueue asks this.
    enqueue = Gate(app, threads).before("rewritten_before", app.jobs.enqueue, "mail", 2, **options)
    with enqueue as enqueued:
        [lease] = other.jobs.reserve("mail")
        if ends:
            other.jobs.complete(lease)

    assert proxy.happened.is_set()
    assert lease.job.payload == 2
    assert enqueued.result().id == first.id
    assert [job.id for job in other.jobs.list()] == [first.id]


def test_an_enqueue_that_fills_the_topic_and_loses_its_answer_succeeds(
    make_app, colour, proxy, books
):
    """The limit is not broken by the same job again."""
    app = colour(make_app(max_jobs_per_topic=1, max_topics=1))
    app.topics.list()
    proxy.lose_answer(COMMIT)

    job = app.jobs.enqueue("mail")

    assert proxy.happened.is_set()
    assert books.ids() == {job.id}


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("topics", [["mail"], ["mail", "post"]], ids=" and ".join)
def test_a_reserve_whose_answer_is_lost_returns_the_same_leases(app, proxy, books, topics, lose):
    for number in range(10):
        app.jobs.enqueue(topics[number % len(topics)], number)
    getattr(proxy, lose)(RESERVE)

    leases = app.jobs.reserve(topics, limit=3)

    assert proxy.happened.is_set()
    assert [(lease.job.payload, lease.epoch) for lease in leases] == [(0, 1), (1, 1), (2, 1)]
    assert (books.count("lease"), books.count("ready")) == (3, 7)
    for lease in leases:
        app.jobs.complete(lease)
    books.check()


def test_a_reserver_that_waits_gets_what_the_lost_answer_held(app, proxy, books):
    with ThreadPoolExecutor(1) as threads:
        reserving = threads.submit(app.jobs.reserve, "mail", limit=2, timeout=20)
        wait_until(lambda: app.jobs.stats_waiting() == {"mail": 1})
        wait_until_nothing_is_asked(books)  # it looks once more after it got in line
        proxy.lose_answer(RESERVE, saying="precious")  # not one that found nothing
        app.jobs.enqueue_many("mail", ["precious"] * 5)

        leases = reserving.result(10)

    assert proxy.happened.is_set()
    assert [lease.epoch for lease in leases] == [1, 1]
    assert (books.count("lease"), books.count("ready")) == (2, 3)


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
def test_a_complete_whose_answer_is_lost_counts_once(app, proxy, books, lose):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    getattr(proxy, lose)(COMPLETE)

    app.jobs.complete(lease, {"sum": 3})

    assert proxy.happened.is_set()
    assert app.jobs.get(lease.job).returned == {"sum": 3}
    assert app.jobs.stats().completed == 1
    books.check_completions()


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("delay", [0, 60])
def test_a_release_whose_answer_is_lost_counts_once(app, proxy, books, delay, lose):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    getattr(proxy, lose)(SETTLE)

    app.jobs.release(lease, delay=delay)

    assert proxy.happened.is_set()
    job = app.jobs.get(lease.job)
    assert (job.state, job.releases, job.epoch) == ("delayed" if delay else "ready", 1, 1)
    books.check()


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("max_retries", [1, 3])
def test_a_failure_whose_answer_is_lost_counts_once(app, proxy, books, max_retries, lose):
    app.jobs.enqueue("mail", max_retries=max_retries)
    [lease] = app.jobs.reserve("mail")
    getattr(proxy, lose)(SETTLE)

    app.jobs.fail(lease, "it was hard")

    assert proxy.happened.is_set()
    job = app.jobs.get(lease.job)
    assert (job.state, job.retries) == ("buried" if max_retries == 1 else "delayed", 1)
    assert len(app.jobs.failures(job)) == 1
    assert app.jobs.stats().failed_total == (1 if max_retries == 1 else 0)
    books.check()


def test_a_burial_whose_answer_is_lost_counts_once(app, proxy, books):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    proxy.lose_answer(SETTLE)

    app.jobs.bury(lease)

    assert proxy.happened.is_set()
    assert app.jobs.get(lease.job).buries == 1
    books.check()


def test_a_touch_whose_answer_is_lost_extends_the_lease(app, proxy):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    proxy.lose_answer(TOUCH)

    touched = app.jobs.touch(lease)

    assert proxy.happened.is_set()
    assert touched.until > lease.until
    assert app.jobs.get(lease.job).until == touched.until


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
def test_what_was_said_is_kept_once_though_the_answer_is_lost(app, proxy, lose):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    getattr(proxy, lose)(COMMIT)

    app.jobs.say(lease, said=0, progress=0.5, lines=["once"], logged=0, events=[1])

    assert proxy.happened.is_set()
    assert [line.text for line in app.jobs.logs(lease.job)] == ["once"]
    stream = app.events.read(f"job:{lease.job.id}")
    assert [event.payload for event in stream.events] == [1]
    assert app.jobs.get(lease.job).progress == 0.5


def test_a_delete_of_a_lease_whose_answer_is_lost_succeeds(app, proxy, books):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    proxy.lose_answer(DISCARD)

    app.jobs.delete(lease)

    assert proxy.happened.is_set()
    assert books.count("job") == 0


# ---------------------------------------------------------------- what may not


def said_once(verb, *args):
    """Say a word that cannot be repeated: it may succeed, or admit that the answer was lost."""
    try:
        return verb(*args)
    except DatabaseUnavailable as error:
        assert "may have been done" in str(error)  # noqa: PT017 - either way is right
        return None


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("state", ["buried", "delayed"])
def test_a_kick_whose_answer_is_lost_never_kicks_twice(app, proxy, books, state, lose):
    for _ in range(3):
        app.jobs.enqueue("mail")
    for lease in app.jobs.reserve("mail", limit=3):
        app.jobs.bury(lease) if state == "buried" else app.jobs.release(lease, delay=60)
    getattr(proxy, lose)(COMMIT)

    said_once(app.jobs.kick, "mail", 1)

    assert proxy.happened.is_set()
    assert books.count("ready") <= 1
    books.check()


@pytest.mark.parametrize(
    "verb", ["delete", "cancel", "requeue", "kick_job", "reprioritise", "reschedule"]
)
@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
def test_a_verb_of_one_job_whose_answer_is_lost_is_done_once_or_not_at_all(
    app, proxy, books, verb, lose
):
    job = app.jobs.enqueue("mail")
    if verb in {"requeue", "kick_job"}:
        app.jobs.bury(app.jobs.reserve("mail")[0])
    getattr(proxy, lose)(COMMIT)

    more = {"reprioritise": {"priority": 5}, "reschedule": {"delay": 60}}.get(verb, {})
    said_once(partial(getattr(app.jobs, verb), job, **more))

    assert proxy.happened.is_set()
    books.check()
    if verb == "delete":
        assert lose == "lose_request" or books.count("job") == 0
    else:
        assert app.jobs.get(job).kicks <= 1


def test_a_kick_beside_others_in_one_transaction_is_never_repeated(make_app, proxy, books):
    """The others are, and come out right."""

    async def main():
        async with make_app(lanes=1) as app:
            for _ in range(3):
                await app.jobs.aenqueue("mail")
            for lease in await app.jobs.areserve("mail", limit=3):
                await app.jobs.abury(lease)
            await app.jobs.aenqueue("post")
            proxy.lose_answer(COMMIT)
            kicked, enqueued, reserved = await asyncio.gather(
                app.jobs.akick("mail", 1),
                app.jobs.aenqueue("mail"),
                app.jobs.areserve("post"),
                return_exceptions=True,
            )
            assert kicked == 1 or isinstance(kicked, DatabaseUnavailable)
            assert (await app.jobs.aget(enqueued)).state == "ready"
            assert [lease.epoch for lease in reserved] == [1]

    asyncio.run(main())

    assert books.rows("select count(*) from towpath.ready where kicks > 0") == [(1,)]
    assert (books.count("buried"), books.count("lease")) == (2, 1)
    books.check()


def test_a_call_that_shared_a_lost_answer_does_not_run_alone_as_if_for_the_first_time(
    make_app, proxy
):
    """One of a batch fails when they are repeated: what was done is not known any more."""
    begun = []

    def first():
        begun.append("for the first time")
        yield clock()

    def again():
        yield clock()
        msg = "another one came between"
        raise Conflict(msg)

    async def main():
        async with make_app(lanes=1) as app:
            await app.jobs.aenqueue("mail")
            proxy.lose_answer(COMMIT)
            both = app.arun(Operation("mine", first, retry=again)), app.jobs.aenqueue("mail")
            return await asyncio.gather(*both, return_exceptions=True)

    said = asyncio.run(main())

    assert proxy.happened.is_set()
    assert [type(error) for error in said] == [DatabaseUnavailable] * 2
    assert begun == ["for the first time"]


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
def test_one_that_asks_again_and_is_lost_then_repeats_no_other(make_app, proxy, books, lose):
    """They share a transaction, which is begun again."""

    async def main():
        async with make_app(lanes=1) as app:
            job = await app.jobs.aenqueue("mail")
            await app.jobs.aenqueue_many("post", range(2))
            getattr(proxy, lose)(STANDING)
            again, reserved = await asyncio.gather(
                app.jobs.aenqueue("mail", id=job.id), app.jobs.areserve("post")
            )
            assert again.id == job.id
            assert [lease.epoch for lease in reserved] == [1]

    asyncio.run(main())

    assert proxy.happened.is_set()
    assert books.count("lease") == 1
    books.check()


def test_a_call_that_is_refused_is_refused_alone(make_app, proxy, books):
    """What it shared a transaction with is done, once."""

    async def main():
        async with make_app(lanes=1) as app:
            await app.jobs.aenqueue("post")
            return await asyncio.gather(
                app.jobs.aenqueue("mail"),
                app.schedules.apause("there is none"),
                app.jobs.areserve("post"),
                return_exceptions=True,
            )

    job, refused, [lease] = asyncio.run(main())

    assert isinstance(refused, NotFound)
    assert lease.epoch == 1
    assert books.ids() == {job.id, lease.job.id}


def test_a_kick_beside_others_in_threads_is_never_repeated(make_app, proxy, books):
    app = make_app(lanes=1)
    for _ in range(3):
        app.jobs.enqueue("mail")
    for lease in app.jobs.reserve("mail", limit=3):
        app.jobs.bury(lease)

    proxy.hold(ENQUEUE)  # keeps the lane busy until the others have gathered
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(app.jobs.enqueue, "other")
        assert proxy.happened.wait(5)
        kicking = threads.submit(app.jobs.kick, "mail", 1)
        enqueuing = threads.submit(app.jobs.enqueue, "mail")
        wait_until(lambda: len(app._database._lanes._inbox) == 2)
        proxy.lose_answer(COMMIT)
        proxy.let_go()
        error = kicking.exception(10)
        assert error is None or isinstance(error, DatabaseUnavailable)
        assert {first.result(10).id, enqueuing.result(10).id} <= books.ids()

    assert proxy.happened.is_set()
    assert books.rows("select count(*) from towpath.ready where kicks > 0") == [(1,)]
    assert books.count("buried") == 2
    books.check()


# ---------------------------------------------------------------- a connection that died silently


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_a_connection_that_fell_silent_holds_up_no_other(make_app, colour, proxy, books):
    """Its own callers wait until the connection is given up; all other lanes go on.

    Here the proxy cuts it after a moment.
    """
    # The lane must not give the connection up before the proxy cuts it.
    app = colour(make_app(lanes=2, connect_timeout=120))
    app.topics.list()
    with ThreadPoolExecutor(4) as threads:
        proxy.swallow(ENQUEUE)
        stuck = threads.submit(app.jobs.enqueue, "mail", "stuck")
        assert proxy.happened.wait(5)

        for number in range(20):
            app.jobs.enqueue("mail", number)
        leases = app.jobs.reserve("mail", limit=20)
        for lease in leases:
            app.jobs.complete(lease)
        assert not stuck.done()
        proxy.cut()
        assert stuck.result(10).payload == "stuck"
    assert len(leases) == 20
    assert len(books.ids()) == 21


GIVEN_UP = "does not work on it: the connection is cut"
SETS_UP = "select pg_backend_pid()"  # the first statement of a connection


def sleeps(seconds: float):
    """Honest work that takes its time."""
    statement = Statement("sleep", {"postgres": f"select pg_sleep({seconds})"})
    yield statement()
    return "well"


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_a_server_that_takes_everything_and_answers_nothing_is_given_up(
    make_app, colour, proxy, caplog
):
    """A proxy with a dead server acknowledges all that it gets: the network sees no fault."""
    app = colour(make_app(connect_timeout=4, lanes=1))
    app.topics.list()
    proxy.die()

    with pytest.raises(DatabaseUnavailable):
        app.jobs.enqueue("mail")
    with pytest.raises(DatabaseUnavailable):
        app.jobs.list()

    assert GIVEN_UP in caplog.text
    proxy.revive()
    assert app.jobs.enqueue("mail").topic == "mail"


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
@pytest.mark.parametrize("lose", ["swallow", "swallow_answer"])
@pytest.mark.parametrize("proxy", [False, True], ids=["direct", "pooled"], indirect=True)
def test_what_a_silent_connection_has_taken_is_asked_again_on_another(
    make_app, colour, proxy, caplog, lose
):
    """The server answers elsewhere, and says that it does not work on it."""
    app = colour(make_app(connect_timeout=6, lanes=1))
    app.topics.list()
    getattr(proxy, lose)(ENQUEUE)

    job = app.jobs.enqueue("mail", "once")

    assert proxy.happened.is_set()
    assert GIVEN_UP in caplog.text
    assert [each.id for each in app.jobs.list()] == [job.id]


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_what_may_not_be_repeated_is_told_when_its_connection_falls_silent(make_app, colour, proxy):
    app = colour(make_app(connect_timeout=6, lanes=1))
    job = app.jobs.enqueue("mail")
    proxy.swallow_answer(COMMIT)

    with pytest.raises(DatabaseUnavailable, match="may have been done"):
        app.jobs.delete(job.id)


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
@pytest.mark.parametrize("mode", [Mode.WRITE, Mode.SCAN])
@pytest.mark.parametrize("proxy", [False, True], ids=["direct", "pooled"], indirect=True)
def test_honest_work_may_be_silent_for_as_long_as_it_takes(make_app, colour, caplog, mode):
    """Making tables, reading all of them, waiting for a lock."""
    # A third of it is what a loaded server has to say that it still works.
    app = colour(make_app(connect_timeout=4.5))
    app.topics.list()

    assert app.run(Operation("sleep", lambda: sleeps(5), mode)) == "well"
    assert GIVEN_UP not in caplog.text


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_a_connection_that_falls_silent_while_it_is_set_up_is_given_up(make_app, colour, proxy):
    make_app().migrate()
    app = colour(make_app(connect_timeout=6, lanes=1))
    proxy.swallow(SETS_UP)

    assert app.jobs.enqueue("mail").topic == "mail"
    assert proxy.happened.is_set()


def test_a_bell_whose_line_fell_silent_listens_on_another(proxy, postgres, postgres_schema):
    settings = Settings(schema=postgres_schema, connect_timeout=1)
    here, there = PostgresBell(proxy.url(), settings), PostgresBell(postgres.url(), settings)
    try:
        assert here.wait(0, listening=True) is None  # it has just begun to listen
        proxy.die()
        proxy.revive()

        wait_until(lambda: here.wait(0.1, listening=True) is None)

        there.announce([MAIL])
        assert here.wait(10, listening=True) == {MAIL}
    finally:
        here.close()
        there.close()


def test_a_bell_whose_line_fell_silent_rings_on_another(proxy, postgres, postgres_schema):
    settings = Settings(schema=postgres_schema, connect_timeout=1)
    here, there = PostgresBell(proxy.url(), settings), PostgresBell(postgres.url(), settings)
    try:
        here.announce([POST])
        assert there.wait(0, listening=True) is None  # it has just begun to listen
        proxy.die()
        proxy.revive()

        here.announce([MAIL])

        assert there.wait(10, listening=True) == {MAIL}
    finally:
        here.close()
        there.close()


def test_the_network_gives_a_dead_connection_up_in_half_a_minute(make_app):
    """Idle or with a statement on its way: the second is not covered by keepalives."""
    app = make_app()
    app.topics.list()
    [wire] = [lane._wire for lane in app._database._all if lane._wire]

    with socket.socket(fileno=socket.dup(wire._pgconn.socket)) as line:
        idle, every, count, unanswered = (
            line.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
        )
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    assert idle + every * count <= 30
    assert 0 < unanswered <= 30_000


def wait_until_nothing_is_asked(books):
    """Wait until the server has had nothing to do for us for a moment."""
    asked = [None]

    def is_quiet():
        before = asked[0]
        asked[0] = books.rows(
            "select max(state_change) from pg_stat_activity where application_name = 'towpath'"
        )
        time.sleep(0.1)  # what is waited for is that nothing happens
        return asked[0] == before

    wait_until(is_quiet)
