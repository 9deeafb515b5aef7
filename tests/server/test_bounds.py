"""The bounds in the OpenAPI document are those that are enforced."""

import re

import pytest

from tests.server.conftest import PASSWORD, refused, token_of
from towpath.model.ids import uuid7
from towpath.server.api import document

DOCUMENT = document()
SCHEMAS = DOCUMENT["components"]["schemas"]
EXCLUDED_BY = {  # in the examples
    "every": {"cron", "tz"},
    "concurrency": {"rate"},
    "ids": {"filter"},
}
BESIDE = {"/api/jobs/throughput": {"step": 86_400}}  # parameters without which bounds are narrower
LIMIT = {"key": "gpu", "rate": "1/s"}  # the example of a body within a body


def resolved(schema):
    return SCHEMAS[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def kinds(schema):
    """Return the alternatives of a value but null."""
    return [resolved(each) for each in schema.get("anyOf", [schema]) if each != {"type": "null"}]


def edges(schema, item=None):
    """Yield a value at each bound, and one just beyond it; `item` is one of an array."""
    for kind, step in (("min", -1), ("max", 1)):
        if (bound := schema.get(f"{kind}imum")) is not None:
            yield bound, bound + step
        if (bound := schema.get(f"{kind}Length")) is not None:
            yield text(schema, bound), text(schema, bound + step)
        if (bound := schema.get(f"{kind}Items")) is not None:
            yield [item] * bound, [item] * (bound + step)
    if most := re.search(r"\{1,(\d+)\}\$$", schema.get("pattern", "")):
        letter = "A" if "[A-Z]" in schema["pattern"] else "a"
        yield letter * int(most[1]), letter * (int(most[1]) + 1)
    if most := re.search(r"\{0,(\d+)\}/", schema.get("pattern", "")):
        yield f"{10 ** int(most[1])}/s", f"{10 ** (int(most[1]) + 1)}/s"


def edges_within(schema):
    """Yield the same for the items of an array and the names in an object."""
    for good, bad in edges(resolved(schema.get("items", {}))):
        yield [good], [bad]
    for good, bad in edges(schema.get("propertyNames", {})):
        yield {good: None}, {bad: None}


def text(schema, length):
    end = "@" + "x." * 100 + "example" if schema.get("format") == "email" else ""
    return "a" * (length - len(end)) + end


def fields(schema, example):
    """Yield each bounded field: its name, a body with it at a bound, and one beyond."""
    for name, field in schema["properties"].items():
        rest = {key: example[key] for key in example.keys() - EXCLUDED_BY.get(name, set())}
        for kind in kinds(field):
            for good, bad in (*edges(kind, item_of(kind, example.get(name))), *edges_within(kind)):
                yield name, {**rest, name: good}, {**rest, name: bad}
            whole = LIMIT if name == "limit" else {}
            for inner, good, bad in fields(kind, whole) if "properties" in kind else ():
                yield f"{name}.{inner}", {**rest, name: good}, {**rest, name: bad}


def item_of(schema, example):
    """Return an item of an array that is allowed."""
    items = resolved(schema.get("items", {}))
    if "enum" in items:
        return items["enum"][0]
    if items.get("format") == "uuid":
        return str(uuid7())
    return example[0] if isinstance(example, list) else 1 if "maximum" in items else "x"


def operations():
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def bounded_bodies():
    for method, path, operation in operations():
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            for name, good, bad in fields(resolved(content["schema"]), content["example"]):
                yield pytest.param(method, path, good, bad, id=f"{method} {path} {name}")


def bounded_queries():
    for method, path, operation in operations():
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query":
                name = parameter["name"]
                rest = BESIDE.get(path, {})
                for good, bad in edges(parameter["schema"], "x"):
                    id = f"{method} {path} {name}"
                    given = {**rest, name: good}, {**rest, name: bad}
                    yield pytest.param(method, path, *given, id=id)


@pytest.fixture
def ask(quick_web):
    """Send a request about things that exist."""
    web = quick_web
    web.api.shared.set_up_token = "from the link"
    web.app.accounts.create("users", "ada@example.org", PASSWORD)

    def asked(method, path, sent):
        is_set_up = path == "/api/setup"
        root = None if is_set_up else token_of(web.app, "_superusers", f"{uuid7()}@example.org")
        job = web.app.jobs.enqueue("mail", {})
        if "epoch" in sent.get("json", {}):
            web.app.jobs.reserve("mail")
        id = web.app.accounts.get("users", "ada@example.org").id if "records" in path else job.id
        values = {
            "id": id, "topic": "mail", "name": "weekly", "collection": "users",
            "consumer": "mailer",
        }  # fmt: skip
        if "webhooks" in path:
            hook, _ = web.app.webhooks.create("mail", "https://shop.example/")
            values["subscription"] = hook.id
        return web(method, path.format(**values), as_=root, **sent)

    return asked


@pytest.mark.parametrize(("method", "path", "good", "bad"), [*bounded_bodies()])
def test_a_body_beyond_a_bound_is_refused_and_one_at_it_is_not(ask, method, path, good, bad):
    refusal = ask(method, path, {"json": bad})
    assert refused(refusal)[0] == 400, (bad, refusal.text)

    taken = ask(method, path, {"json": good})
    assert taken.status_code != 400, (good, taken.text)


@pytest.mark.parametrize(("method", "path", "good", "bad"), [*bounded_queries()])
def test_a_query_beyond_a_bound_is_refused_and_one_at_it_is_not(ask, method, path, good, bad):
    refusal = ask(method, path, {"params": bad})
    assert refusal.status_code == 400, (bad, refusal.text)

    taken = ask(method, path, {"params": good})
    assert taken.status_code != 400, (good, taken.text)
