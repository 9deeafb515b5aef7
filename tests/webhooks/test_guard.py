"""Where an attempt goes: checks 6 to 8 of the security checklist, and connections that are kept."""

import asyncio
import contextlib
from ipaddress import ip_address

import pytest

from tests.webhooks.certificates import server_tls, trusting_tls
from tests.webhooks.receivers import (
    OK,
    always_ok,
    answering,
    attempt,
    receiver,
    run,
    sender,
)
from tests.webhooks.scripts import length
from towpath.model.addresses import AddressGuard, networks_of
from towpath.webhooks.posting import _tried

PUBLIC, PRIVATE = "127.0.0.2", "127.0.0.1"
AS_IF_PUBLIC = AddressGuard(networks_of(f"{PUBLIC}/32"))
LAST = length(2, "Connection: close")


@contextlib.asynccontextmanager
async def rebinding(answers, serve):
    """A receiver at a public address; another at a private one, which must stay alone."""
    answers = iter(answers)
    async with (
        receiver(serve, host=PUBLIC) as here,
        receiver(always_ok, host=PRIVATE, port=here.port) as inner,
        sender(guard=AS_IF_PUBLIC, resolver=lambda _: next(answers)) as client,
    ):
        yield here.url("rebound.example"), client, here
        assert inner.connections == 0


def test_a_name_is_resolved_once_and_that_address_is_called():
    """Check 7."""

    async def once():
        async with rebinding([[PUBLIC], [PRIVATE]], always_ok) as (url, client, here):
            result = await client.send(attempt(url))
            assert (result.error_code, here.connections) == (None, 1)

    run(once)


def test_a_new_connection_to_a_name_that_is_private_now_is_refused():
    """Check 7."""

    async def changed():
        async with rebinding([[PUBLIC], [PRIVATE]], answering(LAST)) as (url, client, here):
            first = await client.send(attempt(url))
            client._names._known.clear()
            second = await client.send(attempt(url))
            assert (first.error_code, second.error_code, here.connections) == (
                None,
                "blocked_target",
                1,
            )

    run(changed)


def test_a_kept_connection_stays_with_the_address_that_was_judged():
    """Check 7."""

    async def kept():
        async with rebinding([[PUBLIC], [PRIVATE]], always_ok) as (url, client, here):
            await client.send(attempt(url))
            client._names._known.clear()
            result = await client.send(attempt(url))
            assert (result.error_code, here.connections, len(here.requests)) == (None, 1, 2)

    run(kept)


def test_the_second_try_of_a_kept_connection_is_judged_too():
    """Check 7."""

    async def dying(connection):
        await connection.request()
        await connection.send(OK)
        await connection.request()

    async def retried():
        async with rebinding([[PUBLIC], [PRIVATE]], dying) as (url, client, here):
            await client.send(attempt(url))
            client._names._known.clear()
            result = await client.send(attempt(url))
            assert (result.error_code, here.connections) == ("blocked_target", 1)

    run(retried)


@pytest.mark.parametrize("addresses", [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC], [PUBLIC, "::1"]])
def test_one_private_address_refuses_them_all(addresses):
    """Check 6."""

    async def mixed():
        async with rebinding([addresses], always_ok) as (url, client, here):
            result = await client.send(attempt(url))
            assert (result.error_code, here.connections) == ("blocked_target", 0)

    run(mixed)


@pytest.mark.parametrize(
    "address", ["fe80::1%eth0", "::ffff:127.0.0.2", "64:ff9b::7f00:2", "nonsense"]
)
def test_an_odd_answer_of_the_resolver_is_refused(address):
    """Check 4."""

    async def odd():
        async with rebinding([[PUBLIC, address]], always_ok) as (url, client, here):
            result = await client.send(attempt(url))
            expected = "dns_failed" if address == "nonsense" else "blocked_target"
            assert (result.error_code, here.connections) == (expected, 0)

    run(odd)


@pytest.mark.parametrize("address", ["10.1.2.3", "127.0.0.9"])
def test_an_outcome_names_no_address_that_a_name_resolved_to(address, caplog):
    """Check 24: It would tell a stranger what is inside."""

    async def failing():
        async with sender(resolver=lambda _: [address]) as client:
            return await client.send(attempt("http://inner.example:1/"))

    outcome = run(failing)

    assert outcome.error_code == ("blocked_target" if address == "10.1.2.3" else "connect_failed")
    assert address not in repr(outcome)
    assert address not in caplog.text


def test_another_address_is_tried_if_the_first_refuses():
    async def second():
        async with receiver(always_ok, host=PUBLIC) as here:
            addresses = ["127.0.0.3", PUBLIC]
            async with sender(resolver=lambda _: addresses) as client:
                result = await client.send(attempt(here.url("two.example")))
                assert (result.error_code, here.connections) == (None, 1)

    run(second)


@pytest.mark.parametrize(
    ("found", "tried"),
    [
        (["2a00::1", "2a00::2", "8.8.8.8"], ["2a00::1", "8.8.8.8"]),
        (["8.8.8.8", "8.8.4.4", "1.1.1.1"], ["8.8.8.8", "8.8.4.4"]),
        (["8.8.8.8"], ["8.8.8.8"]),
    ],
)
def test_two_addresses_are_tried_of_both_families_if_there_are_both(found, tried):
    addresses = tuple(map(ip_address, found))

    assert [str(each) for each in _tried(addresses)] == tried


def test_a_port_without_a_listener_is_not_a_connection():
    async def refused():
        async with receiver(always_ok) as here:
            pass
        async with sender() as client:
            return await client.send(attempt(here.url()))

    assert run(refused).error_code == "connect_failed"


def dying_at(second_answer, *, reset=False):
    """Reply the first request of the first connection, and end it at the second one."""

    async def serve(connection):
        if connection.number > 1:
            await always_ok(connection)
        await connection.request()
        await connection.send(OK)
        await connection.request()
        await connection.send(second_answer)
        if reset:
            connection.reset()

    return serve


@pytest.mark.parametrize("reset", [False, True])
def test_a_kept_connection_that_dies_before_its_first_byte_is_tried_once_more(reset):
    async def retried():
        async with receiver(dying_at(b"", reset=reset)) as here, sender() as client:
            await client.send(attempt(here.url()))
            result = await client.send(attempt(here.url()))
            assert (result.error_code, here.connections, len(here.requests)) == (None, 2, 3)
            assert here.requests[1].body == here.requests[2].body

    run(retried)


def test_a_kept_connection_that_dies_after_a_byte_is_not_tried_again():
    async def broken():
        async with receiver(dying_at(b"H")) as here, sender() as client:
            await client.send(attempt(here.url()))
            result = await client.send(attempt(here.url()))
            assert (result.error_code, here.connections) == ("reset", 1)

    run(broken)


def test_the_second_try_is_on_a_new_connection_though_another_one_is_kept():
    """A receiver that was restarted has closed them all."""

    async def restarted():
        both = asyncio.Event()

        async def serve(connection):
            if connection.number > 2:
                await always_ok(connection)
            await connection.request()
            if connection.number == 2:
                both.set()
            await both.wait()
            await connection.send(OK)
            await connection.request()

        async with receiver(serve) as here, sender() as client:
            await asyncio.gather(*(client.send(attempt(here.url())) for _ in range(2)))
            result = await client.send(attempt(here.url()))
            assert (result.error_code, here.connections) == (None, 3)

    run(restarted)


def test_a_new_connection_that_dies_is_not_tried_again():
    async def broken():
        async with receiver(answering()) as here, sender() as client:
            result = await client.send(attempt(here.url()))
            assert (result.error_code, here.connections) == ("reset", 1)

    run(broken)


def test_a_second_try_has_no_more_time_than_is_left():
    async def serve(connection):
        if connection.number > 1:
            await connection.hold()
        await dying_at(b"")(connection)

    async def timed():
        async with receiver(serve) as here, sender() as client:
            await client.send(attempt(here.url()))
            result = await client.send(attempt(here.url(), timeout=1))
            assert (result.error_code, here.connections) == ("timeout", 2)
            assert result.duration < 20_000_000

    run(timed)


def test_what_arrives_while_a_connection_rests_is_not_the_next_answer():
    """A receiver must not answer the requests of another subscription beforehand."""

    async def poisoned():
        sent = asyncio.Event()

        async def serve(connection):
            if connection.number > 1:
                await always_ok(connection)
            await connection.request()
            await connection.send(OK)
            await asyncio.sleep(0.05)  # the answer is read, and the connection rests
            await connection.send(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
            sent.set()
            await always_ok(connection)

        async with receiver(serve) as here, sender() as client:
            await client.send(attempt(here.url()))
            await sent.wait()
            await asyncio.sleep(0.05)
            result = await client.send(attempt(here.url()))
            assert (result.error_code, result.response_status, here.connections) == (None, 200, 2)

    run(poisoned)


def test_kept_connections_are_bounded(monkeypatch):
    """Each has a file descriptor, of which a process has few."""
    monkeypatch.setattr("towpath.webhooks.posting.MOST_OPEN", 3)

    async def many():
        together, arrived, closed = asyncio.Event(), [], asyncio.Semaphore(0)

        async def serve(connection):
            await connection.request()
            arrived.append(connection)
            if len(arrived) == 10:
                together.set()
            await together.wait()
            await connection.send(OK)
            await connection.hold()
            closed.release()

        async with receiver(serve) as here, sender() as client:
            await asyncio.gather(*(client.send(attempt(here.url())) for _ in range(10)))
            for _ in range(7):
                await asyncio.wait_for(closed.acquire(), 60)
            assert len(client._poster._kept.connector.open) == 3

    run(many)


def test_the_certificate_and_the_names_are_those_of_the_url():
    """Check 8."""
    tls, asked = server_tls.__wrapped__("hooks.example"), []
    tls.sni_callback = lambda _, name, __: asked.append(name)

    async def deliver():
        async with (
            receiver(always_ok, tls) as here,
            sender(tls=trusting_tls(), resolver=lambda _: ["127.0.0.1"]) as client,
        ):
            result = await client.send(attempt(here.url("hooks.example")))
            assert (result.error_code, result.response_status) == (None, 200)
            assert here.requests[0].headers["host"] == f"hooks.example:{here.port}"
            assert asked == ["hooks.example"]

    run(deliver)


@pytest.mark.parametrize(
    ("certified", "expired", "trusted"),
    [
        ("other.example", False, True),
        ("127.0.0.1", False, True),  # that of the address, and not of the name
        ("hooks.example", True, True),
        ("hooks.example", False, False),
    ],
)
def test_a_wrong_certificate_is_refused(certified, expired, trusted):
    """Check 8: Nothing is sent."""

    async def refused():
        options = {"tls": trusting_tls()} if trusted else {}
        async with (
            receiver(always_ok, server_tls(certified, expired=expired)) as here,
            sender(resolver=lambda _: ["127.0.0.1"], **options) as client,
        ):
            result = await client.send(attempt(here.url("hooks.example")))
            assert (result.error_code, result.response_status, here.requests) == (
                "tls_failed",
                None,
                [],
            )

    run(refused)


async def plain(connection):
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await connection.hold()


async def hanging_up(connection):
    await connection.reader.read(1)


async def saying_nothing(connection):
    await connection.hold()


@pytest.mark.parametrize(
    ("serve", "error"),
    [(plain, "tls_failed"), (hanging_up, "connect_failed"), (saying_nothing, "timeout")],
)
def test_a_receiver_that_does_not_speak_tls(serve, error):
    async def broken():
        async with receiver(serve) as here, sender() as client:
            url = here.url().replace("http:", "https:")
            return await client.send(attempt(url, timeout=1 if error == "timeout" else 60))

    assert run(broken).error_code == error


def test_a_receiver_that_is_silent_after_tls():
    async def silent(connection):
        await connection.hold()

    async def timed():
        async with (
            receiver(silent, server_tls("hooks.example")) as here,
            sender(tls=trusting_tls(), resolver=lambda _: ["127.0.0.1"]) as client,
        ):
            result = await client.send(attempt(here.url("hooks.example"), timeout=1))
            assert result.error_code == "timeout"
            assert result.duration < 20_000_000

    run(timed)
