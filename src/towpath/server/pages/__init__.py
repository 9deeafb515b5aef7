"""The web pages: set-up of the first superuser, and API documentation. They load no other files."""

import html
import json
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

TEMPLATES: Final = files(__name__)


def page(name: Literal["setup", "docs"], document: dict[str, Any] | None = None) -> str:
    """Return the HTML of a page."""
    text = _template(name)
    return text if document is None else text.replace("{{routes}}", _routes(document))


@cache
def _template(name: str) -> str:
    style = (TEMPLATES / "style.css").read_text("utf-8")
    return (TEMPLATES / f"{name}.html").read_text("utf-8").replace("{{style}}", style)


def _routes(document: dict[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            groups.setdefault(route["tags"][0], []).append(_route(path, method, route))
    schemas = "".join(
        f'<details id="{name}"><summary><code>{name}</code> '
        f"{html.escape(schema.get('description', ''))}</summary>{_block(schema)}</details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    )
    listed = "".join(f"<h2>{name}</h2>{''.join(routes)}" for name, routes in groups.items())
    return f"{listed}<h2>schemas</h2>{schemas}"


def _route(path: str, method: str, route: dict[str, Any]) -> str:
    access = "no login" if route.get("security") == [] else ""
    parts = [f"<p>{html.escape(route['description'])}</p>"] if "description" in route else []
    for parameter in route.get("parameters", []):
        if parameter["in"] != "path":
            kind = html.escape(_kind(parameter["schema"]))
            parts.append(
                f"<p><code>{parameter['name']}</code> in the {parameter['in']}: {kind}</p>"
            )
    if "requestBody" in route:
        content = route["requestBody"]["content"]["application/json"]
        parts.append(f"<h4>request</h4><p>{_link(content['schema'])}</p>")
        if "example" in content:
            parts.append(_block(content["example"]))
    parts.append("<h4>responses</h4>")
    for status, answer in route["responses"].items():
        content = next(iter(answer.get("content", {}).values()), None)
        schema = _link(content["schema"]) if content else ""
        parts.append(f"<p><b>{status}</b> {html.escape(answer['description'])} {schema}</p>")
    return (
        f'<details class="route"><summary><span class="{method}">{method.upper()}</span> '
        f"<code>{html.escape(path)}</code> <i>{html.escape(route['summary'])}</i> "
        f"<small>{access}</small></summary>{''.join(parts)}</details>"
    )


def _link(schema: dict[str, Any]) -> str:
    if "$ref" not in schema:
        return html.escape(_kind(schema))
    name = schema["$ref"].rsplit("/", 1)[1]
    return f'<a href="#{name}">{name}</a>'


def _kind(schema: dict[str, Any]) -> str:
    limits = [f"{name} {schema[name]}" for name in ("minimum", "maximum") if name in schema]
    kind = "one of " + ", ".join(schema["enum"]) if "enum" in schema else schema.get("type", "any")
    return ", ".join([str(kind), *limits])


def _block(value: object) -> str:
    return f"<pre>{html.escape(json.dumps(value, indent=2))}</pre>"
