"""towpath worker: runs the tasks of an app."""

import argparse
import contextlib
import gc
import logging
import sys
from typing import Final

from towpath.cli.apps import NO_APP, duration, find_app, load_app
from towpath.cli.output import Output, Refused, text
from towpath.cli.reload import reload
from towpath.errors import DatabaseUnavailable
from towpath.worker import Worker

EXAMPLES: Final = """\
SIGTERM or Ctrl-C: reserve no more jobs, finish the running ones within the grace period, give the
rest back. A second signal: give all jobs back at once. The exit code is 0 in both cases.

examples:
  towpath worker shop.tasks:app
  towpath worker shop.tasks:app --topics mail,reports --concurrency 50 --grace 2m
  towpath worker shop.tasks:app --reload        for development
"""


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Run the tasks of an app. The working directory is on the import path."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "app",
        metavar="MODULE:APP",
        nargs="?",
        help="where the App is (default: TOWPATH_APP, then `app` under [tool.towpath] in "
        "pyproject.toml)",
    )
    parser.add_argument(
        "--topics",
        type=lambda words: [word for word in words.split(",") if word],
        help="the topics to serve, separated by commas (default: all that have a task)",
    )
    parser.add_argument("--concurrency", type=int, default=10, help="jobs at once (default 10)")
    parser.add_argument(
        "--grace",
        type=duration,
        default=30.0,
        help="time for running jobs after a signal (default 30 s)",
    )
    parser.add_argument(
        "--name", help="name of this worker (default: its host, its process and a number)"
    )
    parser.add_argument("--reload", action="store_true", help="restart when a .py file changes")
    parser.add_argument("--json", action="store_true", help="print the start message as JSON")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run jobs until a signal."""
    if given.reload:
        return reload([word for word in sys.argv[1:] if word != "--reload"])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    named = find_app(given.app)
    if named is None:
        raise Refused(NO_APP)
    with load_app(named) as app:
        worker = Worker(
            app,
            topics=given.topics,
            concurrency=given.concurrency,
            grace=given.grace,
            name=given.name,
        )
        topics = list(given.topics or app.tasks)
        started = {
            "worker": worker.name,
            "database": app.database,
            "topics": topics,
            "concurrency": given.concurrency,
        }
        Output(as_json=given.json).show(
            started,
            lambda: [
                text(
                    f"worker {worker.name} on {app.database}\n"
                    f"  topics       {', '.join(topics)}\n"
                    f"  concurrency  {given.concurrency}"
                )
            ],
        )
        sys.stdout.flush()
        # The worker waits for a database that is not reachable; any other error ends it.
        with contextlib.suppress(DatabaseUnavailable):
            app.migrate()
        gc.freeze()  # modules stay loaded, so no collection needs to visit them
        worker.run()
        logging.getLogger("towpath").info("worker %s has stopped", worker.name)
    return 0
