"""Routes: a function for each, whose signature says what it takes and what it answers.

    @routes.post("/api/jobs/{id}/complete", status=204)
    async def complete(ask: Ask, id: UUID, body: Completed) -> None: ...

Names in braces come from the path, `body` is read from JSON, `query` from the query. The same
table is what requests are matched with and what the OpenAPI document is written from.
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
from towpath.server.errors import Refusal

T = TypeVar("T")
Handler = Callable[..., Awaitable[Any]]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Group = Literal[
    "jobs", "work", "topics", "schedules", "workers", "accounts", "keys", "access", "other"
]


class Answer(Struct, Generic[T]):
    """What a handler answers where its value alone does not say it all."""

    body: T
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: Method
    path: str
    group: Group
    handler: Handler
    status: int
    is_open: bool  # asks nobody who they are
    media: str  # of what it answers
    most: int | None  # bytes of a body, if not the usual
    errors: tuple[str, ...]  # codes that it may answer, beside those of its kind
    takes: type | None
    query: type | None
    path_types: Mapping[str, type]
    gives: Any
    summary: str
    description: str


class Routes:
    """The routes of one group."""

    def __init__(self, group: Group) -> None:
        self.group: Final = group
        self.all: Final[list[Route]] = []

    def get(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register what answers GET."""
        return self._register("GET", path, **given)

    def post(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register what answers POST."""
        return self._register("POST", path, **given)

    def put(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register what answers PUT."""
        return self._register("PUT", path, **given)

    def patch(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register what answers PATCH."""
        return self._register("PATCH", path, **given)

    def delete(self, path: str, **given: Any) -> Callable[[Handler], Handler]:
        """Register what answers DELETE."""
        return self._register("DELETE", path, **given)

    def _register(
        self,
        method: Method,
        path: str,
        *,
        status: int = 200,
        is_open: bool = False,
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
                    media=media,
                    most=most,
                    errors=errors,
                    takes=types.get("body"),
                    query=types.get("query"),
                    path_types={n: types[n] for n in names if n not in {"body", "query"}},
                    gives=_told(types["return"]),
                    summary=summary.rstrip("."),
                    description=description.strip(),
                )
            )
            return handler

        return register


def _told(kind: Any) -> Any:
    """Return what is told, without how."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Answer else kind


def from_path(text: str, kind: type) -> Any:
    """Return a part of a path as what it should be."""
    if kind is UUID:
        try:
            # UUID() itself takes braces, missing hyphens and urn:uuid: as well.
            return msgspec.convert(text, UUID)
        except msgspec.ValidationError:
            msg = f"{text[:100]!r} is not the id of a job"
            raise Invalid(msg) from None
    if kind is int:
        if re.fullmatch("[0-9]{1,19}", text):
            return int(text)
        msg = f"{text[:100]!r} is not the number of a job"
        raise Invalid(msg)
    if isinstance(kind, EnumType):
        try:
            return kind(text)
        except ValueError:
            raise Refusal(404, "not_found", f"there is nothing at {text[:100]!r}") from None
    return text
