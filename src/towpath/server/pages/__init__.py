"""The pages beside the dashboard: the documentation of the API, and refusals."""

import html
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

TEMPLATES: Final = files(__name__)
TITLES: Final = {
    400: "The request is not valid",
    401: "Log in first",
    403: "Not allowed",
    404: "Page not found",
    405: "Not allowed",
    409: "Not possible now",
}
IN_PATHS: Final = {
    "id": "$ID",
    "topic": "mail",
    "name": "weekly",
    "collection": "users",
    "number": "1",
}
"""What curl lines have in place of a path parameter."""


def refusal_page(status: int, message: str, root: str, *, is_home: bool = False) -> str:
    """Return a refusal as a page, for a person."""
    title = "Towpath" if is_home else TITLES.get(status, "The server cannot answer")
    page = _template("message").replace("{{title}}", html.escape(title))
    text = _marked(f"{message[:1].upper()}{message[1:]}.")
    return page.replace("{{text}}", text).replace("{{root}}", html.escape(root))


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the documentation of the routes in an OpenAPI document."""
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            groups.setdefault(route["tags"][0], []).append((method, path, route))
    schemas = sorted(document["components"]["schemas"].items())
    page = _template("docs").replace("{{contents}}", _contents(groups, schemas))
    listed = "".join(
        f'<section><h2 id="{name}">{name}</h2>'
        + "".join(_route(*route) for route in routes)
        + "</section>"
        for name, routes in groups.items()
    )
    return page.replace("{{routes}}", listed).replace("{{schemas}}", _schemas(schemas))


@cache
def _template(name: str) -> str:
    return (TEMPLATES / f"{name}.html").read_text("utf-8")


def _contents(
    groups: Mapping[str, list[tuple[str, str, dict[str, Any]]]],
    schemas: Iterable[tuple[str, dict[str, Any]]],
) -> str:
    """Return the links of the side bar."""
    parts: list[str] = []
    for name, routes in groups.items():
        links = "".join(
            f'<li><a href="#{route["operationId"]}">{_method(method)} {_path(path)}</a></li>'
            for method, path, route in routes
        )
        parts.append(f'<section><h2><a href="#{name}">{name}</a></h2><ul>{links}</ul></section>')
    links = "".join(f'<li><a href="#{name}">{name}</a></li>' for name, _ in schemas)
    parts.append(f'<section><h2><a href="#schemas">schemas</a></h2><ul>{links}</ul></section>')
    return "".join(parts)


def _schemas(schemas: Iterable[tuple[str, dict[str, Any]]]) -> str:
    return "".join(
        f'<details id="{name}"><summary><code>{name}</code> '
        f"<i>{html.escape(schema.get('description', ''))}</i></summary>{_block(schema)}</details>"
        for name, schema in schemas
    )


def _route(method: str, path: str, route: dict[str, Any]) -> str:
    access = " <small>no login</small>" if route.get("security") == [] else ""
    parts = [f"<p>{_marked(route['description'])}</p>"] if "description" in route else []
    for parameter in route.get("parameters", []):
        if parameter["in"] != "path":
            kind = html.escape(_kind(parameter["schema"]))
            parts.append(
                f"<p><code>{parameter['name']}</code> in the {parameter['in']}: {kind}</p>"
            )
    if "requestBody" in route:
        content = route["requestBody"]["content"]["application/json"]
        parts.append(f"<h4>request</h4><p>{_link(content['schema'])}</p>")
    parts.append(f"<pre>{html.escape(curl(method, path, route))}</pre>")
    parts.append("<h4>responses</h4>")
    for status, answer in route["responses"].items():
        content = next(iter(answer.get("content", {}).values()), None)
        schema = _link(content["schema"]) if content else ""
        parts.append(f"<p><b>{status}</b> {html.escape(answer['description'])} {schema}</p>")
    return (
        f'<details class="route" id="{route["operationId"]}"><summary>{_method(method)} '
        f"{_path(path)} <i>{html.escape(route['summary'])}</i>{access}</summary>"
        f"{''.join(parts)}</details>"
    )


def curl(method: str, path: str, route: Mapping[str, Any]) -> str:
    """Return a line for a shell that sends an example of a request."""
    for name, value in IN_PATHS.items():
        path = path.replace(f"{{{name}}}", value)
    words = ["curl" if method == "get" else f"curl -X {method.upper()}", f'"$TOWPATH{path}"']
    lines = [" ".join(words)]
    if route.get("security") != []:
        lines.append('-H "Authorization: Bearer $TOKEN"')
    if "requestBody" in route:
        lines.append("-H 'Content-Type: application/json'")
        example = json.dumps(route["requestBody"]["content"]["application/json"]["example"])
        quoted = example.replace("'", "'\\''")
        lines.append(f"-d '{quoted}'")
    return " \\\n  ".join(lines)


def _method(method: str) -> str:
    return f'<span class="{method}">{method.upper()}</span>'


def _path(path: str) -> str:
    """Return a path that may be broken after a slash."""
    return f"<code>{html.escape(path).replace('/', '/<wbr>')}</code>"


def _marked(text: str) -> str:
    return re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(text))


def _link(schema: dict[str, Any]) -> str:
    if "$ref" not in schema:
        return html.escape(_kind(schema))
    name = schema["$ref"].rsplit("/", 1)[1]
    return f'<a href="#{name}">{name}</a>'


def _kind(schema: dict[str, Any]) -> str:
    limits = [f"{name} {schema[name]}" for name in ("minimum", "maximum") if name in schema]
    kind = (
        "one of " + ", ".join(map(str, schema["enum"]))
        if "enum" in schema
        else schema.get("type", "any")
    )
    return ", ".join([str(kind), *limits])


def _block(value: object) -> str:
    return f"<pre>{html.escape(json.dumps(value, indent=2))}</pre>"
