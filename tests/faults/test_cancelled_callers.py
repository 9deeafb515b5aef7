"""Callers that are cancelled: their neighbours do not notice, and no lease is left over."""

import asyncio
import contextlib
import sqlite3
from collections import Counter

import pytest

from tests.faults.chance import dice
from tests.faults.gates import StoppingClock
from tests.faults.processes import until, wait_until
from tests.faults.sizes import many
from towpath import Lease
from towpath.database import sqlite_writer
from towpath.store.leases import give_back

on_postgres = pytest.mark.parametrize("kind", ["postgres"])
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])

CALLERS = 100


async def cancel_half(tasks, chance):
    """Cancel about half of some tasks at random instants; return the results of the others.

    An instant is a tick of the loop: a result may be on its way to a caller when it is cancelled.
    """
    victims = chance.sample(tasks, len(tasks) // 2)
    for victim in victims:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        victim.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    for task, answer in zip(tasks, answers, strict=True):
        if isinstance(answer, BaseException):
            assert isinstance(answer, asyncio.CancelledError), answer
            assert task in victims
    return [each for each in answers if not isinstance(each, BaseException)]


@pytest.fixture
def kind(kind_and_disk):
    return kind_and_disk


@pytest.mark.parametrize("seed", range(2))
def test_a_cancelled_enqueue_never_aborts_its_neighbours(make_app, books, seed):
    async def main():
        async with make_app() as app:
            await app.jobs.aenqueue("other")
            for _ in range(many(1)):
                calls = [app.jobs.aenqueue("mail", n) for n in range(CALLERS)]
                jobs = await cancel_half([*map(asyncio.create_task, calls)], dice(seed))
                assert len(jobs) >= CALLERS // 2
                assert {job.id for job in jobs} <= books.ids()

    asyncio.run(main())
    books.check()


@pytest.mark.parametrize("seed", range(2))
def test_s6_a_job_reserved_for_a_cancelled_caller_is_ready_again_at_once(make_app, books, seed):
    """Uncounted, and all of them: afterwards each job can be reserved without any wait."""

    async def main():
        chance = dice(seed)
        async with make_app() as app:
            for topic in (f"mail-{n}" for n in range(many(3))):
                jobs = await app.jobs.aenqueue_many(topic, range(2 * CALLERS))
                calls = [app.jobs.areserve(topic, limit=2) for _ in range(CALLERS)]
                answers = await cancel_half([*map(asyncio.create_task, calls)], chance)
                held = [lease for leases in answers for lease in leases]
                assert len(held) >= CALLERS
                await until_ready(app, topic, len(jobs) - len(held))
                rest: list[Lease] = []
                while more := await app.jobs.areserve(topic, limit=1_000):
                    rest += more
                every = Counter(lease.job.id for lease in [*held, *rest])
                assert every == Counter(job.id for job in jobs)
                for job in (lease.job for lease in rest):
                    assert (job.releases, job.timeouts, job.retries) == (0, 0, 0)

    asyncio.run(main())
    books.check()


def test_s6_a_job_that_arrives_at_the_moment_of_the_cancellation_is_given_back(make_app, books):
    """The result is there, only the caller has not run yet: that is the narrowest instant."""

    async def cancelled_on_arrival(app, call):
        task = asyncio.create_task(call)
        while not (task.done() or (task._fut_waiter and task._fut_waiter.done())):  # noqa: ASYNC110 - the very tick
            await asyncio.sleep(0)
        if task.done():  # SQLite may store at once, and then there is no such instant
            await app.arun(give_back(task.result(), []))
            return
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main():
        async with make_app() as app:
            [job] = await app.jobs.aenqueue_many("mail", [1])
            await cancelled_on_arrival(app, app.jobs.areserve("mail"))
            await until_ready(app, "mail", 1)
            await cancelled_on_arrival(app, app.jobs.areserve("mail", timeout=20))
            await until_ready(app, "mail", 1)
            [lease] = await app.jobs.areserve("mail")
            assert (lease.job.id, lease.job.releases, lease.job.timeouts) == (job.id, 0, 0)

    asyncio.run(main())
    books.check()


@pytest.mark.parametrize("seed", range(2))
def test_s6_a_waiter_that_is_cancelled_while_it_is_handed_a_job_does_not_keep_it(
    make_app, books, seed
):
    async def main():
        chance = dice(seed)
        async with make_app() as app, make_app() as other:
            await other.jobs.aenqueue("other")
            for topic in (f"mail-{n}" for n in range(many(2))):
                calls = [app.jobs.areserve(topic, timeout=20) for _ in range(CALLERS)]
                tasks = [*map(asyncio.create_task, calls)]
                await until(lambda topic=topic: app.jobs.stats_waiting().get(topic) == CALLERS)
                jobs = await asyncio.gather(
                    *(other.jobs.aenqueue(topic, n) for n in range(CALLERS))
                )
                answers = await cancel_half(tasks, chance)
                held = [lease for leases in answers for lease in leases]
                await until_ready(app, topic, len(jobs) - len(held))
                rest: list[Lease] = []
                while more := await app.jobs.areserve(topic, limit=1_000):
                    rest += more
                every = Counter(lease.job.id for lease in [*held, *rest])
                assert every == Counter(job.id for job in jobs)
                assert app.jobs.stats_waiting() == {}

    asyncio.run(main())
    books.check()


@pytest.mark.parametrize("seed", range(2))
def test_a_cancelled_complete_never_aborts_its_neighbours(make_app, books, seed):
    """It is done or not done; saying it again changes nothing."""

    async def main():
        async with make_app() as app:
            await app.jobs.aenqueue_many("mail", range(CALLERS))
            leases = await app.jobs.areserve("mail", limit=CALLERS)
            calls = [app.jobs.acomplete(lease) for lease in leases]
            answers = await cancel_half([*map(asyncio.create_task, calls)], dice(seed))
            assert len(answers) >= CALLERS // 2
            await asyncio.gather(*map(app.jobs.acomplete, leases))

    asyncio.run(main())
    books.check_completions()


def test_a_reserve_that_times_out_from_outside_keeps_no_job(make_app, books):
    """asyncio.timeout cancels; the job is there for the next caller at once."""

    async def main():
        async with make_app() as app:
            job = await app.jobs.aenqueue("mail")
            for _ in range(many(20)):
                try:
                    async with asyncio.timeout(0):
                        leases = await app.jobs.areserve("mail")
                except TimeoutError:
                    await until_ready(app, "mail", 1)
                else:
                    await asyncio.gather(*map(app.jobs.arelease, leases))
            [lease] = await app.jobs.areserve("mail")
            assert lease.job.id == job.id

    asyncio.run(main())
    books.check()


def test_cancelled_callers_and_a_busy_file_do_not_block_each_other(make_app, books, place):
    """Jobs that no caller waits for are given back by the thread that commits for the loop."""

    async def main():
        async with make_app() as app, make_app() as other:
            await app.jobs.aenqueue_many("mail", range(CALLERS))
            noise = asyncio.create_task(asyncio.to_thread(make_noise, other))
            for _ in range(many(20)):
                tasks = [asyncio.create_task(app.jobs.areserve("mail")) for _ in range(10)]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                for answer in await asyncio.gather(*tasks, return_exceptions=True):
                    if isinstance(answer, list):  # it was too quick for the cancellation
                        await app.jobs.arelease(*answer)
                await asyncio.gather(*(app.jobs.aenqueue("post") for _ in range(5)))
            await noise
            await until_ready(app, "mail", CALLERS)

    async def in_time():
        async with asyncio.timeout(many(30)):
            await main()

    asyncio.run(in_time())
    books.check()


def make_noise(app):
    for _ in range(many(100)):
        app.jobs.enqueue("noise")


async def until_ready(app, topic, number):
    """Wait for what is on its way back: a caller that has gone is not told.

    A thread may still be reserving for it, so that its job looks ready, and what undoes that comes
    behind all calls in line.
    """
    await app.aquiet()
    for _ in range(2):
        await app.aprobe()
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        while (await app.jobs.astats_topic(topic)).ready != number:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)


@on_sqlite
def test_quiet_waits_for_a_call_whose_caller_has_gone(make_app, place):
    """It runs late, as another connection holds the file; a worker ends behind its last words."""

    async def main():
        url, _ = place
        async with make_app() as app:
            await app.jobs.aenqueue("mail")
            with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
                other.execute("begin immediate")
                in_use = app._database._writer._in_use
                call = asyncio.create_task(app.jobs.aenqueue("mail"))
                await until(in_use.locked)  # by a thread, which waits for the file
                call.cancel()
                await asyncio.wait([call])
                quiet = asyncio.create_task(app.aquiet())
                for _ in range(5):
                    await asyncio.sleep(0)
                assert not quiet.done()
                other.rollback()
            await quiet
            assert (await app.jobs.astats_topic("mail")).ready == 2
        await app.aquiet()  # after a close nothing is under way

    asyncio.run(main())


@on_postgres
@pytest.mark.parametrize("workers", [1, 12])
def test_a_task_that_is_cancelled_with_all_others_can_still_clean_up(make_app, workers):
    """As asyncio.run does at its end: one in the very tick in which it asks, or many in line."""

    async def work(app, begun):
        [lease] = await app.jobs.areserve("mail")
        try:
            begun.release()
            while True:
                await app.jobs.atouch(lease)
        finally:
            await app.jobs.arelease(lease)

    async def main():
        app, begun = make_app(lanes=1), asyncio.Semaphore(0)
        await app.jobs.aenqueue_many("mail", range(workers))
        tasks = [asyncio.create_task(work(app, begun)) for _ in range(workers)]
        for _ in tasks:
            await begun.acquire()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        async with asyncio.timeout(20):
            await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert (await app.jobs.astats_topic("mail")).ready == workers

    asyncio.run(main())


@on_sqlite
def test_a_reservation_for_a_loop_that_has_closed_is_given_back(make_app, monkeypatch):
    monkeypatch.setattr(sqlite_writer, "SLOW_COMMIT", 0)  # a thread commits for the loop
    clock = StoppingClock()
    app = make_app(clock=clock)
    app.jobs.enqueue("mail")

    async def main():
        clock.stop_at(1)
        task = asyncio.create_task(app.jobs.areserve("mail"))
        await until(clock.stopped.is_set)
        task.cancel()

    asyncio.run(main())
    clock.go_on()
    app.jobs.enqueue("post")  # behind it

    wait_until(lambda: app.jobs.stats_topic("mail").ready == 1)
