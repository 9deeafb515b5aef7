"""Receivers in memory, for tests: the whole way of a delivery but for the network."""

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Struct

from towpath.model.attempts import AttemptError
from towpath.model.signatures import Received, verified
from towpath.model.targets import TargetUrl
from towpath.webhooks.posting import Reply

NO_CONTENT: Final = 204
ENVELOPE: Final = frozenset({"type", "timestamp", "data"})


class ReceivedRequest(Struct, frozen=True):
    """A request that has arrived."""

    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def payload(self) -> Any:
        """The payload of the event: out of its envelope, or the body itself."""
        kind = self.headers["content-type"]
        if kind != "application/json":
            return self.body.decode() if kind.startswith("text/") else self.body
        found: Any = json.loads(self.body)
        is_envelope = isinstance(found, dict) and ENVELOPE.issubset(cast("dict[str, Any]", found))
        return cast("Any", found["data"] if is_envelope else found)

    def verified(self, secret: str) -> Received:
        """Return what was received if the secret has signed it; else raise InvalidSignature."""
        at = int(self.headers["webhook-timestamp"])
        return verified(self.headers, self.body, secret, at)


class MemoryReceiver:
    """A receiver: keeps its requests, and answers 204 unless told otherwise."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[ReceivedRequest] = []
        self._answers: deque[Reply] = deque()

    def answers(self, *statuses: int | AttemptError, headers: Mapping[str, str] = {}) -> None:
        """Answer the next requests with these statuses; an AttemptError is no answer."""
        for each in statuses:
            if isinstance(each, AttemptError):
                self._answers.append(Reply(error=each))
            else:
                self._answers.append(Reply(status=each, headers=headers))

    def take(self, request: ReceivedRequest) -> Reply:
        """Keep a request and answer it."""
        self.requests.append(request)
        return self._answers.popleft() if self._answers else Reply(status=NO_CONTENT)


class MemoryPoster:
    """Brings requests to receivers in memory; there is none at any other URL."""

    def __init__(self) -> None:
        self.receivers: dict[str, MemoryReceiver] = {}

    async def post(
        self, target: TargetUrl, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> Reply:
        """Send one request."""
        del timeout
        await asyncio.sleep(0)
        receiver = self.receivers.get(target.url)
        if receiver is None:
            return Reply(error=AttemptError.CONNECT_FAILED)
        return receiver.take(ReceivedRequest(target.url, dict(headers), body))

    async def close(self) -> None:
        """Do nothing."""
