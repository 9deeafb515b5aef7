"""Write docs/reference and openapi.json from the code. With --check, say what is stale."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from source import Named, alias, class_fields, doc, enum_remarks, parameters, signature

from towpath import App, errors
from towpath.app.access import AccessChanges, AccessVerbs
from towpath.app.accounts import Accounts
from towpath.app.bulk import BulkActs, Choice
from towpath.app.checks import EnqueueOptions, Filters
from towpath.app.context import Words
from towpath.app.dead_letters import DeadLetters
from towpath.app.delay_queue import PutOptions, Queue, Queues
from towpath.app.events import Events
from towpath.app.jobs import Jobs
from towpath.app.keys import Keys
from towpath.app.limits import Limits
from towpath.app.sagas import Sagas
from towpath.app.schedules import Schedules
from towpath.app.sessions import Sessions
from towpath.app.tasks import TaskOptions
from towpath.app.topics import Topics
from towpath.app.upkeep import Upkeep
from towpath.app.webhook_checks import ReplayFilter, SubscriptionChanges, SubscriptionOptions
from towpath.app.webhooks import Webhooks
from towpath.cli import main as command_line
from towpath.model.job import SHOWN_OTHERWISE, Job, Options
from towpath.model.states import STATUS, TRANSITIONS, Action, State
from towpath.model.unique import Unique
from towpath.server.api import document
from towpath.server.metrics import METRICS
from towpath.settings import Settings

HERE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code: do not edit. -->"
TWINS = [
    "Every verb has an async twin whose name begins with a: `await app.jobs.aenqueue(…)`.",
    'Durations are seconds, a `timedelta`, or text such as `"15m"` and `"1h30m"`.',
]


def index() -> str:
    """List the pages."""
    lines = ["# Reference", NOTE, "", "Written from the code, so it fits the code.", ""]
    lines += [f"- [{name}]({name}): {doc(page)}" for name, page in PAGES.items()]
    return "\n".join([*lines, "- `/api/docs` of a server: every HTTP route.", ""])


def states() -> str:
    """Every state of a job, and how it changes."""
    lines = [
        "# States", NOTE, "",
        "`from towpath import State, Status`. A job's state is the table in which its ticket lies;",
        "its status is coarser.", "",
        "| state | status | meaning |", "|---|---|---|",
        *(f"| `{state}` | `{STATUS[state]}` | {said} |" for state, said in enum_remarks(State)), "",
        "| action | from | to | |", "|---|---|---|---|",
    ]  # fmt: skip
    said_of = dict(enum_remarks(Action))
    for action, (sources, goal) in TRANSITIONS.items():
        allowed = ", ".join(f"`{state}`" for state in State if state in sources)
        to = f"`{goal}`" if goal else "gone"
        lines.append(f"| {action} | {allowed} | {to} | {said_of[action]} |")
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
    """Every error, its code, and what to do about it."""
    lines = [
        "# Errors", NOTE, "",
        "`from towpath.errors import LeaseLost`. Codes are stable.", "",
    ]  # fmt: skip
    lines += ["| error | code | is a | advice |", "|---|---|---|---|"]
    for error in tree(errors.TowpathError):
        parent = error.__mro__[1].__name__
        lines.append(f"| `{error.__name__}` | `{error.code}` | `{parent}` | {doc(error)} |")
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Every setting of an app, and its default."""
    said = {each.name: each.said for each in class_fields(Settings)}
    lines = [
        "# Settings", NOTE, "",
        "Given to `App(url, name=value)`, to `App(url, settings=Settings(…))`, or by the",
        "environment. Durations are seconds.", "",
        "| setting | default | environment | |", "|---|---|---|---|",
        *(
            f"| `{field.name}` | `{field.default}` | `TOWPATH_{field.name.upper()}` "
            f"| {said[field.name]} |"
            for field in fields(Settings)
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def metrics() -> str:
    """Every metric of a server's `/metrics`, for Prometheus."""
    lines = [
        "# Metrics", NOTE, "",
        "`GET /metrics` of `towpath serve`, for superusers and API keys with the scope `metrics`.",
        "The numbers of jobs and workers come from the database: every server shows the same ones.",
        "Requests and waiting calls are those of the process that is asked.", "",
        "| metric | type | labels | meaning |", "|---|---|---|---|",
    ]  # fmt: skip
    for name, metric in METRICS.items():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


def verbs() -> str:
    """Every verb of an app and its options."""
    lines = ["# Verbs", NOTE, "", *TWINS]
    for name, kind in DOORS.items():
        lines += ["", f"## `{name}`", "", doc(kind), "", *members(kind)]
        for title, described in OPTIONS.get(name, {}).items():
            lines += ["", f"### {title}", "", *field_table(class_fields(described))]
        if kind is Jobs:
            lines += ["", "### Values of `unique`", "", doc(Unique), "", "| | |", "|---|---|"]
            lines += [f"| `{each}` | {said} |" for each, said in enum_remarks(Unique)]
    return "\n".join(lines) + "\n"


def classes() -> str:
    """Every public class and function: tasks, workers, flows, limits, the test kit, web."""
    lines = ["# Classes and functions", NOTE, "", *TWINS, "The twin of `wait` is `await_`."]
    for title, names in CLASSES.items():
        lines += ["", f"## {title}"]
        for name in names:
            module, _, attribute = name.rpartition(".")
            lines += ["", f"### `{attribute}`", ""]
            if module != "pytest_towpath":  # a fixture is not imported
                lines += [f"`from {module} import {attribute}`", ""]
            lines += entry(getattr(import_module(module), attribute))
    lines += ["", "## Types", "", *map(alias, TYPES)]
    return "\n".join(lines) + "\n"


def job() -> str:
    """Every field of a job, and the records of its runs."""
    http = {
        field: ", ".join(f"`{camel(name)}`" for name in names) or "-"
        for field, names in SHOWN_OTHERWISE.items()
    }
    lines = [
        "# A job", NOTE, "",
        f"`from towpath import Job`. {doc(Job)}", "",
        "| field | type | over HTTP | meaning |", "|---|---|---|---|",
        *(
            f"| `{each.name}` | {code(each.type)} | {http.get(each.name, f'`{camel(each.name)}`')} "
            f"| {each.said} |"
            for each in class_fields(Job)
        ),
        "", "It also has:", "", *members(Job), "",
        "## `job.options`", "", doc(Options), "", *field_table(class_fields(Options)),
    ]  # fmt: skip
    return "\n".join([*lines, *record_entries(OF_A_JOB)]) + "\n"


def records() -> str:
    """All that verbs return besides jobs: counts, schedules, workers, accounts."""
    lines = ["# Records", NOTE, "", "What verbs return, as it was when it was read."]
    return "\n".join([*lines, *record_entries(RECORDS)]) + "\n"


def record_entries(names: Iterable[str]) -> Iterator[str]:
    """Describe records by their fields."""
    for name in names:
        module, _, attribute = name.rpartition(".")
        kind = getattr(import_module(module), attribute)
        yield from ("", f"## `{attribute}`", "", doc(kind), "")
        yield from field_table(class_fields(kind, strict=False))
        more = list(members(kind))
        yield from ["", *more] if more else []


def commands() -> str:
    """Every command of the shell."""
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


def entry(thing: Any) -> Iterator[str]:
    """Describe a class or a function."""
    yield inspect.cleandoc(thing.__doc__ or "")
    if not isinstance(thing, type):
        yield from ("", f"`{thing.__name__}{signature(thing)}`")
        table = list(field_table(parameters(thing)))
        yield from ["", *table] if table else []
        return
    is_struct = issubclass(thing, msgspec.Struct)
    named = list(class_fields(thing) if is_struct else parameters(vars(thing).get("__init__")))
    if thing.__name__ in MADE_BY_USERS and not is_struct:
        yield from ("", f"`{thing.__name__}{signature(vars(thing)['__init__'])}`")
    if named and (is_struct or thing.__name__ in MADE_BY_USERS):
        yield from ("", *field_table(named))
    if thing is App:
        yield from ("", "More keywords are [settings](settings.md). Its verbs: [verbs](verbs.md).")
        return
    shown = list(members(thing))
    yield from ["", *shown] if shown else []


def members(kind: type) -> Iterator[str]:
    """Describe the properties and the methods of a class."""
    for name, function in vars(kind).items():
        if isinstance(function, property):
            if (kind.__name__, name) not in INTERNAL:
                yield f"- `{name}`: {doc(function)}"
            continue
        function = getattr(function, "__func__", function)  # noqa: PLW2901 - of a class method
        if name in OPERATORS:
            yield f"- {OPERATORS[name]}: {doc(function)}"
        elif (
            inspect.isfunction(function)
            and not name.startswith("_")
            and (kind.__name__, name) not in INTERNAL
            and not is_twin(name, kind)
        ):
            yield f"- `{name}{signature(function)}`: {doc(function)}"


def field_table(named: Iterable[Named]) -> Iterator[str]:
    """Describe fields or parameters."""
    rows = list(named)
    if rows:
        yield from ("| | type | |", "|---|---|---|")
    for each in rows:
        default = "" if each.default in {None, "None"} else f"default {code(str(each.default))}"
        said = "; ".join(filter(None, (each.said, default)))
        yield f"| `{each.name}` | {code(each.type)} | {said} |"


def code(text: str) -> str:
    """Return text as code in the cell of a table."""
    return f"`{text}`".replace("|", "\\|")


def camel(name: str) -> str:
    """Return the name of a field over HTTP."""
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def is_twin(verb: str, kind: type) -> bool:
    """Say whether it is the async form of another."""
    return verb.startswith("a") and verb[1:].removesuffix("_") in vars(kind)


INTERNAL = {
    ("AccessVerbs", "known"),
    ("Api", "answer"),
    ("App", "attach"),
    ("App", "run"),
    ("App", "start_again"),
    ("Backoff", "checked"),
    ("Chain", "after"),
    ("Chain", "build"),
    ("Chain", "in_turn"),
    ("Chain", "nodes"),
    ("Context", "cancel"),
    ("Group", "after"),
    ("Group", "build"),
    ("Group", "enqueue"),
    ("Group", "in_turn"),
    ("Jobs", "new"),
    ("Jobs", "storing"),
    ("Jobs", "stored"),
    ("Limit", "pace"),
    ("Schedules", "declaration"),
    ("Step", "after"),
    ("Step", "build"),
    ("Task", "as_enqueued"),
    ("Task", "from_outside"),
    ("Task", "job"),
    ("Task", "may_retry"),
    ("Task", "new"),
    ("Task", "returned_by"),
    ("Task", "signature"),
    ("Task", "store"),
    ("TowpathBackend", "check"),
    ("TowpathBackend", "flush"),
    ("TowpathBackend", "migrate"),
    ("UnreadableJob", "expires_at"),
    ("Upkeep", "start_again"),
    ("Webhooks", "left"),
    ("Worker", "stop_gently"),
}
"""Public by name, but not meant for users."""

OPERATORS = {"__call__": "a call"}
DOORS = {
    "app": App,
    "app.jobs": Jobs,
    "app.queue(topic)": Queue,
    "app.queues": Queues,
    "app.topics": Topics,
    "app.events": Events,
    "app.webhooks": Webhooks,
    "app.webhooks.sagas": Sagas,
    "app.webhooks.dead_letters": DeadLetters,
    "app.schedules": Schedules,
    "app.limits": Limits,
    "app.bulk": BulkActs,
    "app.sessions": Sessions,
    "app.accounts": Accounts,
    "app.keys": Keys,
    "app.access": AccessVerbs,
    "app.upkeep": Upkeep,
}
OPTIONS: dict[str, dict[str, type]] = {
    "app": {"Options of `task`": TaskOptions},
    "app.jobs": {
        "Options of `enqueue` and `enqueue_many`": EnqueueOptions,
        "Filters of `list`": Filters,
        "Words of `say`": Words,
    },
    "app.queue(topic)": {"Options of `put`": PutOptions},
    "app.webhooks": {
        "Options of `create`": SubscriptionOptions,
        "Changes of `update`, beside these": SubscriptionChanges,
        "Filters of `preview` and `replay`": ReplayFilter,
    },
    "app.access": {"Changes of `set`": AccessChanges},
    "app.bulk": {"Which jobs": Choice},
}
CLASSES = {
    "The app": ["towpath.App"],
    "Tasks": [
        "towpath.Task",
        "towpath.app.tasks.Calls",
        "towpath.TaskJob",
    ],
    "Workers": [
        "towpath.worker.Worker",
        "towpath.Context",
        "towpath.Retry",
        "towpath.Cancel",
        "towpath.Bury",
    ],
    "Limits and pauses": ["towpath.Limit", "towpath.Backoff"],
    "Flows": [
        "towpath.group",
        "towpath.Step",
        "towpath.Chain",
        "towpath.Group",
        "towpath.PartOutcome",
    ],
    "Events": [
        "towpath.NewEvent",
        "towpath.Event",
        "towpath.EventPage",
        "towpath.Channel",
        "towpath.Attachment",
        "towpath.Consumer",
        "towpath.Owner",
    ],
    "Webhooks": [
        "towpath.webhooks.verify",
        "towpath.webhooks.job_id",
        "towpath.webhooks.Received",
    ],
    "Delay queues": ["towpath.app.delay_queue.Reservation"],
    "Tests": [
        "towpath.testing.isolated",
        "towpath.testing.IsolatedJobs",
        "towpath.testing.Clock",
        "towpath.testing.Crash",
        "pytest_towpath.towpath_jobs",
    ],
    "Web": [
        "towpath.server.Api",
        "towpath.integrations.starlette.lifespan",
        "towpath.integrations.django.TowpathBackend",
    ],
}
TYPES = [
    "towpath.model.instants.Duration",
    "towpath.model.sizes.Size",
    "towpath.app.checks.JobRef",
    "towpath.model.backoff.BackoffOption",
    "towpath.app.tasks.Wait",
    "towpath.app.tasks.Errors",
    "towpath.app.tasks.OnFailure",
    "towpath.app.middleware.AroundEnqueue",
    "towpath.app.middleware.AroundRun",
    "towpath.integrations.starlette.Lifespan",
]
MADE_BY_USERS = {"Api", "App", "Retry", "Worker"}
"""Classes whose parameters matter; the others are returned by verbs."""

OF_A_JOB = [
    "towpath.Lease",
    "towpath.LogLine",
    "towpath.Said",
    "towpath.StreamEnd",
    "towpath.model.job.Failure",
    "towpath.model.runs.Run",
    "towpath.UnreadableJob",
]
RECORDS = [
    "towpath.model.stats.Stats",
    "towpath.model.stats.TopicStats",
    "towpath.model.stats.Histogram",
    "towpath.model.stats.Minute",
    "towpath.Schedule",
    "towpath.model.subscriptions.WebhookSubscription",
    "towpath.model.subscriptions.SubscriptionHealth",
    "towpath.model.subscriptions.Saga",
    "towpath.model.subscriptions.Attempt",
    "towpath.model.subscriptions.DeadLetter",
    "towpath.model.sessions.Session",
    "towpath.model.sessions.RemoteWorker",
    "towpath.model.limits.LimitInUse",
    "towpath.model.bulk.Bulk",
    "towpath.model.bulk.BulkPreview",
    "towpath.model.bulk.JobChoice",
    "towpath.model.accounts.Account",
    "towpath.model.keys.ApiKey",
    "towpath.model.access.Access",
    "towpath.app.doctor.Check",
    "towpath.app.app.Recovery",
    "towpath.model.delay_queue.QueueCounts",
    "towpath.model.delay_queue.JobAt",
]
PAGES: dict[str, Callable[[], str]] = {
    "verbs.md": verbs,
    "classes.md": classes,
    "job.md": job,
    "records.md": records,
    "states.md": states,
    "errors.md": error_pages,
    "settings.md": settings,
    "commands.md": commands,
    "metrics.md": metrics,
}
WRITTEN = {**PAGES, "README.md": index, "../../clients/typescript/openapi.json": openapi}


def main() -> None:
    """Write the pages, or check them."""
    stale = []
    for name, write in WRITTEN.items():
        path, text = HERE / name, write()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale)}; run python docs/generate.py")


if __name__ == "__main__":
    main()
