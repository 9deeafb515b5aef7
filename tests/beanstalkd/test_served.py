"""towpath serve --beanstalkd: the same door beside the HTTP API, on a database that many share."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.beanstalkd.conftest import PATIENCE, Raw, free_port
from tests.conftest import eventually
from towpath import App


class Serving:
    def __init__(self, place, **settings):
        url, needed = place
        environment = {
            f"TOWPATH_{name.upper()}": str(v) for name, v in {**needed, **settings}.items()
        }
        command = [sys.executable, "-m", "towpath", "serve", "--port", "0", "--json"]
        self.process = subprocess.Popen(
            [*command, "--database", url, "--beanstalkd", "127.0.0.1:0"],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
        )
        self.said = json.loads(self.process.stdout.readline())
        host, _, port = self.said["beanstalkd"].rpartition(":")
        self.clients: list[Raw] = []
        self.address = host, int(port)

    def client(self) -> Raw:
        self.clients.append(Raw(self.address))
        return self.clients[-1]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def serving(durable_place):
    with contextlib.ExitStack() as stack:

        def start(**settings) -> Serving:
            started = Serving(durable_place, **settings)
            stack.callback(started.end)
            return started

        yield start


def test_the_door_is_open_beside_the_api(serving, durable_place):
    client = serving().client()
    client.ask("use mail", "USING mail")
    number = client.put(b"hello")

    url, needed = durable_place
    with App(url, **needed) as app:
        assert app.jobs.numbered(number).payload == b"hello"
        app.jobs.enqueue("mail", {"n": 1}, priority=0)
        client.ask("watch mail", "WATCHING 2")
        client.ask("reserve", f"RESERVED {number} 5", "hello")
        client.ask("reserve", f"RESERVED {number + 1} 7", '{"n":1}')


def test_what_a_killed_server_held_is_ready_again(serving):
    """DQ-17: another process sees that its session is dead."""
    quick = {"dead_after": 1, "beat_every": 0.2}
    first = serving(**quick)
    client = first.client()
    number = client.put(ttr=10_000)
    client.ask("reserve", f"RESERVED {number} 1", "a")
    first.process.kill()

    client = serving(**quick).client()

    client.ask("reserve-with-timeout 30", f"RESERVED {number} 1", "a")
    assert client.told(f"stats-job {number}")["timeouts"] == "0"


def test_it_drains_and_ends_though_somebody_waits(serving):
    served = serving()
    client, waiting = served.client(), served.client()
    client.put()
    client.ask("reserve", "RESERVED 1 1", "a")
    waiting.say("reserve\r\n")
    eventually(lambda: client.told("stats")["current-waiting"] == "1")

    served.process.send_signal(signal.SIGUSR1)
    eventually(lambda: client.told("stats")["draining"] == "true")
    client.ask("put 0 0 1 1\r\nx", "DRAINING")
    served.process.send_signal(signal.SIGTERM)

    assert served.process.wait(PATIENCE) == 0
    assert serving().client().told("stats-job 1")["state"] == "ready"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("11300", "'11300' is not HOST:PORT, such as 127.0.0.1:11300"),
        ("127.0.0.1:99999", "'99999' is not a port; give a number from 0 to 65535"),
    ],
)
def test_an_address_that_is_none_is_refused(wrong, why):
    done = refused("--beanstalkd", wrong)

    assert done.returncode == 2
    assert why in done.stderr


def test_two_doors_cannot_have_one_port(tmp_path):
    port = free_port()
    database = f"sqlite:///{tmp_path}/towpath.db"

    done = refused("--database", database, "--port", str(port), "--beanstalkd", f"127.0.0.1:{port}")

    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr


def refused(*options):
    command = [sys.executable, "-m", "towpath", "serve", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
