"""Sends one attempt: signed, within its deadline; tells what was seen and decides nothing."""

import logging
import ssl
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final, Protocol, Self

from towpath.errors import InvalidHeader, InvalidTarget
from towpath.model.addresses import AddressGuard, networks_of
from towpath.model.attempts import (
    AttemptError,
    DeliveryRequest,
    content_of,
    retry_after_of,
)
from towpath.model.deliveries import AttemptOutcome
from towpath.model.payload import clean_text
from towpath.model.signatures import key_of, signature
from towpath.model.targets import TargetUrl, custom_headers
from towpath.settings import Settings
from towpath.webhooks.posting import MOST_EXCERPT, Poster, Reply
from towpath.webhooks.resolving import HostNames, Resolver, look_up

log: Final = logging.getLogger("towpath")

MOST_LOCATION: Final = 2_048
USER_AGENT: Final = f"Towpath/{version('towpath')}"


class Posts(Protocol):
    """What brings a request to its receiver."""

    async def post(
        self, target: TargetUrl, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> Reply:
        """Send one request; tell what came back until the deadline, or why nothing did."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class WebhookSender:
    """Sends attempts from one event loop, inside of `async with`."""

    def __init__(
        self,
        *,
        guard: AddressGuard | None = None,  # public addresses by default
        allow_http: bool = False,
        resolver: Resolver = look_up,
        tls: ssl.SSLContext | None = None,  # trusts the system's certificates by default
        poster: Posts | None = None,  # instead of the network
    ) -> None:
        self._guard = guard or AddressGuard()
        self._allow_http = allow_http
        self._names = HostNames(resolver)
        self._tls = tls
        self._given = poster

    @classmethod
    def of(cls, settings: Settings, resolver: Resolver = look_up) -> Self:
        """Return a sender that may call what the settings allow."""
        guard = AddressGuard(networks_of(settings.webhook_allow))
        return cls(guard=guard, allow_http=settings.webhook_http, resolver=resolver)

    async def __aenter__(self) -> Self:
        """Say what is allowed beyond the default, and get ready."""
        if self._guard.allowed:
            allowed = ", ".join(map(str, self._guard.allowed))
            log.warning("webhooks may call these networks, public or not: %s", allowed)
        if self._allow_http:
            log.warning("webhooks may be sent over http, which any machine on the way can read")
        self._poster: Posts = self._given or Poster(self._guard, self._names, self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._poster.close()
        self._names.close()

    async def send(self, request: DeliveryRequest) -> AttemptOutcome:
        """Make one request."""
        began = time.monotonic()
        try:
            target = TargetUrl.parse(request.url, allow_http=self._allow_http)
            headers = custom_headers(request.headers)
        except InvalidTarget:
            return _outcome(request, began, Reply(error=AttemptError.INVALID_URL))
        except InvalidHeader:
            return _outcome(request, began, Reply(error=AttemptError.INVALID_HEADER))
        body, kind = content_of(request)
        # The database's clock: a receiver refuses a timestamp of a machine whose clock is wrong.
        now = request.now + int((began - request.since) * 10**6)
        id, at = str(request.event), now // 10**6
        headers |= {
            "content-type": kind,
            "user-agent": USER_AGENT,
            "accept-encoding": "identity",
            "towpath-subscription": str(request.subscription),
            "webhook-id": id,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(id, at, body, list(map(key_of, request.secrets))),
        }
        answer = await self._poster.post(target, headers, body, request.timeout / 10**6)
        return _outcome(request, began, answer)


def _outcome(request: DeliveryRequest, began: float, answer: Reply) -> AttemptOutcome:
    duration = int((time.monotonic() - began) * 10**6)
    now = request.now + int((began - request.since) * 10**6) + duration
    location = answer.headers.get("location")
    return AttemptOutcome(
        response_status=answer.status,
        error_code=_error(answer),
        duration=duration,
        retry_after=retry_after_of(answer.headers.get("retry-after"), now),
        location=None if location is None else clean_text(location, MOST_LOCATION),
        excerpt=clean_text(answer.body[:MOST_EXCERPT].decode(errors="replace"), MOST_EXCERPT),
    )


def _error(answer: Reply) -> str | None:
    if answer.error is not None:
        return answer.error.value
    return None if answer.status and 200 <= answer.status < 300 else f"http_{answer.status}"  # noqa: PLR2004
