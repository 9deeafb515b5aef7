"""The OpenAPI document, made from the routes and the types of their bodies."""

import json
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from types import NoneType, UnionType
from typing import Any, Final, get_args
from uuid import UUID

import msgspec

from towpath.errors import TowpathError
from towpath.server.accounts import AccessChange, KeyInput, Login, NewRecord, RecordChange
from towpath.server.bulk import BulkInput, BulkQuestion
from towpath.server.channels import EventsInput, PassInput
from towpath.server.consumers import AckInput, AttachInput, LimitsInput, MoveInput
from towpath.server.errors import status_of
from towpath.server.inputs import (
    Buried,
    Completed,
    Failed,
    JobChangeInput,
    JobInput,
    JobOutputInput,
    Kick,
    NewJobs,
    Pause,
    PreviewInput,
    Released,
    ScheduleInput,
    Touched,
    Wanted,
)
from towpath.server.outputs import Complaint
from towpath.server.routes import Route
from towpath.server.system import SetUp
from towpath.server.trying import AccessTry
from towpath.server.webhooks import (
    ReplayInput,
    Resend,
    Rotation,
    SubscriptionChange,
    SubscriptionInput,
)

REF: Final = "#/components/schemas/{name}"
STATUS_OF_CODE: Final = {
    "invalid": 400,
    "login_refused": 400,
    "login_required": 401,
    "forbidden": 403,
    "http_disabled": 403,
    "csrf_refused": 403,
    "method_not_allowed": 405,
    "too_slow": 408,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "bad_json": 400,
    "unavailable": 503,
    "overloaded": 503,
}
"""Codes of refusals that do not come from the app; all others are in towpath.errors."""

EXAMPLES: Final[Mapping[Any, Any]] = {
    JobInput: {"topic": "mail", "payload": {"to": "ada@example.org"}, "delay": 60, "maxRetries": 5},
    NewJobs: {"jobs": [{"topic": "mail", "payload": 1}, {"topic": "mail", "payload": 2}]},
    Wanted: {"topics": ["mail"], "limit": 10, "timeout": 0},
    Completed: {"epoch": 1, "result": {"sent": True}},
    Failed: {"epoch": 1, "error": "SMTP connection failed"},
    Released: {"epoch": 1, "delay": 60},
    Buried: {"epoch": 1},
    Touched: {"epoch": 1},
    JobOutputInput: {
        "epoch": 1,
        "said": 0,
        "progress": 0.5,
        "message": "half",
        "lines": ["started"],
        "logged": 0,
        "events": [{"type": "text", "payload": "Dear Ada"}],
    },
    JobChangeInput: {"priority": 10},
    AccessTry: {
        "verb": "manage",
        "topic": "mail",
        "as": {"auth": {"id": "ann"}},
        "rules": {"manage_rule": "@request.auth.id != ''"},
    },
    BulkQuestion: {"verb": "requeue", "filter": {"topic": "mail", "status": "failed"}},
    BulkInput: {"verb": "requeue", "filter": {"topic": "mail", "status": "failed"}, "upTo": 4711},
    Kick: {"limit": 100},
    Pause: {"duration": 3600},
    PreviewInput: {"cron": "0 6 * * 1", "tz": "Europe/Berlin", "count": 3},
    ScheduleInput: {"topic": "report", "cron": "0 6 * * 1", "tz": "Europe/Berlin"},
    Login: {"identity": "ada@example.org", "password": "correct horse"},
    NewRecord: {"email": "eve@example.org", "password": "a long password", "team": "red"},
    RecordChange: {"name": "Ada", "team": "blue"},
    SetUp: {"token": "from the link", "email": "root@example.org", "password": "a long password"},
    AccessChange: {"access_rule": "@request.auth.id != ''", "allowed_topics": ["mail"]},
    EventsInput: {"events": [{"payload": {"text": "hello"}, "type": "said", "key": "k1"}]},
    AttachInput: {"from": "start"},
    AckInput: {"cursor": "0000000000000001_0000000000000001", "generation": 1},
    MoveInput: {"from": "now"},
    LimitsInput: {"maxAge": 86400, "maxCount": 10_000, "dropAcked": True},
    PassInput: {"channels": ["chat:42"]},
    SubscriptionInput: {
        "channel": "orders",
        "url": "https://shop.example/hooks",
        "types": ["order.*"],
        "filterRule": "@event.payload.total > 100",
        "finalStatuses": [422],
    },
    SubscriptionChange: {"url": "https://shop.example/new", "finalStatuses": [400, 422]},
    Rotation: {"overlap": 3600},
    Resend: {"confirm": True},
    ReplayInput: {"status": "DeadLettered", "types": ["order.*"], "rate": "100/s"},
    KeyInput: {"name": "worker in Go", "scopes": ["work"], "topics": ["mail"]},
}
HEADERS: Final = {
    "read_events": {
        "name": "Last-Event-ID",
        "in": "header",
        "required": False,
        "description": "The cursor of the last event, instead of `after`; of an EventSource.",
        "schema": {"type": "string"},
    },
    "enqueue": {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "Repeated enqueues of a caller with the same key and topic store one job.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    },
}
"""The headers that operations read."""


def document_of(routes: Iterable[Route]) -> dict[str, Any]:
    """Describe these routes."""
    routes = list(routes)
    types: list[Any] = [Complaint]
    for route in routes:
        types += [each for each in (route.takes, route.query) if each is not None]
        if _is_json(route):
            types += _answers(route)
    _, components = msgspec.json.schema_components(types, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, components)
    queries = {_name(route.query) for route in routes if route.query is not None}
    kept = {name: schema for name, schema in components.items() if name not in queries}
    return _renamed(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Towpath",
                "version": version("towpath"),
                "description": "Jobs in the database you already have. All errors have one schema.",
                "license": {"name": "MIT", "identifier": "MIT"},
            },
            "servers": [{"url": "/"}],
            "security": [{"bearer": []}, {"cookie": []}],
            "tags": [{"name": name} for name in dict.fromkeys(route.group for route in routes)],
            "paths": paths,
            "components": {
                "schemas": kept,
                "securitySchemes": {
                    "bearer": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "The token of a login, an API key, or an external JWT.",
                    },
                    "cookie": {"type": "apiKey", "in": "cookie", "name": "towpath_auth"},
                },
            },
        }
    )


def _operation(route: Route, components: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.group],
        "responses": _responses(route),
    }
    if route.description:
        operation["description"] = re.sub(r"\s+", " ", route.description)
    if route.is_open:
        operation["security"] = []
    parameters = [_in_path(name, kind) for name, kind in route.path_types.items()]
    if route.query is not None:
        parameters += _in_query(components[_name(route.query)])
    if route.handler.__name__ in HEADERS:
        parameters.append(HEADERS[route.handler.__name__])
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        content: dict[str, Any] = {"schema": _schema(route.takes)}
        if route.takes in EXAMPLES:
            content["example"] = EXAMPLES[route.takes]
        operation["requestBody"] = {
            "required": _has_required(route.takes),
            "content": {"application/json": content},
        }
    return operation


def _in_path(name: str, kind: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "format": "uuid"}
    if kind is not UUID:
        schema = {**_inline(kind), **({"minimum": 0, "maximum": 2**63 - 1} if kind is int else {})}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(struct: Mapping[str, Any]) -> list[dict[str, Any]]:
    required = struct.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _given(schema)}
        for name, schema in struct["properties"].items()
    ]


def _given(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter without null: an absent parameter is omitted."""
    kinds = [each for each in schema.get("anyOf", [schema]) if each != {"type": "null"}]
    return {**kinds[0]} if len(kinds) == 1 else {"anyOf": kinds}


def _responses(route: Route) -> dict[str, Any]:
    good: dict[str, Any] = {"description": route.summary}
    if _is_json(route):
        schemas = [_schema(each) for each in _answers(route)]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        good["content"] = {"application/json": {"schema": schema}}
    elif route.gives is str:
        good["content"] = {route.media: {"schema": {"type": "string"}}}
    responses = {str(route.status): good}
    if route.streams:
        good["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        responses["204"] = {"description": "The channel has ended; do not come back"}
    if route.path == "/api/jobs/enqueue":
        responses["200"] = {**good, "description": "The unfinished job that holds the key"}
    for code in _codes(route):
        status = str(status_of_code(code))
        known = responses.setdefault(
            status,
            {
                "description": "",
                "content": {"application/json": {"schema": {"$ref": REF.format(name="Complaint")}}},
            },
        )
        known["description"] = f"{known['description']}, {code}".removeprefix(", ")
    return dict(sorted(responses.items()))


def _codes(route: Route) -> list[str]:
    codes = list(route.errors)
    if route.takes or route.query or route.path_types or not route.is_open:
        codes.append("invalid")
    if route.takes:
        codes += ["bad_json", "too_slow", "body_too_large", "unsupported_media_type", "overloaded"]
    if not route.is_open:
        codes += ["login_required", "invalid_token", "forbidden", "http_disabled", "csrf_refused"]
    if route.path_types:
        codes.append("not_found")
    if route.takes in {JobInput, NewJobs, ScheduleInput}:
        codes += ["invalid_topic", "invalid_payload", "payload_too_large"]
    if route.method != "GET":
        codes.append("database_full")
    return [*dict.fromkeys(codes), "database_unavailable"]


def status_of_code(code: str) -> int:
    """Return the status of an error by its code."""
    return STATUS_OF_CODE.get(code) or status_of(ERRORS[code])


def _tree(kind: type[TowpathError]) -> Iterable[type[TowpathError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


ERRORS: Final = {kind.code: kind for kind in _tree(TowpathError)}


def _is_json(route: Route) -> bool:
    return route.gives not in {str, NoneType}


def _answers(route: Route) -> tuple[Any, ...]:
    """Return the types of the bodies that a route answers."""
    return get_args(route.gives) if isinstance(route.gives, UnionType) else (route.gives,)


def _schema(kind: Any) -> dict[str, Any]:
    [schema], _ = msgspec.json.schema_components([kind], ref_template=REF)
    return schema


def _inline(kind: Any) -> dict[str, Any]:
    [schema], components = msgspec.json.schema_components([kind], ref_template=REF)
    return components[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def _name(kind: Any) -> str:
    return str(_schema(kind)["$ref"]).rsplit("/", 1)[1]


def _has_required(kind: Any) -> bool:
    schema = _inline(kind)
    return bool(schema.get("required"))


def _renamed(document: dict[str, Any]) -> dict[str, Any]:
    """Give schemas their public names: Job, JobList, Error."""
    schemas = document["components"]["schemas"]
    document["components"]["schemas"] = {
        _public(name): {**schema, "title": _public(name)} for name, schema in schemas.items()
    }
    renamed: dict[str, Any] = json.loads(json.dumps(document), object_hook=_pointing)
    return renamed


def _pointing(known: dict[str, Any]) -> dict[str, Any]:
    """Replace the name in a reference by the public one."""
    if isinstance(known.get("$ref"), str):
        prefix, _, name = known["$ref"].rpartition("/")
        known["$ref"] = f"{prefix}/{_public(name)}"
    return known


def _public(name: str) -> str:
    if name == "Complaint":
        return "Error"
    if many := re.fullmatch(r"Items_(\w+?)(?:Shown)?_", name):
        return f"{many[1]}List"
    return name.removesuffix("Shown")
