"""The headers that clients of Durable Streams send, read by the grammar of the protocol."""

import contextlib
import re
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from towpath.errors import Invalid
from towpath.model.channels import checked_channel
from towpath.model.cursor import Cursor
from towpath.model.durable import Fork, NewStream, Producer
from towpath.model.instants import instant
from towpath.server.errors import Refusal
from towpath.server.request import Request

MOST_TTL: Final = 10**9  # seconds
MOST_TEXT: Final = 1_000  # characters of a producer's name, and of a Stream-Seq
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
_MOST_NUMBER: Final = 2**53 - 1
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - of RFC 9110
_MEDIA: Final = re.compile(rf"{_TOKEN}/{_TOKEN}(\s*;[\t -~]*)?", re.ASCII)
_SOURCE: Final = re.compile(r"/v1/stream/([^/?#]+)")


class SentHeaders:
    """The headers of a request, read by the grammar of the protocol."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def body(self) -> bytes:
        """Read the body."""
        shared = self._request.shared
        return await shared.bodies.read(
            self._request.receive, self._request.headers, shared.most_body
        )

    def text(self, name: str) -> str | None:
        """Return a header; refuse it if it is empty, too long or there twice."""
        key = name.encode()
        found = [value for each, value in self._request.scope["headers"] if each == key]
        if not found:
            return None
        value = str(found[0], "latin-1").strip()
        if len(found) > 1 or not value or len(value) > MOST_TEXT:
            message = f"send one {name} of 1 to {MOST_TEXT:,} characters, or none"
            raise Refusal(400, "invalid", message)
        return value

    def number(self, name: str) -> int | None:
        """Return a header that is a whole number."""
        text = self.text(name)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text) or int(text) > _MOST_NUMBER:
            raise Refusal(400, "invalid", f"{name} is not a whole number: {text[:100]!r}")
        return int(text)

    @property
    def closes(self) -> bool:
        """Whether the request closes the stream."""
        return self._request.headers.get(b"stream-closed", b"").strip().lower() == b"true"

    def media(self) -> str | None:
        """Return the media type."""
        text = self.text("content-type")
        if text is not None and not _MEDIA.fullmatch(text):
            raise Refusal(400, "invalid", f"{text[:100]!r} is not a media type")
        return text

    def producer(self) -> Producer | None:
        """Return the producer: all of its three headers, or none."""
        name = self.text("producer-id")
        epoch, seq = self.number("producer-epoch"), self.number("producer-seq")
        if name is None and epoch is None and seq is None:
            return None
        if name is None or epoch is None or seq is None:
            message = "send Producer-Id, Producer-Epoch and Producer-Seq together, or none of them"
            raise Refusal(400, "invalid", message)
        return Producer(name, epoch, seq)

    def new_stream(self) -> NewStream:
        """Return how a stream is to be made."""
        ttl, expires = self.number("stream-ttl"), self.text("stream-expires-at")
        if ttl is not None and expires is not None:
            raise Refusal(400, "invalid", "send Stream-TTL or Stream-Expires-At, not both")
        if ttl is not None and ttl > MOST_TTL:
            raise Refusal(400, "invalid", f"stream-ttl is at most {MOST_TTL:,} seconds")
        return NewStream(
            media=self.media(),
            ttl=None if ttl is None else ttl * 1_000_000,
            expires_at=None if expires is None else _instant(expires),
            is_closed=self.closes,
            fork=self._fork(),
        )

    def _fork(self) -> Fork | None:
        source = self.text("stream-forked-from")
        offset, more = self.text("stream-fork-offset"), self.number("stream-fork-sub-offset")
        if source is None:
            if offset is not None or more is not None:
                message = "a fork needs Stream-Forked-From, the path of its source"
                raise Refusal(400, "invalid", message)
            return None
        root: str = self._request.scope.get("root_path", "")
        match = _SOURCE.fullmatch(source.removeprefix(root))
        if match is None:
            message = f"Stream-Forked-From is a path such as /v1/stream/chat, not {source[:100]!r}"
            raise Refusal(400, "invalid", message)
        after = None if offset is None else Cursor.parse(offset)
        return Fork(checked_channel(unquote(match[1])), after, more or 0)


def _instant(text: str) -> int:
    with contextlib.suppress(ValueError, OverflowError, Invalid):
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and "T" in text.upper():
            return instant(at, "stream-expires-at")
    message = f"stream-expires-at is a time such as 2030-01-31T12:00:00Z, not {text[:100]!r}"
    raise Refusal(400, "invalid", message)
