"""The switches of aiohttp that hold the guard together.

Each line turns one of them and shows that its promise breaks: as it is set, the promise holds.
"""

import asyncio
import contextlib
import functools
import gzip
import os
import socket
import ssl

import aiohttp
import aiohttp.connector
import pytest

from tests.webhooks import receivers
from tests.webhooks.certificates import server_tls
from tests.webhooks.receivers import (
    LOOPBACK,
    OK,
    always_ok,
    answering,
    attempt,
    receiver,
    run,
    sender,
)
from tests.webhooks.scripts import head, length
from towpath.model.addresses import AddressGuard
from towpath.webhooks import posting
from towpath.webhooks.posting import Poster
from towpath.webhooks.resolving import HostNames


async def a_name_with_one_private_address_is_refused_whole():
    """Check 6."""
    names = {"resolver": lambda _: ["127.0.0.1", "10.0.0.1"]}  # of which only the first is allowed
    async with receiver(always_ok) as here, sender(**names) as client:
        result = await client.send(attempt(here.url("mixed.example")))
        return (result.error_code, here.connections) == ("blocked_target", 0)


async def an_address_in_a_url_is_judged():
    """Checks 3 and 4: It never reaches the resolver."""
    async with receiver(always_ok) as here, sender(guard=AddressGuard()) as client:
        result = await client.send(attempt(here.url()))
        return (result.error_code, here.connections) == ("blocked_target", 0)


async def many_slow_receivers_stop_no_other():
    crowd = asyncio.Semaphore(0)

    async def slow(connection):
        await connection.request()
        crowd.release()
        await connection.hold()

    async with receiver(slow) as dead, receiver(always_ok) as here, sender() as client:
        waiting = [
            asyncio.create_task(client.send(attempt(dead.url(), timeout=60))) for _ in range(120)
        ]
        for _ in range(100):
            await crowd.acquire()
        result = await client.send(attempt(here.url()))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return result.error_code is None


async def two_requests_reach_one_host_at_once():
    both = asyncio.Event()

    async def serve(connection):
        await connection.request()
        if connection.number == 2:
            both.set()
        await both.wait()
        await connection.send(OK)

    async with receiver(serve) as here, sender() as client:
        sent = [client.send(attempt(here.url())) for _ in range(2)]
        return [each.error_code for each in await asyncio.gather(*sent)] == [None, None]


async def a_name_that_changes_is_judged_again():
    answers, last = iter([["127.0.0.1"], ["10.0.0.1"]]), length(2, "Connection: close")
    async with (
        receiver(answering(last)) as here,
        sender(resolver=lambda _: next(answers)) as client,
    ):
        first = await client.send(attempt(here.url("changing.example")))
        client._names._known.clear()
        second = await client.send(attempt(here.url("changing.example")))
        return (first.error_code, second.error_code) == (None, "blocked_target")


async def addresses_are_not_raced():
    """The first one does not answer; the second must not be called beside it."""
    with socket.create_server(("127.0.0.2", 0), backlog=0) as full, contextlib.ExitStack() as fill:
        for _ in range(4):
            filler = fill.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        port, reached = full.getsockname()[1], []

        def connected(_, writer):
            reached.append(writer)
            writer.transport.abort()

        server = await asyncio.start_server(connected, "127.0.0.3", port)
        addresses = ["127.0.0.2", "127.0.0.3"]
        async with server, sender(resolver=lambda _: addresses) as client:
            url = f"http://two.example:{port}/"
            result = await client.send(attempt(url, timeout=1))
        return (result.error_code, reached) == ("timeout", [])


async def a_certificate_that_nobody_signed_is_refused():
    async with receiver(always_ok, server_tls("127.0.0.1")) as here, sender() as client:
        result = await client.send(attempt(here.url()))
        return (result.error_code, here.requests) == ("tls_failed", [])


async def a_connection_is_kept_for_a_minute():
    real = aiohttp.connector.monotonic
    async with receiver(always_ok) as here, sender() as client:
        await client.send(attempt(here.url()))
        try:
            aiohttp.connector.monotonic = lambda: real() + 50
            await client.send(attempt(here.url()))
        finally:
            aiohttp.connector.monotonic = real
        return here.connections == 1


async def no_cookie_is_kept():
    cookie = head("200 OK", "Set-Cookie: a=b", "Content-Length: 0", body=b"")
    async with (
        receiver(answering(cookie, OK)) as here,
        sender(resolver=lambda _: ["127.0.0.1"]) as client,
    ):
        for _ in range(2):
            await client.send(attempt(here.url("cookies.example")))
        return "cookie" not in here.requests[1].headers


async def proxies_of_the_environment_are_ignored():
    """Check 10: Neither a proxy nor the passwords of .netrc."""
    names = {"resolver": lambda _: ["127.0.0.1"]}
    async with receiver(always_ok) as proxy, receiver(always_ok) as here, sender(**names) as client:
        before = dict(os.environ)
        os.environ |= {"HTTP_PROXY": proxy.url(), "http_proxy": proxy.url(), "NO_PROXY": ""}
        try:
            await client.send(attempt(here.url("a.example")))
        finally:
            os.environ.clear()
            os.environ |= before
        return (proxy.connections, here.connections) == (0, 1)


async def a_body_is_not_inflated():
    """Check 22."""
    body = gzip.compress(b"inflated")
    answer = length(len(body), "Content-Encoding: gzip", body=body)
    async with receiver(answering(answer)) as here, sender() as client:
        return "inflated" not in (await client.send(attempt(here.url()))).excerpt


async def an_error_has_its_status():
    answer = head("503 Busy", "Content-Length: 4", body=b"wait")
    async with receiver(answering(answer)) as here, sender() as client:
        result = await client.send(attempt(here.url()))
        return (result.error_code, result.excerpt) == ("http_503", "wait")


async def error_of(answer):
    async with receiver(answering(answer)) as here, sender() as client:
        return (await client.send(attempt(here.url()))).error_code


async def a_long_reason_is_refused():
    return await error_of(head(f"200 {'x' * 9000}", "Content-Length: 2")) == "answer_too_large"


async def a_long_field_is_refused():
    return await error_of(length(2, f"X-A: {'x' * 9000}")) == "answer_too_large"


async def many_fields_are_refused():
    return await error_of(length(2, *(f"X-{n}: v" for n in range(120)))) == "bad_answer"


async def only_our_headers_are_sent():
    async with receiver(always_ok) as here, sender() as client:
        await client.send(attempt(here.url(), headers={"x-own": "1"}))
        return set(here.requests[0].headers) == {
            "host", "content-length", "content-type", "user-agent", "accept-encoding", "x-own",
            "towpath-subscription", "webhook-id", "webhook-timestamp", "webhook-signature",
        }  # fmt: skip


async def the_deadline_is_ours_alone():
    async def serve(connection):
        await connection.request()
        await asyncio.sleep(1)
        await connection.send(OK)

    async with receiver(serve) as here, sender() as client:
        return (await client.send(attempt(here.url()))).error_code is None


async def little_of_a_body_is_buffered():
    """The receiver can send no more than what a few buffers hold."""
    sent = 0

    async def serve(connection):
        nonlocal sent
        await connection.request()
        await connection.send(length(10**9, body=b""))
        while True:
            await connection.send(b"x" * 65536)
            sent += 65536

    seen = []
    real = aiohttp.StreamReader.feed_data

    def feed(self, data, size=0):
        seen.append(self._high_water)
        return real(self, data, size)

    async with receiver(serve) as here, sender() as client:
        try:
            aiohttp.StreamReader.feed_data = feed
            await client.send(attempt(here.url()))
        finally:
            aiohttp.StreamReader.feed_data = real
    return 0 < max(seen, default=0) <= 2 * 8192


async def no_redirect_is_followed():
    async with receiver(always_ok) as elsewhere:
        moved = head("307 Moved", f"Location: {elsewhere.url()}", "Content-Length: 0", body=b"")
        return await error_of(moved) == "http_307" and elsewhere.connections == 0


async def the_path_is_sent_as_it_stands():
    path = "/a%2Fb/../c/%7Euser?x=%20&y=a+b&z='"
    async with receiver(always_ok) as here, sender() as client:
        await client.send(attempt(here.url(path=path)))
        return here.requests[0].line == f"POST {path} HTTP/1.1"


UNVERIFIED = ssl._create_unverified_context()  # noqa: S323 - to show that another one is used
CONNECTOR = [
    ("resolver", None, a_name_with_one_private_address_is_refused_whole),
    ("socket_factory", None, an_address_in_a_url_is_judged),
    ("limit", 100, many_slow_receivers_stop_no_other),
    ("limit_per_host", 1, two_requests_reach_one_host_at_once),
    ("use_dns_cache", True, a_name_that_changes_is_judged_again),
    ("happy_eyeballs_delay", 0.25, addresses_are_not_raced),
    ("ssl", UNVERIFIED, a_certificate_that_nobody_signed_is_refused),
    ("keepalive_timeout", 15, a_connection_is_kept_for_a_minute),
]
SESSION = [
    ("cookie_jar", None, no_cookie_is_kept),
    ("trust_env", True, proxies_of_the_environment_are_ignored),
    ("auto_decompress", True, a_body_is_not_inflated),
    ("raise_for_status", True, an_error_has_its_status),
    ("max_line_size", 2**20, a_long_reason_is_refused),
    ("max_field_size", 2**20, a_long_field_is_refused),
    ("max_headers", 1000, many_fields_are_refused),
    ("skip_auto_headers", (), only_our_headers_are_sent),
    ("timeout", aiohttp.ClientTimeout(total=0.2), the_deadline_is_ours_alone),
    ("read_bufsize", 2**20, little_of_a_body_is_buffered),
]
REQUEST = [
    ("allow_redirects", True, no_redirect_is_followed),
    ("encoded", False, the_path_is_sent_as_it_stands),
]
PLACES = {
    "connector": (posting.ReceiverLines, "__init__"),
    "session": (aiohttp.ClientSession, "__init__"),
    "request": (aiohttp.ClientSession, "post"),
}
SWITCHES = (
    [("connector", *switch) for switch in CONNECTOR]
    + [("session", *switch) for switch in SESSION]
    + [("request", *switch) for switch in REQUEST]
)


@pytest.mark.parametrize(
    ("place", "switch", "turned", "holds"), SWITCHES, ids=[each[1] for each in SWITCHES]
)
def test_a_promise_breaks_when_its_switch_is_turned(place, switch, turned, holds, monkeypatch):
    """Checks 1 to 12 and 20 to 23, switch by switch."""
    assert run(holds)

    monkeypatch.setattr(receivers, "PATIENT", 2)  # seconds: what is broken need not take long
    if switch == "encoded":
        monkeypatch.setattr(posting, "URL", lambda url, encoded: aiohttp.client.URL(url))
    else:
        owner, name = PLACES[place]
        real = getattr(owner, name)

        @functools.wraps(real)
        def with_it_turned(*arguments, **options):
            changed = {switch: turned} if switch in options else {}
            return real(*arguments, **options | changed)

        monkeypatch.setattr(owner, name, with_it_turned)
    assert not run(holds)


def test_every_keyword_of_aiohttp_has_its_line():
    """A new one needs a promise and a test."""
    given = {}

    def noting(real):
        def init(self, **options):
            given.update(options)
            real(self, **options)

        return init

    with pytest.MonkeyPatch.context() as patch:
        for owner in (posting.ReceiverLines, aiohttp.ClientSession):
            patch.setattr(owner, "__init__", noting(owner.__init__))

        async def open_and_close():
            await Poster(LOOPBACK, HostNames()).close()

        run(open_and_close)

    known = {switch for _, switch, _, _ in SWITCHES} | {"connector", "force_close"}
    assert given.keys() <= known
