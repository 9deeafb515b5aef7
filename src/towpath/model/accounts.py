"""Accounts of users and superusers, and the checks of their fields."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, cast

from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.payload import encode_json

MOST_EMAIL: Final = 254
MOST_NAME: Final = 200
MOST_FIELDS: Final = 16 * 1024  # bytes of JSON
MOST_DEPTH: Final = 16  # levels of lists and objects in the fields
RESERVED: Final = frozenset(
    {"id", "collectionId", "collectionName", "email", "name", "created", "updated", "password"}
)
"""Names that every record has; a field with such a name would hide the value from a rule."""

_EMAIL: Final = re.compile(r"[^\s\x00-\x1f\x7f-\x9f@]+@[^\s\x00-\x1f\x7f-\x9f@]+")
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class Collection(StrEnum):
    """The two kinds of account, under PocketBase's names."""

    USERS = "users"
    SUPERUSERS = "_superusers"


class Account(Struct, frozen=True, kw_only=True):
    """A user or superuser: stored here, or named by an external token."""

    id: str  # a UUIDv7, or the subject of an external token
    collection: Collection
    email: str
    name: str
    fields: dict[str, Any]
    generation: int  # tokens of an older generation are no longer valid
    created_at: datetime
    updated_at: datetime


def collection_of(name: str) -> Collection:
    """Read the name of a collection."""
    try:
        return Collection(name)
    except ValueError:
        known = ", ".join(Collection)
        msg = f"unknown collection {str(name)[:100]!r}; known collections: {known}"
        raise Invalid(msg) from None


def folded(email: str) -> str:
    """Return an e-mail address as it is stored and looked up: normalized, in lower case."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).lower())


def email_of(text: str) -> str:
    """Return an e-mail address as it is stored; raise Invalid if it is not one."""
    _check_text(text, "e-mail address", MOST_EMAIL)
    email = folded(text)
    if not _EMAIL.fullmatch(email):
        msg = f"{text!r} is not an e-mail address"
        raise Invalid(msg)
    return email


def name_of(text: str) -> str:
    """Return the name of an account or a key; raise Invalid if it cannot be stored."""
    _check_text(text, "name", MOST_NAME)
    return text


def fields_of(fields: Mapping[str, Any] | None) -> str:
    """Return the fields of an account as they are stored."""
    if fields is not None and not isinstance(fields, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"the fields of an account must be an object, not {type(fields).__name__}"
        raise Invalid(msg)
    known: dict[Any, Any] = dict(fields or {})
    for name in known:
        if not isinstance(name, str) or not _FIELD.fullmatch(name):
            msg = f"{str(name)[:100]!r} is not a valid field name; use letters, digits, underscores"
            raise Invalid(msg)
        if name in RESERVED:
            msg = f"the field name {name!r} is reserved; choose another name"
            raise Invalid(msg)
    if not _shallow(known, MOST_DEPTH):
        msg = f"the fields are nested more than {MOST_DEPTH} levels deep"
        raise Invalid(msg)
    text = encode_json(known, 2**30, "fields")
    if len(text.encode()) > MOST_FIELDS:
        msg = f"the fields have more than {MOST_FIELDS:,} bytes; store larger data elsewhere"
        raise Invalid(msg)
    return text


def _check_text(text: str, what: str, most: int) -> None:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"the {what} must be text, not {type(text).__name__}"
        raise Invalid(msg)
    if len(text) > most:
        msg = f"the {what} has {len(text):,} characters; at most {most} are allowed"
        raise Invalid(msg)
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        msg = f"the {what} contains a character that cannot be stored (NUL or a lone surrogate)"
        raise Invalid(msg)


def _shallow(value: object, levels: int) -> bool:
    if isinstance(value, Mapping):
        value = list(cast("Mapping[object, object]", value).values())
    if not isinstance(value, list | tuple):
        return True
    inner = cast("list[object]", value)
    return levels > 0 and all(_shallow(each, levels - 1) for each in inner)
