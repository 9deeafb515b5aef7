"""Write docs/reference and openapi.json from the code. With --check, say what is stale."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import msgspec

from towpath import App, errors
from towpath.app.access import AccessChanges, AccessVerbs
from towpath.app.accounts import Accounts
from towpath.app.checks import EnqueueOptions, Filters
from towpath.app.context import Context, Words
from towpath.app.delay_queue import Queue, Queues
from towpath.app.flows import Chain, Group, Step
from towpath.app.jobs import Jobs
from towpath.app.keys import Keys
from towpath.app.schedules import Schedules
from towpath.app.sessions import Sessions
from towpath.app.tasks import Task, TaskJob, TaskOptions
from towpath.app.topics import Topics
from towpath.app.upkeep import Upkeep
from towpath.cli import main as command_line
from towpath.model.states import STATUS, TRANSITIONS, State
from towpath.server.api import document
from towpath.settings import Settings
from towpath.testing import Clock, IsolatedJobs

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
    lines = [
        "# Errors", NOTE, "",
        "`from towpath.errors import LeaseLost`. Codes are stable.", "",
    ]  # fmt: skip
    lines += ["| error | code | is a | advice |", "|---|---|---|---|"]
    for error in tree(errors.TowpathError):
        advice = " ".join(inspect.cleandoc(error.__doc__ or "").split())
        parent = error.__mro__[1].__name__
        lines.append(f"| `{error.__name__}` | `{error.code}` | `{parent}` | {advice} |")
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Describe every setting."""
    said = remarks(Settings)
    lines = [
        "# Settings", NOTE, "",
        "Given to `App(url, name=value)` or by the environment. Durations are seconds.", "",
        "| setting | default | environment | |", "|---|---|---|---|",
        *(
            f"| `{field.name}` | `{field.default}` | `TOWPATH_{field.name.upper()}` "
            f"| {said[field.name]} |"
            for field in fields(Settings)
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def remarks(kind: type) -> dict[str, str]:
    """Read what the source says beside each field of a class."""
    found = re.findall(r"^    (\w+): [^#\n]+(?:  # (.*))?$", inspect.getsource(kind), re.MULTILINE)
    missing = [name for name, said in found if not said]
    if missing:
        sys.exit(f"{kind.__name__} says nothing about {', '.join(missing)}")
    return dict(found)


def verbs() -> str:
    """Describe every verb and its options."""
    lines = [
        "# Verbs", NOTE, "",
        "Every verb has an async twin whose name begins with a: `await app.jobs.aenqueue(…)`.",
        'Durations are seconds, a `timedelta`, or text such as `"15m"` and `"1h30m"`.',
    ]  # fmt: skip
    for name, kind in DOORS.items():
        lines += ["", f"## `{name}`", ""]
        for verb, function in vars(kind).items():
            internal = verb.startswith("_") or (kind.__name__, verb) in INTERNAL
            if internal or is_twin(verb, kind):
                continue
            if isinstance(function, property):
                lines.append(f"- `{verb}`: {function.__doc__}")
            elif callable(function):
                said = " ".join(inspect.cleandoc(function.__doc__ or "").split())
                lines.append(f"- `{verb}({parameters(function)})`: {said}")
        for title, described in OPTIONS.get(name, {}).items():
            lines += ["", f"### {title}", "", "| | |", "|---|---|"]
            lines += [f"| `{key}` | {said} |" for key, said in remarks(described).items()]
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Describe every command."""
    _, *said = inspect.cleandoc(command_line.__doc__ or "").split("\n\n")
    lines = ["# Commands", NOTE, "", "`towpath COMMAND --help` shows all options.", ""]
    lines += ["\n\n".join(said)]
    for name, summary in command_line.COMMANDS.items():
        examples = import_module(f"towpath.cli.{name}").EXAMPLES
        lines += ["", f"## `towpath {name}`", "", f"{summary[0].upper()}{summary[1:]}.", ""]
        lines += ["```", examples.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def openapi() -> str:
    """Describe the HTTP API for programs; the types of the TypeScript client are made of it."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2).decode() + "\n"


def is_twin(verb: str, kind: type) -> bool:
    """Say whether it is the async form of another."""
    return verb.startswith("a") and verb[1:] in vars(kind)


def parameters(function: Callable[..., object]) -> str:
    """Write a signature without its types."""
    words: list[str] = []
    for each in list(inspect.signature(function).parameters.values())[1:]:
        if each.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            words += ["…"] if "…" not in words else []
        elif each.default is inspect.Parameter.empty:
            words.append(each.name)
        else:
            default = each.default
            words.append(f"{each.name}={str(default) if isinstance(default, str) else default!r}")
    return ", ".join(words)


INTERNAL = {
    ("App", "attach"),
    ("App", "run"),
    ("App", "start_again"),
    ("Chain", "build"),
    ("Chain", "nodes"),
    ("Context", "cancel"),
    ("Group", "build"),
    ("Group", "enqueue"),
    ("Jobs", "new"),
    ("Jobs", "storing"),
    ("Jobs", "stored"),
    ("Schedules", "declaration"),
    ("Step", "build"),
    ("Task", "as_enqueued"),
    ("Task", "from_outside"),
    ("Task", "job"),
    ("Task", "may_retry"),
    ("Task", "new"),
    ("Task", "returned_by"),
    ("Task", "signature"),
    ("Task", "store"),
    ("TaskJob", "await_"),
    ("Upkeep", "start_again"),
}
DOORS = {
    "app": App,
    "task": Task,
    "task.enqueue(…)": TaskJob,
    "task.s(…)": Step,
    "task.s(…) | task.s(…)": Chain,
    "group(…)": Group,
    "app.jobs": Jobs,
    "app.queue(topic)": Queue,
    "app.queues": Queues,
    "app.topics": Topics,
    "app.schedules": Schedules,
    "app.sessions": Sessions,
    "app.accounts": Accounts,
    "app.keys": Keys,
    "app.access": AccessVerbs,
    "app.upkeep": Upkeep,
    "ctx": Context,
    "towpath.testing.isolated(app)": IsolatedJobs,
    "jobs.clock": Clock,
}
OPTIONS: dict[str, dict[str, type]] = {
    "app": {"Options of `task`": TaskOptions},
    "app.jobs": {
        "Options of `enqueue` and `enqueue_many`": EnqueueOptions,
        "Filters of `list`": Filters,
        "Words of `say`": Words,
    },
    "app.access": {"Changes of `set`": AccessChanges},
}


PAGES = {
    "states.md": states,
    "errors.md": error_pages,
    "settings.md": settings,
    "verbs.md": verbs,
    "commands.md": commands,
    "../../clients/typescript/openapi.json": openapi,
}


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
