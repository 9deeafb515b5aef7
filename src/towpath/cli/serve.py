"""towpath serve: serves the HTTP API, does upkeep and runs the tasks of an app."""

import argparse
import logging
import re
import sys
from importlib.util import find_spec
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from towpath import App
from towpath.cli.apps import AppName, add_common, duration, load_app, open_app
from towpath.cli.logs import add_log_options, configure_logging
from towpath.cli.output import Output, Refused, text

if TYPE_CHECKING:
    from towpath.webhooks.running import Deliveries

MOST_PORT: Final = 65_535
EXAMPLES: Final = """\
SIGTERM or Ctrl-C: accept no more requests, finish the running ones within the grace period.
A second signal: stop at once.

examples:
  towpath serve                                          jobs in ./towpath.db, no tasks
  towpath serve shop.tasks:app                           with the tasks of an app
  towpath serve --database postgresql://… --host 0.0.0.0 --port 80
  towpath serve --prefix /queue --proxy 127.0.0.1        behind a proxy, at /queue
  towpath serve --beanstalkd 127.0.0.1:11300             with beanstalkd's protocol
"""


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Serve the HTTP API, do upkeep, and run the tasks of an app."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "served",
        metavar="MODULE:APP",
        nargs="?",
        help="the app whose tasks to run (the same as --app)",
    )
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="to listen on (127.0.0.1)"
    )
    parser.add_argument(
        "--port", metavar="NUMBER", type=port, default=8090, help="0: any free port (default 8090)"
    )
    parser.add_argument("--no-worker", action="store_true", help="run no tasks")
    parser.add_argument("--no-webhooks", action="store_true", help="deliver no webhooks")
    parser.add_argument(
        "--concurrency", metavar="NUMBER", type=int, default=10, help="jobs at once (default 10)"
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        type=duration,
        default=30.0,
        help="time for running jobs and requests after a signal (default 30 s)",
    )
    parser.add_argument(
        "--origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        type=origin,
        help="another site whose pages may call the API, such as https://example.org; * for all",
    )
    parser.add_argument(
        "--proxy",
        metavar="NETWORK",
        action="append",
        default=[],
        type=network,
        help="address or network of a proxy whose X-Forwarded-For is trusted",
    )
    parser.add_argument(
        "--prefix",
        metavar="PATH",
        default="",
        type=prefix,
        help="at which a proxy shows this server, such as /queue; the proxy may strip it",
    )
    parser.add_argument(
        "--beanstalkd",
        metavar="HOST:PORT",
        type=address,
        help="also serve beanstalkd's protocol here; it has no passwords",
    )
    add_log_options(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def port(text: str) -> int:
    """Read a port number."""
    if text.isdecimal() and int(text) <= MOST_PORT:
        return int(text)
    msg = f"{text!r} is not a port; give a number from 0 to {MOST_PORT}"
    raise argparse.ArgumentTypeError(msg)


def origin(text: str) -> str:
    """Read the origin of a site."""
    if text == "*" or re.fullmatch(r"https?://[^/\s]+", text):
        return text
    msg = f"{text!r} is not an origin; give one such as https://example.org, without a path, or *"
    raise argparse.ArgumentTypeError(msg)


def network(text: str) -> str:
    """Read an address or a network."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        msg = f"{text!r} is not an address or a network such as 10.0.0.0/8"
        raise argparse.ArgumentTypeError(msg) from None
    return text


def prefix(text: str) -> str:
    """Read the path at which clients see this server."""
    path = text.rstrip("/")
    if not path or re.fullmatch(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+", path):
        return path
    msg = f"{text!r} is not a path of letters, digits and . _ ~ - such as /queue"
    raise argparse.ArgumentTypeError(msg)


def address(text: str) -> tuple[str, int]:
    """Read a host and a port."""
    host, _, number = text.rpartition(":")
    if not host or not number.isdecimal():
        msg = f"{text!r} is not HOST:PORT, such as 127.0.0.1:11300"
        raise argparse.ArgumentTypeError(msg)
    return host.strip("[]"), port(number)


def run(given: argparse.Namespace) -> None:
    """Serve until a signal."""
    try:
        from towpath.server.dashboard import built_dashboard  # noqa: PLC0415 - an extra
        from towpath.server.prefix import TAKEN  # noqa: PLC0415 - as above
        from towpath.server.serving import Listening, Serving  # noqa: PLC0415 - as above
    except ImportError as error:
        msg = f"serving needs {error.name}; run pip install 'towpath[server]'"
        raise Refused(msg, "extra_missing", 1) from error
    from towpath.model.instants import microseconds  # noqa: PLC0415 - as above
    from towpath.worker import Worker  # noqa: PLC0415 - as above

    if given.prefix and (first := given.prefix.split("/")[1]) in TAKEN:
        msg = (
            f"--prefix {given.prefix}: Towpath has a path /{first} of its own; give another prefix"
        )
        raise Refused(msg)
    app = _app(given)
    configure_logging(given.log_level, given.log_format)
    grace = microseconds(given.grace) / 1e6
    has_worker = bool(app.tasks) and not given.no_worker
    worker = Worker(app, concurrency=given.concurrency, grace=grace) if has_worker else None

    def listening(found: Listening) -> None:
        started = {
            "url": found.url,
            "database": app.database,
            "worker": worker.name if worker else None,
            "setup": found.set_up_link,
            "beanstalkd": found.beanstalkd,
        }
        Output(as_json=given.json).show(started, lambda: [text(_shown(app, worker, found))])
        sys.stdout.flush()

    def _shown(app: App, worker: Worker | None, found: Listening) -> str:
        lines = [f"Towpath on {found.url}", f"  database    {app.database}"]
        if worker:
            lines.append(f"  tasks       {', '.join(app.tasks)}")
        if built_dashboard():
            lines.append(f"  dashboard   {found.url}/")
        lines.append(f"  API         {found.url}/api/docs")
        if found.beanstalkd:
            lines.append(f"  beanstalkd  {found.beanstalkd}")
        if found.set_up_link:
            lines.append(f"  set-up      {found.set_up_link}\n              once, on this machine")
        return "\n".join(lines)

    serving = Serving(
        app=app,
        deliveries=_deliveries(app, grace) if not given.no_webhooks else None,
        host=given.host,
        port=given.port,
        worker=worker,
        grace=grace,
        origins=given.origin,
        proxies=given.proxy,
        prefix=given.prefix,
        beanstalkd=given.beanstalkd,
    )
    try:
        serving.run(listening)
    except OSError as error:
        wanted = error.filename or f"{given.host}:{given.port}"
        msg = f"cannot listen on {wanted}: {error.strerror or error}"
        raise Refused(msg, "address", 1) from error


def _deliveries(app: App, grace: float) -> "Deliveries | None":
    if find_spec("aiohttp") is None:
        logging.getLogger("towpath").info("no webhooks: run pip install 'towpath[webhooks]'")
        return None
    from towpath.webhooks.running import Deliveries  # noqa: PLC0415 - slow to import

    return Deliveries(app, grace=grace)


def _app(given: argparse.Namespace) -> App:
    if given.served is None:
        return open_app(given, creates=True)
    if given.database or given.app:
        msg = f"{given.served} has its own database; omit --database and --app"
        raise Refused(msg)
    return load_app(AppName(given.served))
