"""towpath worker: runs the tasks of an app."""

import argparse
import contextlib
import gc
import logging
import os
import sys
from typing import Final

from towpath import App
from towpath.app.connect import without_driver
from towpath.cli.apps import NO_APP, duration, find_app, load_app
from towpath.cli.logs import add_log_options, configure_logging
from towpath.cli.output import Output, Refused, text
from towpath.cli.processes import CHILD, SAME_SIGNAL, run_processes
from towpath.cli.reload import reload
from towpath.errors import DatabaseUnavailable
from towpath.worker import Worker

EXAMPLES: Final = """\
SIGTERM or Ctrl-C: reserve no more jobs, finish the running ones within the grace period, give the
rest back. A second signal: give all jobs back at once. The exit code is 0 in both cases.

examples:
  towpath worker shop.tasks:app
  towpath worker shop.tasks:app --topics mail,reports --concurrency 50 --grace 2m
  towpath worker shop.tasks:app --processes 4   one for each core
  towpath worker shop.tasks:app --burst         all that can run now, then stop
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
        metavar="TOPICS",
        type=lambda words: [word for word in words.split(",") if word],
        help="the topics to serve, such as mail,reports (default: all that have a task)",
    )
    parser.add_argument(
        "--concurrency", metavar="NUMBER", type=int, default=10, help="jobs at once (default 10)"
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        type=duration,
        default=30.0,
        help="time for running jobs after a signal (default 30 s)",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="of this worker (default: its host, its process and a number)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="NUMBER",
        help="worker processes; one that dies is replaced (default 1)",
    )
    parser.add_argument(
        "--burst", action="store_true", help="stop when no job is left that can run now"
    )
    parser.add_argument(
        "--database", metavar="URL", help="work on this database instead of the app's own"
    )
    add_log_options(parser)
    parser.add_argument("--reload", action="store_true", help="restart when a .py file changes")
    parser.add_argument("--json", action="store_true", help="print the start message as JSON")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run jobs until a signal."""
    if given.reload:
        return reload([word for word in sys.argv[1:] if word != "--reload"])
    with _app(given) as app:
        configure_logging(given.log_level, given.log_format)
        worker = Worker(
            app,
            topics=given.topics,
            concurrency=given.concurrency,
            grace=given.grace,
            name=given.name,
            burst=given.burst,
        )
        if os.environ.get(CHILD):
            worker.same_signal_within = SAME_SIGNAL
        if given.processes == 1:
            _work(given, app, worker)
            return 0
    # The app can be imported, so a process that ends has died.
    return run_processes(_commands(given), burst=given.burst)


def _app(given: argparse.Namespace) -> App:
    if given.processes < 1:
        msg = f"--processes must be at least 1, not {given.processes}"
        raise Refused(msg)
    named = find_app(given.app)
    if named is None:
        raise Refused(NO_APP)
    if given.database:
        os.environ["TOWPATH_DATABASE"] = given.database
    app = load_app(named)
    if given.database and app.url != without_driver(given.database):
        if any(task.sandbox for topic in app.tasks for task in app.tasks.of(topic)):
            msg = (
                f"--database: a sandboxed task would use the database of {named.name}; write "
                "App() without a URL there"
            )
            raise Refused(msg)
        app.attach(given.database, app.settings, None)
    return app


def _commands(given: argparse.Namespace) -> list[list[str]]:
    """Return the command of each process; of two equal options the last holds."""
    command = [sys.executable, "-m", "towpath", *sys.argv[1:], "--processes", "1"]
    numbers = range(1, given.processes + 1)
    return [[*command, *(["--name", f"{given.name}-{n}"] if given.name else [])] for n in numbers]


def _work(given: argparse.Namespace, app: App, worker: Worker) -> None:
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
