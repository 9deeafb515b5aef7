"""Events through two servers that fail, to clients that come and go: each event once, in order."""

import asyncio
import itertools
import signal
import time

import httpx
import pytest

from tests.faults.chance import dice
from tests.faults.processes import until
from tests.faults.sizes import many
from tests.faults.wire_readers import LOST, FrameReader, LiveReader, PollReader, SseReader
from tests.server.live import Served
from towpath import App

pytestmark = [pytest.mark.soak, pytest.mark.chaos]

PUBLISHERS = 2
EACH = many(5_000)
AT_ONCE = 25
TOTAL = PUBLISHERS * EACH
MOST_WAIT = 200  # seconds until another part of the events is read, on a busy machine
MOST_STILL = 3.0  # seconds for which a server stands still: it may hold a lock that others need


@pytest.fixture
def servers(place, tmp_path, monkeypatch):
    url, needed = place
    for name, value in needed.items():
        monkeypatch.setenv(f"TOWPATH_{name.upper()}", value)
    servers = []
    for n in range(2):
        (tmp_path / str(n)).mkdir()
        servers.append(Served(url, tmp_path / str(n)))
    yield servers
    for served in servers:
        served.kill()


async def publish(servers, key, publisher):
    """Publish over HTTP, again at the other server until it is acknowledged."""
    turns = itertools.cycle(servers[publisher:] + servers[:publisher])
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(headers=headers, timeout=2, trust_env=False) as http:
        for n in range(0, EACH, AT_ONCE):
            ns = range(n, n + AT_ONCE)
            events = [{"payload": [publisher, n], "key": f"{publisher}-{n}"} for n in ns]
            while True:
                url = f"http://127.0.0.1:{next(turns).port}/api/channels/chat/events"
                try:
                    answer = await http.post(url, json={"events": events})
                except LOST:
                    continue
                assert answer.status_code in {201, 503}, answer.text
                if answer.status_code == httpx.codes.CREATED:
                    break


async def fail(one, other, readers):
    """Stop one server for a while; later kill the other one."""

    def read():
        return min(len(reader.got) for reader in readers)

    await until(lambda: read() > TOTAL * 0.2, many(MOST_WAIT))
    one.signal(signal.SIGSTOP)
    goes_on = time.monotonic() + MOST_STILL
    await until(lambda: read() > TOTAL * 0.5 or time.monotonic() > goes_on)
    one.signal(signal.SIGCONT)
    await until(lambda: read() > TOTAL * 0.6, many(MOST_WAIT))
    other.signal(signal.SIGKILL)


def test_clients_that_come_and_go_get_each_event_once_though_servers_fail(place, servers):
    """EV-1, EV-3, EV-4, EV-8"""
    url, needed = place
    with App(url, **needed) as app:
        key = app.keys.create("all", scopes=["publish", "subscribe"])[1]
        app.events.publish("chat", "first")
        kinds = (LiveReader, SseReader, FrameReader, PollReader) * 2
        readers = [kind(servers, key, "chat", dice(n)) for n, kind in enumerate(kinds)]

        async def run():
            async with asyncio.TaskGroup() as group:
                for publisher in range(PUBLISHERS):
                    group.create_task(publish(servers, key, publisher))
                for reader in readers:
                    group.create_task(reader.run(TOTAL + 1))
                group.create_task(fail(*servers, readers))

        asyncio.run(run())
        log, after = [], None
        while (page := app.events.read("chat", after)).events:
            log += [event.payload for event in page.events]
            after = page.cursor

    assert log[0] == "first"
    for publisher in range(PUBLISHERS):
        said = [n for by, n in log[1:] if by == publisher]
        assert said == list(range(EACH))
    for reader in readers:
        assert reader.got == log
        assert reader.attaches > 5
