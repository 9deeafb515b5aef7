"""towpath workers: lists the workers and their leases."""

import argparse
from typing import Any, Final

import msgspec

from towpath.app.app import App
from towpath.app.sessions import is_live
from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Columns, Output, Table, since
from towpath.errors import NotFound
from towpath.model.sessions import RemoteWorker, Session

EXAMPLES: Final = """\
examples:
  towpath workers
  towpath workers --stop web-1-4471-0f3a99c2
  towpath workers --json | jq -r '.workers[] | select(.live) | .worker'
"""
COLUMNS: Final[Columns] = {
    "worker": "left",
    "started": "right",
    "last beat": "right",
    "leases": "right",
    "": "left",
    "topics": "left",
}


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "List the workers and their leases. Workers over HTTP have no session."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--stop",
        metavar="WORKER",
        help="ask the worker of this name, or of this session, to end its jobs and to stop",
    )
    add_common(parser)
    parser.set_defaults(run=workers)


def workers(given: argparse.Namespace) -> None:
    """Show the workers."""
    with open_app(given) as app:
        if given.stop is not None:
            _stop(app, given.stop)
        dead_after = app.settings.dead_after
        found: list[Session | RemoteWorker] = [*app.sessions.list(), *app.sessions.remote()]
    Output(as_json=given.json).show(
        {"workers": [document(each, dead_after) for each in found]},
        lambda: [Table(COLUMNS, (_row(each, dead_after) for each in found))],
    )


def _stop(app: App, wanted: str) -> None:
    known = app.sessions.list()
    found = [each for each in known if wanted in {each.worker, str(each.session)}]
    if not found:
        names = ", ".join(each.worker for each in known) or "none"
        msg = f"no worker with a session is named {wanted!r}; known: {names}"
        raise NotFound(msg)
    for each in found:
        app.sessions.stop(each.session)


def document(worker: Session | RemoteWorker, dead_after: float) -> dict[str, Any]:
    """Return the JSON form of a worker; its session is a string, too large for JavaScript."""
    known = msgspec.structs.asdict(worker)
    session = None if worker.session is None else str(worker.session)
    return {**known, "session": session, "live": is_live(worker, dead_after)}


def _row(worker: Session | RemoteWorker, dead_after: float) -> tuple[object, ...]:
    state = "live" if is_live(worker, dead_after) else "silent"
    if worker.stopping:
        state += ", stopping"
    topics = ", ".join(worker.topics)
    return (
        worker.worker,
        since(worker.started_at),
        worker.silent,
        worker.leases,
        state,
        topics,
    )
