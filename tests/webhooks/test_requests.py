"""What a receiver gets: checks 13 to 18 of the security checklist."""

import asyncio
import json
import logging
import sys
import time

import pytest
import uvloop
from standardwebhooks import Webhook

from tests.webhooks.receivers import (
    EVENT,
    SECRET,
    always_ok,
    arrived,
    attempt,
    receiver,
    run,
    sender,
)
from towpath.model.attempts import BodyKind
from towpath.model.payload import Encoding
from towpath.model.signatures import new_secret
from towpath.settings import Settings
from towpath.webhooks import verify
from towpath.webhooks.sender import WebhookSender

JSON, TEXT, BASE64 = Encoding.JSON, Encoding.TEXT, Encoding.BASE64
ENVELOPE, PAYLOAD = BodyKind.ENVELOPE, BodyKind.PAYLOAD
STAMP = b'"timestamp":"2023-11-14T22:13:20.250000Z"'


BODIES = [
    '{"b": 1.0, "a":1e3}', '{"a":1,"a":2}', '"\\u2028 \u2028 \\/ /"', "[ 1 , 2 ]", "1.0", "null",
    '"' + "x" * 2**20 + '"', '{"é":"😀"}',
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_the_stored_text_is_sent_and_signed_byte_by_byte(body):
    """Check 14."""
    request = run(lambda: arrived(body=body))

    assert request.body == b'{"type":"order.paid",' + STAMP + b',"data":' + body.encode() + b"}"
    assert verify(request.headers, request.body, SECRET).payload["type"] == "order.paid"
    Webhook(SECRET).verify(request.body, request.headers)


@pytest.mark.parametrize(
    ("form", "encoding", "body", "sent", "kind"),
    [
        (PAYLOAD, JSON, '{"a": 1.0}', b'{"a": 1.0}', "application/json"),
        (PAYLOAD, TEXT, "é", "é".encode(), "text/plain; charset=utf-8"),
        (PAYLOAD, TEXT, "", b"", "text/plain; charset=utf-8"),
        (PAYLOAD, BASE64, "AP8=", b"\x00\xff", "application/octet-stream"),
        (ENVELOPE, TEXT, 'a"b', b'"a\\"b","encoding":"text"}', "application/json"),
        (ENVELOPE, BASE64, "AP8=", b'"AP8=","encoding":"base64"}', "application/json"),
    ],
)
def test_the_body_has_the_form_that_the_subscription_wants(form, encoding, body, sent, kind):
    """Check 14."""
    request = run(lambda: arrived(kind=form, encoding=encoding, body=body))

    assert request.body.endswith(sent)
    assert form == PAYLOAD or json.loads(request.body)["data"] == body
    assert form == ENVELOPE or request.body == sent
    assert request.headers["content-type"] == kind
    assert verify(request.headers, request.body, SECRET).body == request.body


def test_an_event_without_a_type_has_null():
    assert run(lambda: arrived(type=None)).body.startswith(b'{"type":null,')
    assert run(lambda: arrived(type='a"b')).body.startswith(b'{"type":"a\\"b",')


def test_the_headers_say_who_sends_what_to_whom():
    request = run(lambda: arrived(headers={"Authorization": "Basic eA=="}))

    assert request.headers["webhook-id"] == str(EVENT)
    assert "." not in request.headers["webhook-id"]  # check 15
    assert request.headers["towpath-subscription"] == "7"
    assert request.headers["user-agent"].startswith("Towpath/")
    assert request.headers["authorization"] == "Basic eA=="


def test_the_timestamp_follows_the_clock_of_the_database():
    """Checks 16 and 38: The clock of this machine may be an hour wrong."""
    base = 1_800_000_000
    request = run(lambda: arrived(now=base * 10**6, since=time.monotonic() - 100))

    assert base + 100 <= int(request.headers["webhook-timestamp"]) < base + 200


def test_attempts_differ_in_their_timestamp_and_not_in_their_id():
    """Check 16."""
    first, second = run(lambda: arrived(now=10**15)), run(lambda: arrived(now=2 * 10**15))

    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
    assert first.body == second.body


def test_both_secrets_sign_while_they_overlap():
    """Check 17: The newest comes first."""
    new, old = new_secret(), new_secret()
    both = run(lambda: arrived(secrets=[new, old]))

    assert len(both.headers["webhook-signature"].split(" ")) == 2
    for secret in (new, old):
        Webhook(secret).verify(both.body, both.headers)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"url": "ftp://example.com/"}, "invalid_url"),
        ({"url": "https://user:password@example.com/"}, "invalid_url"),
        ({"url": "https://127.1/"}, "invalid_url"),
        ({"url": "https://10.0.0.1/"}, "blocked_target"),
        ({"headers": {"Host": "inner"}}, "invalid_header"),
        ({"headers": {"X-A": "b\r\nc: d"}}, "invalid_header"),
    ],
)
def test_what_was_stored_is_checked_again_before_it_is_sent(changes, error):
    """Checks 1, 2, 3 and 13."""

    async def refused():
        async with receiver(always_ok) as here, sender() as client:
            result = await client.send(attempt(**{"url": here.url(), **changes}))
            assert (result.error_code, result.response_status, here.connections) == (error, None, 0)

    run(refused)


def test_http_needs_to_be_allowed_at_each_attempt():
    """Check 1."""

    async def refused():
        async with receiver(always_ok) as here, sender(allow_http=False) as client:
            result = await client.send(attempt(here.url()))
            assert (result.error_code, here.connections) == ("invalid_url", 0)

    run(refused)


def test_no_secret_is_shown(caplog):
    """Check 18: Neither in a log at DEBUG nor in a repr."""
    caplog.set_level(logging.DEBUG)
    sent = attempt("http://127.0.0.1:1/", headers={"authorization": "Bearer hunter2"})

    async def failing():
        async with sender() as client:
            return await client.send(sent)

    result = run(failing)

    shown = f"{sent!r} {result!r} {caplog.text}"
    assert result.error_code == "connect_failed"
    assert SECRET not in shown
    assert "hunter2" not in shown


def test_the_settings_say_what_may_be_called():
    """Check 11."""

    async def called(**settings):
        async with receiver(always_ok) as here, WebhookSender.of(Settings(**settings)) as client:
            return (await client.send(attempt(here.url()))).error_code

    assert run(called) == "invalid_url"
    assert run(lambda: called(webhook_http=True)) == "blocked_target"
    assert run(lambda: called(webhook_http=True, webhook_allow="127.0.0.0/8")) is None
    assert "hunter2" not in repr(Settings(webhook_key="hunter2"))


def test_what_is_allowed_is_logged_at_start(caplog):
    """Check 11."""

    async def start(**options):
        async with sender(**options):
            pass

    run(start)

    assert "127.0.0.0/8" in caplog.text
    caplog.clear()
    run(lambda: start(guard=None, allow_http=False))
    assert not caplog.text


def test_deliveries_work_in_the_loop_of_the_server():
    async def deliver():
        async with receiver(always_ok) as here, sender(resolver=lambda _: ["127.0.0.1"]) as client:
            results = [await client.send(attempt(here.url("a.example"))) for _ in range(3)]
            blocked = await client.send(attempt(here.url("[::1]")))
            assert [each.error_code for each in results] == [None] * 3
            assert (here.connections, blocked.error_code) == (1, "blocked_target")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(deliver())


def test_a_receiver_needs_no_extra():
    """`verify` and `job_id` are there without aiohttp and cryptography."""
    code = (
        "import sys\n"
        "sys.modules['aiohttp'] = sys.modules['cryptography'] = None\n"
        "from towpath.webhooks import Received, job_id, verify\n"
        "print(job_id('stripe', 'evt_1'))\n"
    )

    async def told():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        return out.decode()

    assert len(run(told).strip()) == 36
