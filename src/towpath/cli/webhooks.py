"""towpath webhooks: makes and changes subscriptions, shows what is delivered, and delivers."""

import argparse
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from towpath.cli import webhook_deliveries as deliveries
from towpath.cli import webhook_running as running
from towpath.cli.apps import add_common, add_limit, duration, open_app
from towpath.cli.output import Columns, Output, Refused, Table, since, text
from towpath.model.attempts import BodyKind
from towpath.model.instants import spoken
from towpath.model.subscriptions import SubscriptionHealth, WebhookSubscription

EXAMPLES: Final = """\
A secret is shown once: by create and by rotate. It is stored sealed under TOWPATH_WEBHOOK_KEY.

examples:
  towpath webhooks key                    for TOWPATH_WEBHOOK_KEY
  towpath webhooks create orders https://shop.example/hooks --types 'order.*'
  towpath webhooks list --channel orders
  towpath webhooks show 7
  towpath webhooks update 7 --url https://shop.example/new --rate 10/s
  towpath webhooks pause 7
  towpath webhooks resume 7
  towpath webhooks enable 7
  towpath webhooks rotate 7 --overlap 1h
  towpath webhooks ping 7
  towpath webhooks delete 7
  towpath webhooks sagas --subscription 7 --status DeadLettered
  towpath webhooks attempts 120
  towpath webhooks resend 120 --confirm
  towpath webhooks cancel 120
  towpath webhooks dead-letters --subscription 7
  towpath webhooks requeue 3 4
  towpath webhooks forget 3 4
  towpath webhooks replay 7 --status Completed --preview
  towpath webhooks run --only worker --database postgresql://hooks@…   with the rights of a worker
  towpath webhooks roles --apply
"""
COLUMNS: Final[Columns] = {
    "id": "right",
    "channel": "left",
    "url": "left",
    "types": "left",
    "owner": "left",
    "age": "right",
    "": "left",
}


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Make and change subscriptions, see what is delivered, and deliver."
    parser.epilog = EXAMPLES
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB", dest="verb")

    def verb(name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
        lines = "\n".join(f"  towpath webhooks {name} {words}".rstrip() for words in examples)
        made = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"examples:\n{lines}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(run=VERBS[name])
        return made

    creating = verb(
        "create",
        "call a URL for the events of a channel, from now on",
        "orders https://shop.example/hooks --types 'order.*' paid",
        "orders https://shop.example/hooks --header authorization",
    )
    creating.add_argument("channel", metavar="CHANNEL", help="the name of a channel")
    creating.add_argument("url", metavar="URL", help="such as https://host/path")
    _add_options(creating)
    _add_secret(creating)

    listing = verb("list", "list subscriptions by number", "--channel orders", "--owner ada")
    listing.add_argument("--channel", metavar="CHANNEL", help="only those of this channel")
    listing.add_argument("--owner", metavar="OWNER", help="only those of this owner")
    listing.add_argument("--after", metavar="ID", type=int, default=0, help="continue after it")
    add_limit(listing, 100)

    _add_id(verb("show", "show a subscription, and how its deliveries go", "7"))

    updating = verb(
        "update", "change a subscription", "7 --url https://shop.example/new", "7 --timeout 30"
    )
    _add_id(updating)
    updating.add_argument("--url", metavar="URL", help="deliveries that wait are sent to it, too")
    _add_options(updating)

    _add_id(verb("pause", "hold what is published for a subscription", "7"))
    _add_id(verb("resume", "deliver what was held, and what is new", "7"))
    _add_id(verb("enable", "start a subscription that its failures have stopped", "7"))

    rotating = verb(
        "rotate", "sign with another secret, and for a while with both", "7", "7 --overlap 1h"
    )
    _add_id(rotating)
    _add_secret(rotating)
    rotating.add_argument(
        "--overlap",
        metavar="TIME",
        type=duration,
        default="24h",
        help="how long the old secret signs, too (default 24h, at most 7d)",
    )

    _add_id(verb("ping", "deliver an event of type ping", "7"))
    _add_id(verb("delete", "delete a subscription and its secrets", "7"))
    deliveries.define(verb)

    running.define_run(
        verb(
            "run",
            "route, make attempts, apply their outcomes, until SIGTERM or Ctrl-C",
            "--database postgresql://…",
            "--only worker --database postgresql://hooks@…   with the rights of a worker",
        )
    )
    running.define_roles(
        verb("roles", "print the SQL that makes five PostgreSQL roles", "", "--apply")
    )
    verb("key", "print a new key for TOWPATH_WEBHOOK_KEY", "")
    for each in verbs.choices.values():
        add_common(each)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", type=int, help="the number of a subscription")


def _add_options(parser: argparse.ArgumentParser) -> None:
    for flag, metavar, kind, summary in (
        ("--filter", "RULE", str, 'a rule over @event, such as "@event.payload.total > 9"'),
        ("--timeout", "TIME", duration, "of one attempt, 1s to 60s (default 15s)"),
        ("--concurrency", "NUMBER", int, "deliveries at once, 1 to 100 (default 10)"),
        ("--rate", "RATE", str, "of deliveries, such as 10/s; none: no limit"),
        ("--burst", "NUMBER", int, "deliveries at once after a pause, with a rate"),
        ("--owner", "OWNER", str, "for rules: @subscription.owner"),
        ("--description", "TEXT", str, "for people"),
    ):
        parser.add_argument(flag, metavar=metavar, type=kind, help=summary)
    parser.add_argument(
        "--types", metavar="TYPE", nargs="+", help="of events, such as 'order.*' (default all)"
    )
    parser.add_argument(
        "--waits", metavar="TIME", nargs="*", type=duration, help="between attempts, such as 5s 1m"
    )
    parser.add_argument(
        "--final", metavar="STATUS", nargs="*", type=int, help="answers that are not tried again"
    )
    parser.add_argument("--body", choices=[*map(str, BodyKind)], help="default envelope")
    parser.add_argument(
        "--ordered",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="one delivery after the other, in the order of events",
    )
    parser.add_argument(
        "--header",
        metavar="NAME",
        action="append",
        help="sent with each request; its value is read from stdin, one line",
    )


def _add_secret(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--secret-stdin", action="store_true", help="read a secret whsec_… from stdin, one line"
    )


def _options(given: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a subscription that are given."""
    renamed = {"filter": "filter_rule", "final": "final_statuses"}
    names = (
        "filter", "timeout", "concurrency", "rate", "burst", "owner", "description", "types",
        "waits", "final", "body", "ordered",
    )  # fmt: skip
    options = {renamed.get(name, name): getattr(given, name) for name in names}
    options = {name: value for name, value in options.items() if value is not None}
    if options.get("rate") == "none":
        options["rate"] = None
    if given.header:
        # Often a credential, and so no argument, which other users of the machine could see.
        options["headers"] = {name: sys.stdin.readline().rstrip("\r\n") for name in given.header}
    return options


def _secret(given: argparse.Namespace) -> str | None:
    return sys.stdin.readline().strip() if given.secret_stdin else None


def create(given: argparse.Namespace) -> None:
    """Make a subscription and show its secret."""
    secret, options = _secret(given), _options(given)
    with open_app(given, creates=True) as app:
        made, secret = app.webhooks.create(given.channel, given.url, secret=secret, **options)
    lines = [f"subscription {made.id} calls {made.url} for events of {made.channel}", secret]
    document = {"subscription": made, "secret": secret}
    Output(as_json=given.json).show(document, lambda: map(text, lines))


def list_subscriptions(given: argparse.Namespace) -> None:
    """List subscriptions."""
    with open_app(given) as app:
        found = app.webhooks.list(
            channel=given.channel, owner=given.owner, after=given.after, limit=given.limit
        )
    rows = map(_row, found)
    Output(as_json=given.json).show({"subscriptions": found}, lambda: [Table(COLUMNS, rows)])


def _row(each: WebhookSubscription) -> tuple[object, ...]:
    state = "paused" if each.paused else ""
    types = " ".join(each.types)
    return each.id, each.channel, each.url, types, each.owner or "-", since(each.created_at), state


def show(given: argparse.Namespace) -> None:
    """Show a subscription and its health."""
    with open_app(given) as app:
        found, health = app.webhooks.get(given.id), app.webhooks.health(given.id)
    document = {"subscription": found, "health": health}
    rows = [*_described(found), *_told(health)]
    columns: Columns = {"": "left", " ": "left"}
    Output(as_json=given.json).show(document, lambda: [Table(columns, rows)])


def _described(each: WebhookSubscription) -> list[tuple[str, object]]:
    rate = "-" if each.pace is None else f"one every {spoken(each.pace)}, {each.burst} at once"
    return [
        ("subscription", each.id),
        ("channel", each.channel),
        ("url", each.url),
        ("types", " ".join(each.types)),
        ("filter", each.filter_rule or "-"),
        ("owner", each.owner or "-"),
        ("description", each.description or "-"),
        ("timeout", spoken(each.timeout)),
        ("concurrency", "1, in order" if each.ordered else each.concurrency),
        ("rate", rate),
        ("waits", " ".join(spoken(wait).replace(" ", "") for wait in each.waits) or "-"),
        ("final", " ".join(map(str, each.final_statuses)) or "-"),
        ("body", each.body),
        ("paused", "yes" if each.paused else "no"),
    ]


def _took(duration: timedelta | None) -> str:
    return "-" if duration is None else f"at most {duration.total_seconds() * 1e3:,.0f} ms"


def _told(health: SubscriptionHealth) -> list[tuple[str, object]]:
    stopped = "no"
    if health.stopped_at is not None:
        stopped = f"since {health.stopped_at}: {health.stopped_why}; `enable` starts it again"
    return [
        ("stopped", stopped),
        ("failures", health.failures),
        ("failing since", health.failing_since or "-"),
        ("last success", health.last_success_at or "-"),
        ("last error", health.last_error or "-"),
        ("half took", _took(health.p50)),
        ("95 % took", _took(health.p95)),
        ("waiting", health.waiting),
        ("in progress", health.in_progress),
        ("held", health.held),
    ]


def update(given: argparse.Namespace) -> None:
    """Change a subscription."""
    changes = _options(given) | ({"url": given.url} if given.url is not None else {})
    if not changes:
        msg = "give an option to change, such as --url or --timeout"
        raise Refused(msg)
    with open_app(given) as app:
        changed = app.webhooks.update(given.id, **changes)
    _say(given, changed, f"subscription {changed.id} is changed")


def pause(given: argparse.Namespace) -> None:
    """Pause a subscription."""
    with open_app(given) as app:
        under_way = app.webhooks.pause(given.id)
    line = f"subscription {given.id} is paused; attempts that still end: {under_way}"
    document = {"subscription": given.id, "under_way": under_way}
    Output(as_json=given.json).show(document, lambda: [text(line)])


def resume(given: argparse.Namespace) -> None:
    """Resume a subscription."""
    with open_app(given) as app:
        found = app.webhooks.resume(given.id)
    _say(given, found, f"subscription {found.id} is resumed")


def enable(given: argparse.Namespace) -> None:
    """Start a stopped subscription."""
    with open_app(given) as app:
        found = app.webhooks.enable(given.id)
    _say(given, found, f"subscription {found.id} is enabled")


def rotate(given: argparse.Namespace) -> None:
    """Sign with another secret, and show it."""
    secret = _secret(given)
    with open_app(given) as app:
        secret = app.webhooks.rotate(given.id, secret=secret, overlap=given.overlap)
    document = {"subscription": given.id, "secret": secret}
    Output(as_json=given.json).show(document, lambda: [text(secret)])


def ping(given: argparse.Namespace) -> None:
    """Deliver a ping."""
    with open_app(given) as app:
        saga = app.webhooks.ping(given.id)
    line = f"saga {saga.id} delivers a ping to subscription {given.id}"
    Output(as_json=given.json).show({"saga": saga}, lambda: [text(line)])


def delete(given: argparse.Namespace) -> None:
    """Delete a subscription."""
    with open_app(given) as app:
        app.webhooks.delete(given.id)
    line = f"subscription {given.id} is deleted"
    document = {"subscription": given.id, "deleted": True}
    Output(as_json=given.json).show(document, lambda: [text(line)])


def _say(given: argparse.Namespace, found: WebhookSubscription, line: str) -> None:
    Output(as_json=given.json).show({"subscription": found}, lambda: [text(line)])


VERBS: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "create": create,
    "list": list_subscriptions,
    "show": show,
    "update": update,
    "pause": pause,
    "resume": resume,
    "enable": enable,
    "rotate": rotate,
    "ping": ping,
    "delete": delete,
    **deliveries.VERBS,
    "run": running.deliver,
    "roles": running.roles,
    "key": running.key,
}
