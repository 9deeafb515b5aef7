"""The OpenAPI document is true: what it says works, and nothing else is answered."""

import json
import re
import secrets
from importlib import import_module

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi import checks
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from tests.faults.sizes import many
from tests.server.conftest import PASSWORD, token_of
from towpath.errors import DatabaseError
from towpath.server.api import ROUTES, document
from towpath.server.errors import refusal, status_of
from towpath.server.openapi import ERRORS, STATUS_OF_CODE, status_of_code

DOCUMENT = document()
EXAMPLES = {"superuser": many(5), "user": many(2), "nobody": many(2)}  # of each operation

OPERATIONS = {
    (method.upper(), path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def test_it_is_valid_openapi_3_1():
    assert [error.message for error in OPENAPI_31_VALIDATOR.iter_errors(DOCUMENT)] == []
    assert DOCUMENT["openapi"].startswith("3.1")


def test_its_schemas_are_json_schema():
    jsonschema = import_module("jsonschema_rs")

    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.meta.validate(schema)


def test_every_reference_in_it_leads_somewhere_and_every_schema_is_used():
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))

    assert named == DOCUMENT["components"]["schemas"].keys()


def test_it_names_every_route_and_nothing_else():
    assert OPERATIONS.keys() == {(route.method, route.path) for route in ROUTES}
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)


def test_it_is_served_as_it_is(quick_web):
    assert quick_web.get("/api/openapi.json").json() == DOCUMENT


def test_every_error_code_in_it_exists_and_stands_by_its_status():
    for operation in OPERATIONS.values():
        for status, response in operation["responses"].items():
            if status < "400":
                continue
            assert response["content"]["application/json"]["schema"]["$ref"].endswith("/Error")
            for code in response["description"].split(", "):
                assert code in ERRORS or code in STATUS_OF_CODE, code
                assert status_of_code(code) == int(status), code
    assert all(status_of(kind) >= 400 for kind in ERRORS.values())


@pytest.mark.parametrize(
    "kind", [kind for kind in ERRORS.values() if issubclass(kind, DatabaseError)]
)
def test_a_client_gets_no_advice_that_is_for_the_operator(kind):
    """Nor the driver's text, which may name hosts and users."""
    answer = refusal(kind("connection to db.internal failed: run `towpath migrate`"))

    assert str(answer)[0].islower()
    assert "`" not in str(answer)
    assert "db.internal" not in str(answer)


def test_every_operation_and_parameter_says_what_it_is_for():
    for operation in OPERATIONS.values():
        assert operation["summary"]
        for parameter in operation.get("parameters", ()):
            assert parameter["schema"]


# ---------------------------------------------------------------- examples


WITH_EXAMPLES = [
    key
    for key, operation in OPERATIONS.items()
    if "example" in operation.get("requestBody", {}).get("content", {}).get("application/json", {})
]


@pytest.mark.parametrize(("method", "path"), WITH_EXAMPLES)
def test_every_example_in_it_works(quick_web, method, path):
    web = quick_web
    example = OPERATIONS[method, path]["requestBody"]["content"]["application/json"]["example"]
    root = None
    if path == "/api/setup":
        web.api.shared.set_up_token = example["token"]
    else:
        root = token_of(web.app, "_superusers", "root@example.org")
    ada = web.app.accounts.create("users", "ada@example.org", PASSWORD)
    job = web.app.jobs.enqueue("mail", {})
    if example.get("epoch"):
        web.app.jobs.reserve("mail")
    id = ada.id if "records" in path else job.id
    values = {
        "id": id, "topic": "mail", "name": "weekly", "collection": "users", "consumer": "mailer",
    }  # fmt: skip
    if "webhooks" in path:
        hook, _ = web.app.webhooks.create("mail", "https://shop.example/")
        saga = web.app.webhooks.sagas.cancel(web.app.webhooks.ping(hook.id).id)
        values |= {"subscription": hook.id, "saga": saga.id}
    if "consumer" in path:
        web.app.events.publish("weekly", 1)
        web.app.events.attach("weekly", "mailer")

    said = web(method, path.format(**values), example, as_=root)

    assert said.status_code < 300, said.text


def test_every_body_has_an_example():
    with_a_body = [key for key, operation in OPERATIONS.items() if "requestBody" in operation]

    assert with_a_body == WITH_EXAMPLES


# ---------------------------------------------------------------- schemathesis


CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
ENDLESS = {"live"}  # an answer that goes on
BEYOND_SCHEMAS = {
    "throughput": "how far back which steps are known",
    "list_jobs": "filters that exclude or need each other; which times can be",
    "preview_bulk": "ids or a filter with at least one part; states that a verb is not for",
    "begin_bulk": "likewise",
    "read_events": "a cursor of another channel",
    "attach": "likewise",
    "ack": "likewise",
    "move_consumer": "likewise",
    "enqueue": "options that exclude or need each other; base64",
    "enqueue_many": "likewise",
    "set_schedule": "cron or every; what a cron rule is",
    "preview_schedule": "likewise",
    "say": "a message without progress; nothing at all",
    "log_in": "who has which password",
    "set_access": "what a rule is",
    "try_access": "likewise; as which caller; what a verb is for",
    "create_subscription": "which URLs, headers, types and rules can be; the base64 of a secret",
    "update_subscription": "likewise; nothing at all",
    "replay_subscription": "what a type is; which rates are too high",
    "create_record": "the confirmation; how deep own fields are nested",
    "change_record": "likewise",
    "set_up": "the token of the link",
}
"""Operations that refuse some of what fits their schema, because of what no schema can say."""


TOKENS = {  # last who may change what the others may
    "nobody": lambda app: None,
    "user": lambda app: token_of(app, "users", "ada@example.org"),
    "superuser": lambda app: token_of(app, "_superusers", "root@example.org"),
}


def ask(web, token, case):
    given = case.as_transport_kwargs(base_url="http://towpath.test")
    wanted = {name: given.get(name) for name in ("method", "url", "headers", "params", "data")}
    if "json" in given:
        wanted["json"] = given["json"]
    sent = requests.Request(**wanted).prepare()
    sent.headers.pop("Authorization", None)
    sent.headers.pop("Cookie", None)
    if token:
        sent.headers["Authorization"] = f"Bearer {token}"
    headers = [(_bytes(name), _bytes(value)) for name, value in sent.headers.items()]
    body = sent.body if isinstance(sent.body, bytes) else (sent.body or "").encode()
    said = web.request(sent.method, sent.url, headers=headers, content=body)
    answered = {name: [value] for name, value in said.headers.items()}
    return Response(said.status_code, answered, said.content, sent, 0.0, verify=True)


def _bytes(text):
    return text if isinstance(text, bytes) else text.encode("latin-1")


def whole(value):
    """To JSON Schema 5.0 is a whole number; here, as in most languages, it is not."""
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def operations():
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    found = [each.ok() for each in schema.get_all_operations()]
    return [each for each in found if each.definition.raw["operationId"] not in ENDLESS]


@pytest.mark.soak
@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_schemathesis_finds_nothing(quick_web, operation):
    can_be_wrong = operation.path_parameters or operation.query or operation.body
    modes = list(GenerationMode) if can_be_wrong else [GenerationMode.POSITIVE]
    for caller, make in TOKENS.items():
        token = make(quick_web.app)
        for mode in modes:
            schemathesis_tries(quick_web, token, operation, mode, EXAMPLES[caller])


def schemathesis_tries(web, token, operation, mode, examples):
    name = operation.definition.raw["operationId"]
    accepts = mode is GenerationMode.POSITIVE and name not in BEYOND_SCHEMAS
    wanted = [*CHECKS, checks.positive_data_acceptance] if accepts else CHECKS

    @seed(20261115 if many(1) == 1 else secrets.randbits(32))  # a soak looks at new inputs
    @settings(
        max_examples=examples,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def try_it(case):
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body = whole(case.body)
        if name == "reserve" and isinstance(case.body, dict) and "timeout" in case.body:
            case.body["timeout"] = 0  # nothing comes, so it would wait for a minute
        case.validate_response(ask(web, token, case), checks=wanted)

    try_it()
