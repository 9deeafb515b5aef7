"""One route: reads a request, has its handler answer it, and writes the answer."""

from typing import Any, Final, TypeGuard

import msgspec

from towpath.server.bodies import Receive, Scope, Send, decoded, query_of, read_query
from towpath.server.errors import Refusal, body_of, refusal
from towpath.server.request import Request
from towpath.server.routes import Answer, Route, from_path
from towpath.server.shared import Shared

Headers = tuple[tuple[bytes, bytes], ...]
Written = tuple[int, bytes, bytes, Headers]
"""Status, media type, body, and headers beside the usual ones."""

NONE: Final[Headers] = ()
JSON: Final = b"application/json"
ALWAYS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_encoder: Final = msgspec.json.Encoder()


class Endpoint:
    """How one route is answered, as far as that can be found out once."""

    def __init__(self, shared: Shared, route: Route) -> None:
        self.path = route.path
        self._shared = shared
        self._route = route
        self._media = route.media.encode()
        self._decoder: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(route.takes) if route.takes else None
        )
        self._most = route.most or shared.most_body
        # A body may be left out where everything in it may be.
        self._may_be_empty = is_struct(route.takes) and not any(
            field.required for field in msgspec.structs.fields(route.takes)
        )

    async def answer(self, scope: Scope, receive: Receive, named: dict[str, str]) -> Written:
        """Return the answer to a request; `named` are the parts of its path that have names."""
        route = self._route
        shared = self._shared
        request = shared.known(scope, receive) or await shared.enter(
            scope, receive, is_open=route.is_open
        )
        if not route.is_open:
            request.refuse_if_closed()
        given: dict[str, Any] = {}
        for name, text in named.items():
            given[name] = from_path(text, route.path_types[name])
        if self._decoder is not None:
            given["body"] = await self._body(request, self._decoder)
        if route.query is not None:
            given["query"] = read_query(query_of(scope), route.query)
        elif scope["query_string"] and not route.is_open:
            read_query(query_of(scope), Nothing)
        answered = special = await route.handler(request, **given)
        status, headers = route.status, NONE
        if isinstance(answered, Answer):
            status, headers = special.status or status, special.headers
            answered = special.body
        if answered is None:
            return status, b"", b"", headers
        if isinstance(answered, str):
            return status, self._media, answered.encode(), headers
        return status, self._media, _encoder.encode(answered), headers

    async def _body(self, request: Request, decoder: "msgspec.json.Decoder[Any]") -> Any:
        media = request.headers.get(b"content-type", JSON)
        if media != JSON and not media.lower().startswith(JSON):
            raise Refusal(415, "unsupported_media_type", "send JSON, as application/json")
        # Whether a stranger may is known only when the body is: so it is no large one.
        known = request.caller.kind != "nobody"
        most = self._most if known else min(self._most, self._shared.most_body)
        request.body = await self._shared.bodies.read(request.receive, request.headers, most)
        if not request.body and self._may_be_empty:
            return decoder.decode(b"{}")
        return await decoded(request.body, decoder)


def is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    """Say whether a type is a struct; the body of a record is any object."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a path that takes none."""


def refused(error: Exception) -> Written:
    """Return the answer to an error."""
    found = refusal(error)
    headers = tuple((name.encode(), value.encode()) for name, value in found.headers.items())
    return found.status, JSON, body_of(found), headers


async def write(send: Send, written: Written) -> None:
    """Write an answer."""
    status, media, body, headers = written
    said = [*ALWAYS, *headers]
    if media:
        said.append((b"content-type", media))
        said.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": said})
    await send({"type": "http.response.body", "body": body})
