"""One attempt of a delivery: what is sent, and what was seen (docs/reference/webhooks.md)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from towpath.model import payload
from towpath.model.instants import as_datetime
from towpath.model.payload import Encoding

MOST_RETRY_AFTER: Final = 365 * 86_400 * 10**6  # microseconds
_SECONDS: Final = re.compile(r"[0-9]+")
_MOST_DIGITS: Final = 18


class AttemptError(StrEnum):
    """Why an attempt failed that got no answer, or none that can be read."""

    TIMEOUT = "timeout"
    DNS_FAILED = "dns_failed"
    DNS_TIMEOUT = "dns_timeout"
    CONNECT_FAILED = "connect_failed"
    TLS_FAILED = "tls_failed"
    RESET = "reset"
    BAD_ANSWER = "bad_answer"
    ANSWER_TOO_LARGE = "answer_too_large"
    BLOCKED_TARGET = "blocked_target"
    INVALID_URL = "invalid_url"
    INVALID_HEADER = "invalid_header"


class BodyKind(StrEnum):
    """What the body of a request holds."""

    ENVELOPE = "envelope"  # type, timestamp and data
    PAYLOAD = "payload"  # the payload alone


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRequest:
    """All that one request needs. Instants and durations are microseconds."""

    subscription: int
    url: str
    secrets: Sequence[str] = field(repr=False)  # the newest first
    headers: Mapping[str, str] = field(repr=False)  # custom ones, which may hold credentials
    kind: BodyKind
    timeout: int
    event: UUID
    type: str | None
    at: int  # when the event was published
    body: str = field(repr=False)  # the payload as stored
    encoding: Encoding
    now: int  # the database's clock when the attempt was claimed,
    since: float  # and the monotonic clock of this process at the same time


def content_of(request: DeliveryRequest) -> tuple[bytes, str]:
    """Return the body to send and its content type; the stored text is not written again."""
    if request.kind == BodyKind.PAYLOAD:
        types = {Encoding.JSON: "application/json", Encoding.TEXT: "text/plain; charset=utf-8"}
        content_type = types.get(request.encoding, "application/octet-stream")
        return payload.raw_bytes(request.body, request.encoding), content_type
    type = msgspec.json.encode(request.type)
    at = as_datetime(request.at).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
    if request.encoding == Encoding.JSON:
        data, end = request.body.encode(), b"}"
    else:
        data = msgspec.json.encode(request.body)
        end = b',"encoding":"%s"}' % request.encoding.encode()
    return b"".join((b'{"type":', type, b',"timestamp":"', at, b'","data":', data, end)), (
        "application/json"
    )


def retry_after_of(text: str | None, now: int) -> int | None:
    """Read the header Retry-After, seconds or a date; None if it is missing or rubbish."""
    text = (text or "").strip()
    if _SECONDS.fullmatch(text):
        after = int(text) * 10**6 if len(text) < _MOST_DIGITS else MOST_RETRY_AFTER
    else:
        try:
            at = parsedate_to_datetime(text)
            after = int(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 10**6) - now
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(max(after, 0), MOST_RETRY_AFTER)
