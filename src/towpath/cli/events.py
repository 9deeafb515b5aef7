"""towpath events: shows channels, their events and their consumers; publishes and follows."""

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from towpath import App, Channel, Consumer, Event
from towpath.cli.apps import add_common, add_limit, duration, open_app
from towpath.cli.output import Columns, Output, Table, plain, since, text
from towpath.model.payload import Encoding, raw_bytes, redacted

EXAMPLES: Final = """\
A cursor is a position in a channel; `start` and `now` are others.

examples:
  towpath events list order
  towpath events publish chat '{"text": "hello"}' --type said
  towpath events read chat --limit 20
  towpath events tail chat --last 100 --types said 'order.*'
  towpath events consumers chat
  towpath events move chat mailer start
  towpath events forget chat mailer
"""
CHANNELS: Final[Columns] = {
    "channel": "left",
    "events": "right",
    "bytes": "right",
    "age": "right",
    "": "left",
}
EVENTS: Final[Columns] = {"cursor": "left", "at": "left", "type": "left", "payload": "left"}
CONSUMERS: Final[Columns] = {
    "consumer": "left",
    "lag": "right",
    "seen": "right",
    "generation": "right",
    "cursor": "left",
    "": "left",
}
MOST_SHOWN: Final = 1_000  # characters of a payload in a line
LAST: Final = 10


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Show channels and their events; publish, and follow what comes."
    parser.epilog = EXAMPLES
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB", dest="verb")

    def verb(name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
        lines = "\n".join(f"  towpath events {name} {words}" for words in examples)
        made = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"examples:\n{lines}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(run=VERBS[name])
        return made

    listing = verb("list", "list channels by name", "order", "--limit 10 --after order:7")
    listing.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="of their names")
    listing.add_argument("--after", metavar="NAME", default="", help="continue after this channel")
    add_limit(listing, 100)

    adding = verb(
        "publish", "add an event to a channel", """chat '{"text": "hello"}' --type said""", "chat -"
    )
    _add_channel(adding)
    adding.add_argument("payload", metavar="JSON", nargs="?", help="- to read it from stdin")
    adding.add_argument("--type", metavar="TYPE", help="such as order.paid")
    adding.add_argument(
        "--key", metavar="TEXT", help="store nothing while the channel has an event with this key"
    )

    reading = verb("read", "show events, oldest first", "chat --limit 20", "chat --after CURSOR")
    _add_channel(reading)
    reading.add_argument("--after", metavar="CURSOR", help="default: from the oldest event on")
    add_limit(reading, 100)

    tailing = verb(
        "tail", "show the last events, and those that come, until Ctrl-C", "chat", "chat --last 100"
    )
    _add_channel(tailing)
    tailing.add_argument("--after", metavar="CURSOR", help="begin behind it; also start or now")
    tailing.add_argument(
        "--last", metavar="NUMBER", type=int, help=f"begin with so many events (default {LAST})"
    )
    tailing.add_argument(
        "--types", metavar="TYPE", nargs="+", help="only of these types, such as 'order.*'"
    )
    tailing.add_argument(
        "--timeout", metavar="TIME", type=duration, help="end when no event came for so long"
    )

    _add_channel(verb("consumers", "list the durable consumers of a channel", "chat"))

    moving = verb(
        "move", "let a consumer go on from another place", "chat mailer start", "chat mailer now"
    )
    _add_channel(moving)
    _add_consumer(moving)
    moving.add_argument(
        "after", metavar="CURSOR", help="behind which it goes on; also start or now"
    )

    forgetting = verb("forget", "forget a consumer, which ends its readers", "chat mailer")
    _add_channel(forgetting)
    _add_consumer(forgetting)

    for each in verbs.choices.values():
        add_common(each)


def _add_channel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("channel", metavar="CHANNEL", help="the name of a channel")


def _add_consumer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("consumer", metavar="CONSUMER", help="the name of a consumer")


def list_channels(given: argparse.Namespace) -> None:
    """List channels."""
    with open_app(given) as app:
        found = app.events.list(given.prefix, after=given.after, limit=given.limit)
    rows = map(_channel, found)
    Output(as_json=given.json).show({"channels": found}, lambda: [Table(CHANNELS, rows)])


def _channel(channel: Channel) -> tuple[object, ...]:
    age = since(channel.created_at)
    return channel.name, channel.events, channel.size, age, channel.ended or ""


def publish(given: argparse.Namespace) -> None:
    """Add an event."""
    body = sys.stdin.read() if given.payload == "-" else given.payload
    # Raw, so that numbers keep their digits; invalid JSON is refused.
    payload = msgspec.Raw(b"null" if body is None else body.encode())
    with open_app(given, creates=True) as app:
        event = app.events.publish(given.channel, payload, type=given.type, key=given.key)
    line = f"event {event.id} is at {event.cursor} of {event.channel}"
    Output(as_json=given.json).show(described(event), lambda: [text(line)])


def read(given: argparse.Namespace) -> None:
    """Show a page of events."""
    with open_app(given) as app:
        page = app.events.read(given.channel, given.after, limit=given.limit)
    document = {
        "events": [described(event) for event in page.events],
        "cursor": page.cursor,
        "oldest": page.oldest,
        "head": page.head,
        "ended": page.ended,
    }
    rows = (_event(event, app) for event in page.events)
    Output(as_json=given.json).show(document, lambda: [Table(EVENTS, rows)])


def tail(given: argparse.Namespace) -> None:
    """Show events as they come; Ctrl-C ends it without an error."""
    last = LAST if given.after is None and given.last is None else given.last
    out = Output(as_json=given.json)
    try:
        with open_app(given) as app:
            for event in app.events.subscribe(
                given.channel, given.after, last=last, types=given.types, timeout=given.timeout
            ):
                out.show(described(event), _line(event, app))
                sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _line(event: Event, app: App) -> Callable[[], list[str]]:
    return lambda: ["  ".join(map(plain, _event(event, app)))]


def described(event: Event) -> dict[str, Any]:
    """Return the JSON form of an event."""
    names = ("id", "channel", "cursor", "at", "type", "key", "headers", "encoding")
    known: dict[str, Any] = {name: getattr(event, name) for name in names}
    as_json = event.encoding == Encoding.JSON
    return known | {"payload": msgspec.Raw(event.body.encode()) if as_json else event.body}


def _event(event: Event, app: App) -> tuple[object, ...]:
    return event.cursor, event.at, event.type, _payload(event, app.settings.redact)[:MOST_SHOWN]


def _payload(event: Event, redact: str) -> str:
    if event.encoding == Encoding.BASE64:
        return f"{len(raw_bytes(event.body, event.encoding)):,} bytes, in base64: {event.body}"
    return redacted(event.body, redact, strict=event.encoding == Encoding.JSON)


def consumers(given: argparse.Namespace) -> None:
    """List the consumers of a channel."""
    with open_app(given) as app:
        found: list[Consumer] = []
        while page := app.events.consumers(
            given.channel, after=found[-1].name if found else "", limit=1_000
        ):
            found += page
    rows = map(_consumer, found)
    Output(as_json=given.json).show({"consumers": found}, lambda: [Table(CONSUMERS, rows)])


def _consumer(each: Consumer) -> tuple[object, ...]:
    state = [
        name
        for name, holds in (("expired", each.is_expired), ("overtaken", each.is_overtaken))
        if holds
    ]
    seen = since(each.seen_at)
    return each.name, each.lag, seen, each.generation, each.cursor, " ".join(state)


def move(given: argparse.Namespace) -> None:
    """Let a consumer go on from another place."""
    with open_app(given) as app:
        cursor = app.events.move_consumer(given.channel, given.consumer, given.after)
    line = f"consumer {given.consumer} of {given.channel} goes on behind {cursor}"
    document = {"channel": given.channel, "consumer": given.consumer, "cursor": cursor}
    Output(as_json=given.json).show(document, lambda: [text(line)])


def forget(given: argparse.Namespace) -> None:
    """Forget a consumer."""
    with open_app(given) as app:
        forgotten = app.events.forget_consumer(given.channel, given.consumer)
    name = f"consumer {given.consumer} of {given.channel}"
    line = f"{name} is forgotten" if forgotten else f"there is no {name}"
    document = {"channel": given.channel, "consumer": given.consumer, "forgotten": forgotten}
    Output(as_json=given.json).show(document, lambda: [text(line)])


VERBS: Final = {
    "list": list_channels,
    "publish": publish,
    "read": read,
    "tail": tail,
    "consumers": consumers,
    "move": move,
    "forget": forget,
}
