"""Write docs/reference from the code. With --check, say which page is stale."""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from towpath import errors
from towpath.model.states import STATUS, TRANSITIONS, State
from towpath.settings import Settings

HERE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code: do not edit. -->"


def states() -> str:
    """Describe every state and transition."""
    lines = [
        "# States", NOTE, "",
        "A job's state is the table in which its ticket lies; its status is coarser.", "",
        "| state | status |", "|---|---|",
        *(f"| `{state}` | `{STATUS[state]}` |" for state in State), "",
        "| action | from | to |", "|---|---|---|",
    ]  # fmt: skip
    for action, (sources, goal) in TRANSITIONS.items():
        allowed = ", ".join(f"`{state}`" for state in State if state in sources)
        lines.append(f"| {action} | {allowed} | {f'`{goal}`' if goal else 'gone'} |")
    lines += [
        "",
        "Cancelling a `reserved` job is a request: it ends `cancelled` when its holder answers or",
        "its lease ends, unless the answer is complete.",
    ]
    return "\n".join(lines) + "\n"


def tree(root: type[errors.TowpathError]) -> Iterator[type[errors.TowpathError]]:
    """Walk an error and everything below it."""
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def error_pages() -> str:
    """Describe every error."""
    lines = ["# Errors", NOTE, "", "Codes are stable.", ""]
    lines += ["| error | code | is a | advice |", "|---|---|---|---|"]
    for error in tree(errors.TowpathError):
        advice = " ".join(inspect.cleandoc(error.__doc__ or "").split())
        parent = error.__mro__[1].__name__
        lines.append(f"| `{error.__name__}` | `{error.code}` | `{parent}` | {advice} |")
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Describe every setting."""
    lines = [
        "# Settings", NOTE, "",
        "Given to `App(url, name=value)` or by the environment. Durations are seconds.", "",
        "| setting | default | environment |", "|---|---|---|",
        *(
            f"| `{field.name}` | `{field.default}` | `TOWPATH_{field.name.upper()}` |"
            for field in fields(Settings)
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


PAGES = {"states.md": states, "errors.md": error_pages, "settings.md": settings}


def main() -> None:
    """Write the pages, or check them."""
    stale = []
    for name, write in PAGES.items():
        path, text = HERE / name, write()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale)}; run python docs/generate.py")


if __name__ == "__main__":
    main()
