"""Signatures and secrets: checks 15 to 19 of the security checklist."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from towpath.errors import (
    Invalid,
    InvalidPayload,
    InvalidSecret,
    InvalidSignature,
    KeyMissing,
    SealBroken,
    TowpathError,
)
from towpath.model.sealing import SealingKeys, new_key
from towpath.model.signatures import key_of, new_secret, signature, verified

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
NOW = 1_700_000_000
BODY = b'{"test": 2432232314}'


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_vectors_that_all_our_verifiers_share(vector):
    """Checks 15 and 19; the TypeScript client runs the same file."""
    headers, secrets = vector["headers"], vector["secrets"]
    if vector["accepted"]:
        received = verified(headers, vector["body"].encode(), secrets, vector["now"])
        assert received.id == vector["headers"].get("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
    else:
        with pytest.raises((InvalidSignature, InvalidSecret)):
            verified(headers, vector["body"].encode(), secrets, vector["now"])


def signed(secrets, *, id="evt-1", at=NOW, body=BODY):
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": signature(id, at, body, [key_of(each) for each in secrets]),
    }


def test_the_official_verifier_accepts_what_we_sign():
    """Check 15."""
    secret, now = new_secret(), int(time.time())

    payload = Webhook(secret).verify(BODY, signed([secret], at=now))

    assert payload == {"test": 2432232314}


def test_we_accept_what_the_official_library_signs():
    """Check 15."""
    secret, at = new_secret(), datetime.fromtimestamp(NOW, UTC)
    token = Webhook(secret).sign("msg_1", at, BODY.decode())
    headers = {
        "Webhook-Id": "msg_1", "Webhook-Timestamp": str(NOW), "WEBHOOK-SIGNATURE": f"v2,x {token}",
    }  # fmt: skip

    received = verified(headers, BODY, secret, NOW + 299)

    assert (received.id, received.at, received.payload) == ("msg_1", at, {"test": 2432232314})


def test_while_secrets_overlap_each_of_them_verifies():
    """Check 17: The newest comes first."""
    new, old = new_secret(), new_secret()
    headers = signed([new, old])
    first, second = headers["webhook-signature"].split(" ")

    assert signed([new])["webhook-signature"] == first
    assert signed([old])["webhook-signature"] == second
    for given in (new, old, [new], [new_secret(), old]):
        assert verified(headers, BODY, given, NOW).id == "evt-1"
    with pytest.raises(InvalidSignature):
        verified(headers, BODY, new_secret(), NOW)


@pytest.mark.parametrize("away", [-301, -300, 0, 300, 301])
def test_a_timestamp_may_be_five_minutes_away_in_both_directions(away):
    """Check 19."""
    secret = new_secret()
    headers = signed([secret], at=NOW + away)
    if abs(away) <= 300:
        assert verified(headers, BODY, secret, NOW)
    else:
        with pytest.raises(InvalidSignature, match="five minutes"):
            verified(headers, BODY, secret, NOW)


TOKENS = [
    "", " ", "v1", "v1,", ",", "v1,,", "v1,a,b", "v1,!!!", "v1,é", "v1,\udcff", "v2,{right}",
    "{bare}", "V1,{right}", "v1 {bare}", "v1;{bare}", "v1,{bare}=", "v1a,{bare}", "\x00", "😀,😀",
]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_a_malformed_token_raises_our_exception(token):
    """Check 19."""
    secret = new_secret()
    headers = signed([secret])
    right = headers["webhook-signature"]
    headers["webhook-signature"] = token.format(right=right, bare=right.removeprefix("v1,"))

    with pytest.raises(InvalidSignature, match="no signature"):
        verified(headers, BODY, secret, NOW)
    headers["webhook-signature"] += f" {right}"
    assert verified(headers, BODY, secret, NOW)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, "", "1e9", "-1", "1_7", "٣", " 1", "9" * 12, "a.b", "a\n"])
def test_a_missing_or_malformed_header_raises_our_exception(name, value):
    """Check 19: An id with a dot could be split in two ways."""
    secret = new_secret()
    headers = {**signed([secret]), name: value}
    if value is None:
        del headers[name]

    with pytest.raises(InvalidSignature, match="not accepted"):
        verified(headers, BODY, secret, NOW)


def test_a_signed_text_cannot_be_split_elsewhere():
    """Else one with a number in front of its body could be sent again later, as another one."""
    secret = new_secret()
    body = f"{NOW + 3000}.5".encode()
    headers = signed([secret], body=body)
    moved = {**headers, "webhook-id": f"evt-1.{NOW}", "webhook-timestamp": str(NOW + 3000)}

    assert verified(headers, body, secret, NOW)
    with pytest.raises(InvalidSignature, match="webhook-id"):
        verified(moved, b"5", secret, NOW + 3000)


def test_a_body_that_was_parsed_before_is_refused():
    for body in ({}, "text", bytearray(b"x")):
        with pytest.raises(Invalid, match="the bytes that arrived"):
            verified({}, body, new_secret(), NOW)


def test_a_body_need_not_be_json():
    secret = new_secret()
    received = verified(signed([secret], body=b"\xff"), b"\xff", secret, NOW)

    assert received.body == b"\xff"
    with pytest.raises(InvalidPayload, match="not JSON"):
        _ = received.payload


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_short",
        "whsec_" + "A" * 28,
        "whsec_" + "A" * 92,
        "whsec_" + "ü" * 40,
        7,
        None,
    ],
)
def test_a_secret_has_24_to_64_bytes(secret):
    """Check 18: An empty one, as of a variable that is not set, would let every sender in."""
    with pytest.raises(InvalidSecret) as refused:
        key_of(secret)
    assert "AAAA" not in str(refused.value)


def test_new_secrets_are_long_and_differ():
    """Check 18."""
    made = {new_secret() for _ in range(100)}

    assert len(made) == 100
    assert {len(key_of(each)) for each in made} == {32}
    unpadded = made.pop().rstrip("=")
    assert len(key_of(unpadded)) == 32


def test_what_is_sealed_opens_for_its_subscription_only():
    """Check 18."""
    keys = SealingKeys(new_key())
    sealed = keys.seal("whsec_…", 7)

    assert keys.open(sealed, 7) == "whsec_…"
    assert "whsec" not in sealed
    assert sealed != keys.seal("whsec_…", 7)
    with pytest.raises(SealBroken, match="subscription 8"):
        keys.open(sealed, 8)


def test_the_first_key_seals_and_all_open():
    """Check 18: A new key goes in front of the old one."""
    old, new = new_key(), new_key()
    sealed = SealingKeys(old).seal("x", 1)
    both = SealingKeys(f"{new}, {old}")

    assert both.open(sealed, 1) == "x"
    assert not both.is_current(sealed)
    again = both.seal("x", 1)
    assert both.is_current(again)
    assert SealingKeys(new).open(again, 1) == "x"
    with pytest.raises(KeyMissing, match="TOWPATH_WEBHOOK_KEY"):
        SealingKeys(new).open(sealed, 1)


def test_without_a_key_nothing_is_sealed():
    for text in ("", ",", " , "):
        with pytest.raises(KeyMissing, match="towpath webhooks key"):
            SealingKeys(text).seal("x", 1)


@pytest.mark.parametrize("position", range(0, 60, 3))
def test_a_sealed_text_that_was_changed_does_not_open(position):
    keys = SealingKeys(new_key())
    sealed = keys.seal("secret text", 1)
    changed = sealed[:position] + ("A" if sealed[position] != "A" else "B") + sealed[position + 1 :]

    with pytest.raises((SealBroken, KeyMissing)):
        keys.open(changed, 1)


@pytest.mark.parametrize("text", ["", "1", "1.", "..", "1..", "2.x.y", "1.\0.é", "x" * 10_000])
def test_rubbish_does_not_open(text):
    with pytest.raises((SealBroken, KeyMissing)):
        SealingKeys(new_key()).open(text, 1)


def test_no_key_is_shown():
    """Check 18."""
    key = new_key()
    keys = SealingKeys(key)

    assert key not in repr(keys)
    for text in (key[:-4], f"{key},{key[:20]}", f"{key};"):
        with pytest.raises(TowpathError) as refused:
            SealingKeys(text)
        assert key[:20] not in str(refused.value)
