"""One route: reads a request, calls its handler and writes the answer."""

from typing import Any, Final, TypeGuard

import msgspec

from towpath.server.bodies import Receive, Scope, Send, decoded, query_of, read_query
from towpath.server.errors import Refusal, body_of, refusal
from towpath.server.pages import refusal_page
from towpath.server.request import Request
from towpath.server.routes import Answer, Route, Streamed, from_path
from towpath.server.shared import Shared

Headers = tuple[tuple[bytes, bytes], ...]
Written = tuple[int, bytes, bytes, Headers]
"""Status, media type, body, and additional headers."""


NO_HEADERS: Final[Headers] = ()
JSON: Final = b"application/json"
HTML: Final = "text/html; charset=utf-8"
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE_HEADERS: Final = (
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
ALWAYS: Final = (b"x-content-type-options", b"nosniff")
NOT_STORED: Final = (b"cache-control", b"no-store")
_encoder: Final = msgspec.json.Encoder()


class Endpoint:
    """Answers the requests of one route."""

    def __init__(self, shared: Shared, route: Route) -> None:
        self.path = route.path
        self._shared = shared
        self._route = route
        self._media = route.media.encode()
        self._decoder: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(route.takes) if route.takes else None
        )
        self._most = route.most or shared.most_body
        # A body without required fields may be left out.
        self._may_be_empty = is_struct(route.takes) and not any(
            field.required for field in msgspec.structs.fields(route.takes)
        )

    async def answer(
        self, scope: Scope, receive: Receive, parameters: dict[str, str]
    ) -> Written | Streamed:
        """Return the answer to a request; `parameters` are those of its path."""
        route = self._route
        request = await self._request(scope, receive)
        if not route.is_open:
            request.refuse_if_closed()
        arguments: dict[str, Any] = {}
        for name, text in parameters.items():
            arguments[name] = from_path(text, route.path_types[name], route.path)
        if self._decoder is not None:
            arguments["body"] = await self._body(request, self._decoder)
        if route.query is not None:
            arguments["query"] = read_query(query_of(scope), route.query)
        elif scope["query_string"] and not route.is_open:
            read_query(query_of(scope), NoQuery)
        body = answer = await route.handler(request, **arguments)
        if isinstance(body, Streamed):
            return body
        status, headers, media = route.status, NO_HEADERS, self._media
        if isinstance(body, Answer):
            status, headers, body = answer.status or status, answer.headers, answer.body
            media = answer.media or media
        if body is None:
            return status, b"", b"", headers
        return status, media, _encoded(body), headers

    async def _request(self, scope: Scope, receive: Receive) -> Request:
        shared, is_open = self._shared, self._route.is_open
        channels: tuple[str, ...] | None = None
        if self._route.takes_pass:
            scope, channels = await shared.redeemed(scope)
        request = shared.cached_request(scope, receive)
        if request is None:
            request = await shared.request(scope, receive, is_open=is_open)
        request.pass_channels = channels
        return request

    async def _body(self, request: Request, decoder: "msgspec.json.Decoder[Any]") -> Any:
        media = request.headers.get(b"content-type", JSON)
        if media != JSON and not media.lower().startswith(JSON):
            raise Refusal(415, "unsupported_media_type", "send JSON, as application/json")
        # Rules may depend on the body, so it is read before they are checked. An anonymous
        # caller may not make the server read a large one.
        is_anonymous = request.caller.kind == "anonymous"
        most = min(self._most, self._shared.most_body) if is_anonymous else self._most
        request.body = await self._shared.bodies.read(request.receive, request.headers, most)
        if not request.body and self._may_be_empty:
            return decoder.decode(b"{}")
        return await decoded(request.body, decoder)


def _encoded(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else _encoder.encode(body)


def is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    """Return whether a type is a struct; the body of a record is a dict."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a route without query parameters."""


def refused(error: Exception, scope: Scope) -> Written:
    """Return the answer to an error: JSON, or a page for a browser that opens the path."""
    found = refusal(error)
    headers = tuple((name.encode(), value.encode()) for name, value in found.headers.items())
    if not opens_page(scope):
        return found.status, JSON, body_of(found), headers
    root = scope.get("root_path", "")
    is_home = scope["path"].removeprefix(root) in {"", "/"}
    text = refusal_page(found.status, str(found), root, is_home=is_home)
    of_page = dict(PAGE_HEADERS)  # a stream has a policy of its own, for what it holds
    others = (each for each in headers if each[0] not in of_page)
    return found.status, HTML.encode(), text.encode(), (*others, *PAGE_HEADERS)


def opens_page(scope: Scope) -> bool:
    """Return whether a person follows a link; a script of a page does not ask for HTML."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return scope["method"] in {"GET", "HEAD"} and b"text/html" in accepted and JSON not in accepted


async def write(send: Send, written: Written | Streamed) -> None:
    """Write an answer."""
    if isinstance(written, Streamed):
        await written.send(send)
        return
    status, media, body, headers = written
    sent = [ALWAYS, *headers]
    if not any(name == b"cache-control" for name, _ in headers):
        sent.append(NOT_STORED)
    if media:
        sent.append((b"content-type", media))
        sent.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})
