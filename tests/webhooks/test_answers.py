"""What becomes of an answer, however odd it is: checks 9 and 20 to 24 of the security checklist."""

import asyncio
import gzip
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.webhooks.receivers import OK, always_ok, answering, attempt, receiver, run, sender
from tests.webhooks.scripts import SCRIPTS, head, length
from towpath.model.attempts import MOST_RETRY_AFTER, retry_after_of
from towpath.webhooks import posting

SHORT = [(name, *rest) for name, *rest in SCRIPTS if 0 < len(rest[0]) < 200]


def scripted(pieces, then, sent):
    """Reply the first connection by these pieces; every other one as it should be."""

    async def serve(connection):
        if connection.number == 1:
            await connection.request()
            try:
                for piece in pieces:
                    await connection.send(piece)
                    await read_by_the_other_side()
                if then == "reset":
                    connection.reset()
            finally:
                sent.set()
            if then != "keep":
                return
        await always_ok(connection)

    return serve


async def read_by_the_other_side():
    """Let the client, which runs in the same loop, read what was sent."""
    for _ in range(4):
        await asyncio.sleep(0)


async def outcome_of(pieces, then):
    sent = asyncio.Event()
    async with receiver(scripted(pieces, then, sent)) as here, sender() as client:
        result = await client.send(attempt(here.url()))
        await sent.wait()
        following = await client.send(attempt(here.url()))
        # Whatever is left of one answer is not taken for the next one.
        assert (following.error_code, following.response_status, following.excerpt) == (
            None,
            200,
            "ok",
        )
        return result.error_code, result.response_status, result.excerpt


@pytest.mark.parametrize(
    ("answer", "then", "error", "status"),
    [script[1:] for script in SCRIPTS],
    ids=[script[0] for script in SCRIPTS],
)
def test_every_scripted_answer_ends_as_the_reference_says(answer, then, error, status):
    """WH-4."""
    assert run(lambda: outcome_of([answer], then))[:2] == (error, status)


@pytest.mark.parametrize(
    ("answer", "then", "error", "status"),
    [script[1:] for script in SHORT],
    ids=[script[0] for script in SHORT],
)
def test_an_answer_ends_in_the_same_way_when_its_bytes_come_one_by_one(answer, then, error, status):
    every_byte = [answer[n : n + 1] for n in range(len(answer))]

    assert run(lambda: outcome_of(every_byte, then))[:2] == (error, status)


@pytest.mark.parametrize("name", ["chunks", "102 and 103 before it", "204 with a body"])
def test_a_cut_at_any_byte_changes_nothing(name):
    [(answer, then, error, status)] = [rest for known, *rest in SCRIPTS if known == name]

    async def cut():
        for at in range(1, len(answer)):
            outcome = await outcome_of([answer[:at], answer[at:]], then)
            assert outcome[:2] == (error, status), at

    run(cut)


async def answered(serve, **changes):
    """Send one attempt to a receiver; return its result and what the receiver has seen."""
    async with receiver(serve) as here, sender() as client:
        return await client.send(attempt(here.url(), **changes)), here


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure(status):
    """Check 9: It is not followed, and its target is kept as text."""

    async def redirected():
        async with receiver(always_ok) as elsewhere:
            answer = head(
                f"{status} Moved", f"Location: {elsewhere.url()}", "Content-Length: 0", body=b""
            )
            result, here = await answered(answering(answer))
            assert elsewhere.connections == 0
            assert (result.error_code, result.location) == (f"http_{status}", elsewhere.url())
            assert len(here.requests) == 1
        long = head("302 Moved", f"Location: http://a/{'x' * 7000}", "Content-Length: 0", body=b"")
        result, _ = await answered(answering(long))
        assert len(result.location) == 2048

    run(redirected)


def test_8_kib_of_the_body_are_kept_and_the_rest_is_not_read():
    """Check 21."""
    sent = 0

    async def endless(connection):
        nonlocal sent
        await connection.request()
        await connection.send(length(10**12, body=b""))
        while True:
            await connection.send(b"x" * 65536)
            sent += 65536

    result, _ = run(lambda: answered(endless))

    assert (result.error_code, result.response_status, result.excerpt) == (None, 200, "x" * 8192)
    assert sent < 64 * 2**20  # what the buffers of both sides hold, not a terabyte


@pytest.mark.parametrize("size", [8191, 8192, 10**7])
def test_a_connection_is_kept_only_behind_a_body_that_was_read_to_its_end(size):
    """Check 21."""
    body = b"y" * size

    async def twice():
        serve = answering(length(size, body=body), OK)
        async with receiver(serve) as here, sender() as client:
            first = await client.send(attempt(here.url()))
            await client.send(attempt(here.url()))
            assert first.excerpt == "y" * min(size, 8192)
            assert here.connections == (1 if size <= 8192 else 2)

    run(twice)


def test_a_compressed_body_is_not_inflated():
    """Check 22."""
    bomb = gzip.compress(bytes(50 * 2**20))
    answer = length(len(bomb), "Content-Encoding: gzip", body=bomb)

    result, here = run(lambda: answered(answering(answer)))

    assert (result.error_code, result.response_status) == (None, 200)
    assert len(result.excerpt) <= 8192
    assert set(result.excerpt[20:100]) != {"\N{REPLACEMENT CHARACTER}"}  # not fifty million NULs
    assert here.requests[0].headers["accept-encoding"] == "identity"


def test_the_excerpt_can_be_stored_by_every_database():
    """Check 23: NUL, and bytes that are not UTF-8."""
    body = b"<script>\0\xff\xc3\xa9\xed\xa0\x80"
    result, _ = run(lambda: answered(answering(length(len(body), body=body))))

    assert result.excerpt.startswith("<script>\N{REPLACEMENT CHARACTER}")
    assert "é" in result.excerpt
    assert "\0" not in result.excerpt
    result.excerpt.encode()


async def drip(connection):
    """Send the body one byte at a time, for ever."""
    await connection.request()
    await connection.send(length(10**6, body=b""))
    while True:
        await connection.send(b"x")
        await asyncio.sleep(0.05)


async def drip_head(connection):
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\nX-A: ")
    while True:
        await connection.send(b"x")
        await asyncio.sleep(0.05)


async def silent(connection):
    await connection.request()
    await connection.hold()


async def never_reading(connection):
    await asyncio.Event().wait()


async def dripping_hints(connection):
    await connection.request()
    while True:
        await connection.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("serve", "status"),
    [(drip, 200), (drip_head, None), (silent, None), (never_reading, None), (dripping_hints, None)],
)
def test_one_deadline_ends_every_receiver_that_takes_its_time(serve, status):
    """Check 20: The status is told, if it came."""
    large = '"' + "x" * 2**20 + '"'  # more than the buffers of a connection that is not read

    result, _ = run(lambda: answered(serve, timeout=1, body=large))

    assert (result.error_code, result.response_status) == ("timeout", status)
    assert 1_000_000 <= result.duration < 20_000_000


def test_a_connection_that_is_given_up_is_closed_though_it_is_never_read(monkeypatch):
    """What is left in our buffer must not keep it open."""
    made, real = [], posting._judged_socket
    monkeypatch.setattr(
        posting, "_judged_socket", lambda *info: made.append(real(*info)) or made[-1]
    )

    async def given_up():
        async with receiver(never_reading) as here, sender() as client:
            large = '"' + "x" * 2**25 + '"'
            result = await client.send(attempt(here.url(), timeout=1, body=large))
            assert result.error_code == "timeout"
            await read_by_the_other_side()
            assert [each.fileno() for each in made] == [-1]

    run(given_up)


def test_an_answer_before_the_request_is_read_counts():
    async def early(connection):
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(head("413 Too Large", "Content-Length: 0", body=b""))
        await connection.hold()

    result, _ = run(lambda: answered(early, body='"' + "x" * 2**22 + '"'))

    assert (result.error_code, result.response_status) == ("http_413", 413)


NOW = 1_700_000_000_000_000


def date(**after):
    at = datetime.fromtimestamp(NOW / 10**6, UTC) + timedelta(**after)
    return format_datetime(at, usegmt=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        (" 120 ", 120),
        ("0", 0),
        ("315360000", MOST_RETRY_AFTER // 10**6),  # ten years
        ("9" * 5000, MOST_RETRY_AFTER // 10**6),  # more digits than Python reads
        (date(minutes=2), 120),
        (date(days=4000), MOST_RETRY_AFTER // 10**6),
        (date(minutes=-2), 0),
        ("Tue, 14 Nov 2023 22:15:20 -0000", 120),
        ("-7", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("٣", None),
        ("Tue, 99 Nov 2023 99:99:99 GMT", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text, seconds):
    assert retry_after_of(text, NOW) == (None if seconds is None else seconds * 10**6)


def test_retry_after_is_told():
    busy = head("503 Busy", "Retry-After: 90", "Content-Length: 0", body=b"")
    result, _ = run(lambda: answered(answering(busy)))

    assert (result.error_code, result.retry_after) == ("http_503", 90_000_000)
