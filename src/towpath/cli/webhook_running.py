"""towpath webhooks run, roles and key: delivers webhooks, and sets up what that needs."""

import argparse
import logging
import sys
from typing import Final

from towpath.cli.apps import duration, open_app
from towpath.cli.logs import add_log_options, configure_logging
from towpath.cli.output import Output, text

PARTS: Final = ("router", "orchestrator", "worker", "cleaner", "replayer")
SIGNALS: Final = """\
`towpath serve` delivers webhooks, too. SIGTERM or Ctrl-C: begin no more attempts, end those under
way within the grace period. A second signal: abandon them; they are made again later."""


def define_run(parser: argparse.ArgumentParser) -> None:
    """Define the options of `run`."""
    parser.description = f"{parser.description}\n\n{SIGNALS}"
    parser.add_argument("--only", choices=PARTS, help="this part alone, without upkeep")
    parser.add_argument(
        "--concurrency",
        metavar="NUMBER",
        type=int,
        default=200,
        help="attempts at once (default 200)",
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        type=duration,
        default=30.0,
        help="time for attempts after a signal (default 30 s)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="of the worker (default: its host, its process)"
    )
    add_log_options(parser)


def define_roles(parser: argparse.ArgumentParser) -> None:
    """Define the options of `roles`."""
    parser.add_argument("--apply", action="store_true", help="run the SQL")


def deliver(given: argparse.Namespace) -> None:
    """Deliver until a signal."""
    from towpath.webhooks.running import Deliveries  # noqa: PLC0415 - slow to import

    with open_app(given, creates=given.only is None) as app:
        configure_logging(given.log_level, given.log_format)
        deliveries = Deliveries(
            app,
            only=given.only,
            concurrency=given.concurrency,
            grace=given.grace,
            name=given.name,
        )
        parts = given.only or "router, orchestrator, worker, replayer"
        started = {"database": app.database, "parts": parts, "worker": deliveries.name}
        line = f"webhooks on {app.database}\n  parts   {parts}\n  worker  {deliveries.name}"
        Output(as_json=given.json).show(started, lambda: [text(line)])
        sys.stdout.flush()
        deliveries.run()
        logging.getLogger("towpath").info("the deliveries of %s have stopped", deliveries.name)


def roles(given: argparse.Namespace) -> None:
    """Print or run the SQL that makes the roles."""
    with open_app(given) as app:
        sql = app.deliveries.roles_sql()
        if given.apply:
            app.deliveries.make_roles()
    lines = ["the roles are made"] if given.apply else [sql.rstrip()]
    Output(as_json=given.json).show({"sql": sql, "applied": given.apply}, lambda: map(text, lines))


def key(given: argparse.Namespace) -> None:
    """Print a new key."""
    from towpath.model.sealing import new_key  # noqa: PLC0415 - as above

    made = new_key()
    Output(as_json=given.json).show({"key": made}, lambda: [text(made)])
