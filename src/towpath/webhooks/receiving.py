"""For receivers of webhooks: whether one is genuine, and whether it has come before."""

import time
from collections.abc import Mapping, Sequence
from uuid import UUID

from towpath.model.ids import uuid8_of
from towpath.model.signatures import Received, verified


def verify(headers: Mapping[str, str], body: bytes, secret: str | Sequence[str]) -> Received:
    """Return the webhook if a secret has signed it in the last five minutes.

    Pass the bytes of the body as they arrived, and all secrets that may have signed it. Every other
    webhook raises InvalidSignature. It works for all senders that follow Standard Webhooks.
    """
    return verified(headers, body, secret, time.time())


def job_id(source: str, event_id: str) -> UUID:
    """Return the id of the job for an event of a sender: the same id for the same event.

    An enqueue with the id of an existing job adds nothing, so a webhook that arrives twice runs
    nothing twice, as long as its job is kept (`retention`).
    """
    return uuid8_of(f"webhook\0{source}\0{event_id}".encode())
