"""The arguments of a task as they are stored: one JSON object, keyed by parameter name.

Only the given arguments are stored, so a job runs with the defaults of the current code.
"""

import inspect
import typing
from collections import OrderedDict
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Final, Union

import msgspec

from towpath.errors import IncompatibleData, InvalidArguments
from towpath.model import payload


class Signature:
    """The parameters and the result of a function, checked against its annotations."""

    def __init__(self, function: Callable[..., object], injected: type) -> None:
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except TypeError as error:
            msg = f"{function.__qualname__}: {error}"
            raise InvalidArguments(msg) from error
        every = inspect.signature(function).parameters.values()
        injected_at = [nth for nth, each in enumerate(every) if hints.get(each.name) is injected]
        if injected_at not in ([], [0]):
            msg = f"{function.__qualname__}: the {injected.__name__} must be the first parameter"
            raise InvalidArguments(msg)
        self.takes_context = bool(injected_at)
        own = list(every)[len(injected_at) :]
        self.name = function.__qualname__
        self._signature = inspect.Signature(own)
        self._by_name = all(each.kind in _NAMED for each in own)
        returned = hints.get("return", Any)
        try:
            fields = [_field(each, hints.get(each.name, Any)) for each in own]
            shape = msgspec.defstruct("arguments", fields, kw_only=True, forbid_unknown_fields=True)
            self._arguments = msgspec.json.Decoder(shape, dec_hook=_from_plain)
            optional = [(name, _or_unset(kind), msgspec.UNSET) for name, kind, *_ in fields]
            part = msgspec.defstruct(
                "arguments", optional, kw_only=True, forbid_unknown_fields=True
            )
            self._partial = msgspec.json.Decoder(part, dec_hook=_from_plain)
            self._returned = msgspec.json.Decoder(
                Any if returned in {typing.NoReturn, typing.Never} else returned,
                dec_hook=_from_plain,
            )
        except TypeError as error:
            msg = f"{self.name} has an annotation that cannot be stored as JSON: {error}"
            raise InvalidArguments(msg) from error

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the arguments; None if a type of theirs has none."""
        try:
            schema = msgspec.json.schema(self._arguments.type)
        except TypeError:
            return None
        parts: dict[str, Any] = schema.pop("$defs")
        return {**parts.pop("arguments"), **({"$defs": parts} if parts else {})}

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int) -> str:
        """Return arguments as they are stored; raise InvalidArguments if the call is wrong."""
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            msg = f"{self.name}: {error}"
            raise InvalidArguments(msg) from error
        body = payload.encode_json(given, most, "payload", _encoder)
        self._decoded(body)
        return body

    def encode_step(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int
    ) -> tuple[str, str | None]:
        """Return the arguments behind the first, and the name of the first, which comes later.

        If all parameters are given already, return all arguments and None.
        """
        try:
            given = self._signature.bind(_LATER, *args, **kwargs).arguments
        except TypeError:
            return self.encode(args, kwargs, most), None
        name = next(iter(given))
        if given.pop(name) is not _LATER:
            msg = f"{self.name}: the first parameter takes a result, so it must have a name"
            raise InvalidArguments(msg)
        body = payload.encode_json(given, most, "payload", _encoder)
        self._decoded(body, self._partial)
        return body, name

    def decode(self, body: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return stored arguments as positional and named ones; raise if they no longer fit."""
        named = self._decoded(body)
        if self._by_name:
            return (), named
        bound = inspect.BoundArguments(self._signature, OrderedDict(named))
        return bound.args, bound.kwargs

    def decode_result(self, body: str | None) -> Any:
        """Return a stored result."""
        try:
            return None if body is None else self._returned.decode(body)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            msg = f"the stored result of {self.name} does not fit its annotation: {error}"
            raise IncompatibleData(msg) from error

    def _decoded(
        self, body: str, decoder: msgspec.json.Decoder[Any] | None = None
    ) -> dict[str, Any]:
        try:
            given = "{}" if body == "null" else body  # the job was enqueued without a payload
            arguments = (decoder or self._arguments).decode(given)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            msg = f"{self.name} cannot be called with these arguments: {error}"
            raise InvalidArguments(msg) from error
        each = ((name, getattr(arguments, name)) for name in arguments.__struct_fields__)
        return {name: value for name, value in each if value is not msgspec.UNSET}


def _field(parameter: Parameter, annotation: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return parameter.name, _or_unset(list[annotation]), msgspec.UNSET
    if parameter.kind is Parameter.VAR_KEYWORD:
        return parameter.name, _or_unset(dict[str, annotation]), msgspec.UNSET
    if parameter.default is Parameter.empty:
        return parameter.name, annotation
    return parameter.name, _or_unset(annotation), msgspec.UNSET


def _or_unset(annotation: Any) -> Any:
    return Union[annotation, msgspec.UnsetType]  # noqa: UP007 - an annotation may not support |


def _to_plain(value: Any) -> Any:
    """Convert a pydantic model; msgspec converts all other common types itself."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    msg = f"a {type(value).__name__} cannot be stored"
    raise TypeError(msg)


def _from_plain(kind: Any, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    msg = f"a {kind.__name__} cannot be read"
    raise TypeError(msg)


_NAMED: Final = frozenset({Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY})
_LATER: Final = object()  # stands for the result of the previous step
_encoder: Final = msgspec.json.Encoder(enc_hook=_to_plain)


def encode_result(result: object, most: int) -> str | None:
    """Return a result of at most `most` bytes as it is stored."""
    return None if result is None else payload.encode_json(result, most, "result", _encoder)
