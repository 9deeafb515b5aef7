"""Routes: each is a function whose signature names its parameters, its body and its answer.

    @routes.post("/api/jobs/{id}/complete", status=204)
    async def complete(request: Request, id: UUID, body: Completed) -> None: ...

Names in braces come from the path, `body` from JSON, `query` from the query string. Requests are
matched with this table, and the OpenAPI document is made from it.
"""

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from enum import EnumType
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import Invalid
from towpath.server.bodies import Send
from towpath.server.errors import Refusal

T = TypeVar("T")
Handler = Callable[..., Awaitable[Any]]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Group = Literal[
    "jobs",
    "work",
    "topics",
    "schedules",
    "workers",
    "channels",
    "webhooks",
    "accounts",
    "keys",
    "access",
    "other",
]

PLAIN: Final = "text/plain; charset=utf-8"


class Answer(Struct, Generic[T]):
    """The answer of a handler that also sets a status or headers."""

    body: T
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media: bytes | None = None  # of a body of bytes, if not that of the route


class Streamed(Struct, frozen=True):
    """An answer whose body is sent piece by piece; `send` sends all of it, from its head on."""

    status: int
    send: Callable[[Send], Awaitable[None]]


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: Method
    path: str
    group: Group
    handler: Handler
    status: int
    is_open: bool  # needs no login
    takes_pass: bool  # a pass in the query lets in
    media: str  # of the answer
    most: int | None  # bytes of a body, if not the default
    errors: tuple[str, ...]  # codes that it may answer, besides the common ones
    takes: type | None
    query: type | None
    path_types: Mapping[str, type]
    gives: Any
    streams: bool  # instead of that, it may answer with server-sent events
    summary: str
    description: str


class Routes:
    """The routes of one group."""

    def __init__(self, group: Group) -> None:
        self.group: Final = group
        self.all: Final[list[Route]] = []

    def get(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register the handler of GET."""
        return self._register("GET", path, **given)

    def post(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register the handler of POST."""
        return self._register("POST", path, **given)

    def put(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register the handler of PUT."""
        return self._register("PUT", path, **given)

    def patch(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register the handler of PATCH."""
        return self._register("PATCH", path, **given)

    def delete(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register the handler of DELETE."""
        return self._register("DELETE", path, **given)

    def _register(
        self,
        method: Method,
        path: str,
        *,
        status: int = 200,
        is_open: bool = False,
        takes_pass: bool = False,
        media: str = "application/json",
        most: int | None = None,
        errors: tuple[str, ...] = (),
    ) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            types = typing.get_type_hints(handler, include_extras=True)
            names = [
                name
                for name in inspect.signature(handler).parameters
                if name not in {"request", "_"}
            ]
            summary, _, description = (inspect.getdoc(handler) or "").partition("\n")
            self.all.append(
                Route(
                    method=method,
                    path=path,
                    group=self.group,
                    handler=handler,
                    status=status,
                    is_open=is_open,
                    takes_pass=takes_pass,
                    media=media,
                    most=most,
                    errors=errors,
                    takes=types.get("body"),
                    query=types.get("query"),
                    path_types={n: types[n] for n in names if n not in {"body", "query"}},
                    gives=_body_type(types["return"]),
                    streams=Streamed in typing.get_args(types["return"]),
                    summary=summary.rstrip("."),
                    description=description.strip(),
                )
            )
            return handler

        return register


def _body_type(kind: Any) -> Any:
    """Return the type of the body in `Answer[...]` or beside `Streamed`, or the type itself."""
    if kind is Streamed:
        return str
    named = typing.get_args(kind)
    return named[0] if typing.get_origin(kind) is Answer or Streamed in named else kind


def from_path(text: str, kind: type, path: str) -> Any:
    """Convert a parameter of a route's path to its type."""
    if kind is UUID:
        try:
            # UUID() also accepts braces, missing hyphens and urn:uuid:.
            return msgspec.convert(text, UUID)
        except msgspec.ValidationError:
            msg = f"{text[:100]!r} is not an id, which is a UUID"
            if path.startswith("/api/jobs/") and re.fullmatch("[0-9]{1,19}", text):
                msg = (
                    f"{text} is the number of a job, not its id, which is a UUID; "
                    f"GET /api/jobs/numbered/{text} reads the job by its number"
                )
            raise Invalid(msg) from None
    if kind is int:
        if re.fullmatch("[0-9]{1,19}", text):
            return int(text)
        msg = f"{text[:100]!r} in the path is not a number"
        raise Invalid(msg)
    if isinstance(kind, EnumType):
        try:
            return kind(text)
        except ValueError:
            message = f"unknown {text[:100]!r} in the path; known: {', '.join(map(str, kind))}"
            raise Refusal(404, "not_found", message) from None
    return text
