"""One path: reads a request, has its handler answer it, and writes the answer."""

import time
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import msgspec

from towpath.server.asks import Ask
from towpath.server.errors import Refusal, body_of, refusal
from towpath.server.gate import Gate
from towpath.server.requests import Receive, Scope, Send, decoded, header, query_of, read_query
from towpath.server.routes import Answer, Route, from_path

JSON: Final = b"application/json"
ALWAYS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_encoder: Final = msgspec.json.Encoder()


class Endpoint:
    """The methods of one path, as an ASGI application."""

    def __init__(self, gate: Gate, routes: Mapping[str, Route]) -> None:
        self._gate = gate
        self._plans = {method: Plan(gate, route) for method, route in routes.items()}
        self._path = next(iter(routes.values())).path
        if "GET" in routes:
            self._plans["HEAD"] = self._plans["GET"]
        self._allow = ", ".join(sorted(self._plans))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun = time.perf_counter()
        try:
            plan = self._plans.get(scope["method"])
            if plan is None:
                status, media, body, headers = refused(self._other_method())
            else:
                status, media, body, headers = await plan.answer(scope, receive)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            status, media, body, headers = refused(error)
        await answer(send, status, media, body, headers)
        self._gate.metrics.count(self._path, scope["method"], status, time.perf_counter() - begun)

    def _other_method(self) -> Refusal:
        return Refusal(
            405, "method_not_allowed", f"this path answers {self._allow}",
            headers={"allow": self._allow},
        )  # fmt: skip


class Plan:
    """How one route is answered, found out once."""

    def __init__(self, gate: Gate, route: Route) -> None:
        self._gate = gate
        self._route = route
        self._media = route.media.encode()
        self._decoder: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(route.takes) if route.takes else None
        )
        self._most = route.most or gate.most_body
        # A body may be left out where everything in it may be.
        self._may_be_empty = is_struct(route.takes) and not any(
            field.required for field in msgspec.structs.fields(route.takes)
        )

    async def answer(
        self, scope: Scope, receive: Receive
    ) -> tuple[int, bytes, bytes, tuple[tuple[bytes, bytes], ...]]:
        """Return status, media type, body and headers."""
        route = self._route
        ask = await self._gate.enter(scope, receive, is_open=route.is_open)
        given: dict[str, Any] = {}
        for name, kind in route.path_types.items():
            given[name] = from_path(scope["path_params"][name], kind)
        if self._decoder is not None:
            given["body"] = await self._body(ask, self._decoder)
        if route.query is not None:
            given["query"] = read_query(query_of(scope), route.query)
        elif scope["query_string"] and not route.is_open:
            read_query(query_of(scope), Nothing)
        answered = await route.handler(ask, **given)
        status = route.status
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if isinstance(answered, Answer):
            status, headers = answered.status or status, answered.headers
            answered = answered.body
        if answered is None:
            return status, b"", b"", headers
        if isinstance(answered, str):
            return status, self._media, answered.encode(), headers
        return status, self._media, _encoder.encode(answered), headers

    async def _body(self, ask: Ask, decoder: "msgspec.json.Decoder[Any]") -> Any:
        media = header(ask.scope, b"content-type")
        length = header(ask.scope, b"content-length")
        if length is not None and length.isdecimal() and int(length) > self._most:
            raise Refusal(
                413, "body_too_large", f"a request here has at most {self._most:,} bytes",
                headers={"connection": "close"},
            )  # fmt: skip
        if media is not None and not media.lower().startswith("application/json"):
            raise Refusal(415, "unsupported_media_type", "send JSON, as application/json")
        ask.body = await self._gate.bodies.read(ask.receive, self._most)
        if not ask.body and self._may_be_empty:
            return decoder.decode(b"{}")
        return await decoded(ask.body, decoder)


def is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    """Say whether a type is a struct; the body of a record is any object."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """A query of a path that takes none."""


def refused(error: Exception) -> tuple[int, bytes, bytes, tuple[tuple[bytes, bytes], ...]]:
    """Return the answer to an error."""
    found = refusal(error)
    headers = tuple((name.encode(), value.encode()) for name, value in found.headers.items())
    return found.status, JSON, body_of(found), headers


async def answer(
    send: Send, status: int, media: bytes, body: bytes, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    """Write an answer."""
    said = [*ALWAYS, *headers]
    if media:
        said.append((b"content-type", media))
    if body or media:
        said.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": said})
    await send({"type": "http.response.body", "body": body})
