"""towpath workers: who is alive, and what it holds."""

import argparse
from typing import Any, Final

import msgspec

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Columns, Output, Table, since
from towpath.store.sessions import Session

EXAMPLES: Final = """\
examples:
  towpath workers
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
    """Say what the command understands."""
    parser.description = "List the workers that have a session, and what they hold."
    parser.epilog = EXAMPLES
    add_common(parser)
    parser.set_defaults(run=workers)


def workers(given: argparse.Namespace) -> None:
    """Show who is alive."""
    with open_app(given) as app:
        dead_after = app.settings.dead_after
        found = app.sessions.list()
    Output(as_json=given.json).show(
        {"workers": [document(each, dead_after) for each in found]},
        lambda: [Table(COLUMNS, (_row(each, dead_after) for each in found))],
    )


def document(session: Session, dead_after: float) -> dict[str, Any]:
    """Return a session for programs; its number is text, for it is too large for JavaScript."""
    known = msgspec.structs.asdict(session)
    return {**known, "session": str(session.session), "live": _is_live(session, dead_after)}


def _row(session: Session, dead_after: float) -> tuple[object, ...]:
    state = "live" if _is_live(session, dead_after) else "silent"
    topics = ", ".join(session.topics)
    return (
        session.worker,
        since(session.started_at),
        session.silent,
        session.leases,
        state,
        topics,
    )


def _is_live(session: Session, dead_after: float) -> bool:
    return session.silent.total_seconds() < dead_after
