"""HostNames of receivers: what is remembered, and that a dead one delays no other."""

import asyncio
import threading
from ipaddress import ip_address

import pytest

from tests.webhooks.hostile import HOSTILE, hostile_receivers
from tests.webhooks.receivers import PATIENT, always_ok, attempt, receiver, run, sender
from towpath.webhooks import resolving
from towpath.webhooks.resolving import HostNames, Unanswered

ONE, TWO = "192.0.2.1", "192.0.2.2"


class Zone:
    """A resolver whose answers a test decides, with its own time."""

    def __init__(self):
        self.now = 0.0
        self.answer = [ONE]
        self.asked = []
        self.gate = threading.Event()
        self.gate.set()

    def look_up(self, name):
        self.asked.append(name)
        assert self.gate.wait(60)
        if self.answer is None:
            raise OSError
        return self.answer

    def names(self):
        return HostNames(self.look_up, clock=lambda: self.now)


async def resolved(names, name="a.example"):
    try:
        return [str(each) for each in await names.resolve(name)]
    except Unanswered as refused:
        return refused.code


async def until_idle(names):
    """Wait for the look-ups that still run."""
    while names._running:
        await asyncio.wait(names._running.values())


def test_an_answer_counts_as_new_for_half_a_minute():
    async def remembered():
        zone = Zone()
        names = zone.names()
        assert await resolved(names) == [ONE]
        zone.now, zone.answer = 29.9, [TWO]
        assert await resolved(names) == [ONE]
        assert zone.asked == ["a.example"]
        names.close()

    run(remembered)


def test_an_old_answer_serves_while_a_new_one_is_fetched():
    async def fetched():
        zone = Zone()
        names = zone.names()
        await resolved(names)
        zone.now, zone.answer = 31.0, [TWO]
        zone.gate.clear()
        assert [await resolved(names) for _ in range(3)] == [[ONE]] * 3
        zone.gate.set()
        await until_idle(names)
        assert await resolved(names) == [TWO]
        assert len(zone.asked) == 2
        names.close()

    run(fetched)


def test_an_old_answer_serves_for_five_minutes_while_look_ups_fail():
    async def failing():
        zone = Zone()
        names = zone.names()
        await resolved(names)
        zone.answer = None
        zone.now = 299.0
        assert await resolved(names) == [ONE]
        await until_idle(names)
        zone.now = 302.0  # the failure is remembered for 5 s, and says nothing of the old answer
        assert await resolved(names) == "dns_failed"
        names.close()

    run(failing)


def test_a_failure_is_remembered_for_five_seconds():
    async def failing():
        zone = Zone()
        zone.answer = None
        names = zone.names()
        assert [await resolved(names) for _ in range(3)] == ["dns_failed"] * 3
        assert len(zone.asked) == 1
        zone.now, zone.answer = 5.1, [ONE]
        assert await resolved(names) == [ONE]
        names.close()

    run(failing)


@pytest.mark.parametrize("answer", [[], ["nonsense"], [ONE, "nonsense"], 7, [None]])
def test_an_answer_that_cannot_be_read_is_none(answer):
    async def odd():
        zone = Zone()
        zone.answer = answer
        names = zone.names()
        assert await resolved(names) == "dns_failed"
        names.close()

    run(odd)


def test_a_name_has_one_look_up_at_a_time():
    async def together():
        zone = Zone()
        zone.gate.clear()
        names = zone.names()
        calls = [asyncio.create_task(resolved(names)) for _ in range(50)]
        await asyncio.sleep(0)
        calls[0].cancel()  # a caller that goes away does not end it for the others
        zone.gate.set()
        assert await asyncio.gather(*calls[1:]) == [[ONE]] * 49
        assert len(zone.asked) == 1
        names.close()

    run(together)


def test_a_look_up_that_takes_too_long_ends_the_attempt_and_not_itself():
    async def slow():
        zone = Zone()
        zone.gate.clear()
        names = HostNames(zone.look_up, patience=0.1)
        assert await resolved(names) == "dns_timeout"
        assert await resolved(names) == "dns_timeout"
        zone.gate.set()
        await until_idle(names)
        assert await resolved(names) == [ONE]
        assert len(zone.asked) == 1
        names.close()

    run(slow)


def test_names_that_never_answer_delay_no_other():
    """Known names are called at once, and new names are still looked up."""
    never = threading.Event()

    def look_up(name):
        if name.startswith("dead"):
            never.wait(120)
        return ["127.0.0.1"]

    async def company():
        async with receiver(always_ok) as here, sender(resolver=look_up) as client:
            assert (await client.send(attempt(here.url("known.example")))).error_code is None
            dead = [
                asyncio.create_task(client.send(attempt(here.url(f"dead{n}.example"))))
                for n in range(200)
            ]
            await asyncio.sleep(0)
            for name in ("known.example", "new.example", "newer.example"):
                assert (await client.send(attempt(here.url(name)))).error_code is None
            assert not any(task.done() and task.result().error_code is None for task in dead)
            never.set()
            await asyncio.gather(*dead)

    try:
        run(company)
    finally:
        never.set()


def test_names_that_failed_before_leave_threads_for_new_ones(monkeypatch):
    monkeypatch.setattr(resolving, "MOST_FIRST", 2)
    monkeypatch.setattr(resolving, "MOST_AGAIN", 2)
    never = threading.Event()
    slow = set()

    def look_up(name):
        if name in slow:
            never.wait(120)
        if name.startswith("dead"):
            raise OSError
        return [ONE]

    async def apart():
        names = HostNames(look_up)
        dead = [f"dead{n}.example" for n in range(10)]
        for name in dead:
            assert await resolved(names, name) == "dns_failed"
        slow.update(dead)
        for known in names._known.values():
            known.fresh_until = 0.0
        waiting = [asyncio.create_task(resolved(names, name)) for name in dead]
        await asyncio.sleep(0)
        assert await resolved(names, "new.example") == [ONE]
        never.set()
        await asyncio.gather(*waiting)
        names.close()

    run(apart)


def test_the_names_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(resolving, "MOST_NAMES", 3)

    async def many():
        zone = Zone()
        names = zone.names()
        for n in range(10):
            await resolved(names, f"{n}.example")
        assert list(names._known) == ["7.example", "8.example", "9.example"]
        names.close()

    run(many)


def test_the_threads_end_with_their_names():
    before = threading.active_count()

    async def ended():
        names = Zone().names()
        await resolved(names)
        names.close()

    run(ended)

    deadline = threading.Event()
    for _ in range(6000):
        if threading.active_count() <= before:
            return
        deadline.wait(0.01)
    pytest.fail("a thread is left")


def test_the_system_is_asked_by_default():
    async def localhost():
        names = HostNames()
        found = await names.resolve("localhost")
        names.close()
        return found

    assert all(address.is_loopback for address in run(localhost))
    assert {ip_address("127.0.0.1"), ip_address("::1")} >= set(run(localhost))


def test_in_hostile_company_each_attempt_ends_by_itself():
    """Check 25, of the client alone: 90 hostile attempts are under way, and 100 others arrive."""

    async def company():
        async with receiver(always_ok) as good, hostile_receivers() as places, sender() as client:
            large = '"' + "x" * 2**20 + '"'
            bad = {}
            for kind, place in places.items():
                seconds = 2 if HOSTILE[kind] == "timeout" else PATIENT
                sent = attempt(place.url(), timeout=seconds, body=large)
                bad[kind] = [asyncio.create_task(client.send(sent)) for _ in range(10)]
            for _ in range(100):
                assert (await client.send(attempt(good.url()))).error_code is None
            for kind, tasks in bad.items():
                ends = {result.error_code for result in await asyncio.gather(*tasks)}
                assert ends == {HOSTILE[kind]}, kind
            assert (await client.send(attempt(good.url()))).error_code is None

    run(company)
