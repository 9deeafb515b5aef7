"""towpath webhooks sagas, dead-letters and others: what is delivered, and what was not."""

import argparse
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from towpath import App
from towpath.cli.apps import add_limit, open_app
from towpath.cli.output import Columns, Output, Table, since, text
from towpath.errors import NotFound, TowpathError
from towpath.model.instants import spoken
from towpath.model.payload import Encoding, redacted
from towpath.model.sagas import SagaStatus
from towpath.model.subscriptions import Attempt, DeadLetter, Saga

SAGAS: Final[Columns] = {
    "saga": "right",
    "subscription": "right",
    "type": "left",
    "status": "left",
    "attempts": "right",
    "age": "right",
    "next": "left",
    "error": "left",
    "webhook-id": "left",
}
ATTEMPTS: Final[Columns] = {
    "attempt": "right",
    "status": "left",
    "answer": "right",
    "error": "left",
    "took": "right",
    "at": "left",
    "worker": "left",
    "excerpt": "left",
}
LETTERS: Final[Columns] = {
    "letter": "right",
    "subscription": "right",
    "saga": "right",
    "type": "left",
    "error": "left",
    "age": "right",
    "requeued as": "right",
    "webhook-id": "left",
}
MOST_SHOWN: Final = 200  # characters of an answer in a line
ENDINGS: Final = ("DeadLettered", "Completed", "Cancelled")
ACTOR: Final = "towpath webhooks"


class DefinesVerb(Protocol):
    """Adds the parser of a verb."""

    def __call__(self, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
        """Add it."""
        ...


def define(verb: DefinesVerb) -> None:
    """Define the verbs and their arguments."""
    listing = verb(
        "sagas",
        "list deliveries of events, the newest first",
        "--subscription 7 --status DeadLettered",
    )
    _add_subscription(listing)
    listing.add_argument("--status", choices=[*map(str, SagaStatus)], help="only those of it")
    listing.add_argument("--before", metavar="SAGA", type=int, help="continue with older ones")
    add_limit(listing, 50)

    _add_saga(verb("attempts", "show the attempts of a saga", "120"))

    resending = verb(
        "resend", "deliver the event of an ended saga once more", "120", "120 --confirm"
    )
    _add_saga(resending)
    resending.add_argument(
        "--confirm", action="store_true", help="also if the receiver has got it already"
    )
    _add_saga(verb("cancel", "end a saga without a further attempt", "120"))

    letters = verb(
        "dead-letters",
        "list what failed for good, the newest first; or show one",
        "--subscription 7",
        "3",
    )
    letters.add_argument("letter", metavar="LETTER", nargs="?", type=int, help="show this one")
    _add_subscription(letters)
    letters.add_argument("--before", metavar="LETTER", type=int, help="continue with older ones")
    add_limit(letters, 50)

    requeueing = verb("requeue", "deliver dead letters again", "3 4")
    requeueing.add_argument("letters", metavar="LETTER", nargs="+", type=int, help="their numbers")
    forgetting = verb("forget", "forget dead letters", "3 4")
    forgetting.add_argument("letters", metavar="LETTER", nargs="+", type=int, help="their numbers")

    replaying = verb(
        "replay",
        "make ended deliveries of a subscription again, as a job",
        "7 --preview",
        "7 --status Completed --since 2026-11-16T08:00:00Z --types 'order.*' --rate 100/s",
    )
    replaying.add_argument("id", metavar="ID", type=int, help="the number of a subscription")
    replaying.add_argument("--status", choices=ENDINGS, help=f"default {ENDINGS[0]}")
    replaying.add_argument("--types", metavar="TYPE", nargs="+", help="of events (default all)")
    for flag, summary in (("--since", "published since then"), ("--until", "or before then")):
        replaying.add_argument(flag, metavar="TIME", type=_time, help=f"only events {summary}")
    replaying.add_argument("--rate", metavar="RATE", help="such as 100/s (default: no limit)")
    replaying.add_argument("--preview", action="store_true", help="only count them")


def _time(text: str) -> datetime:
    """Read a time such as 2026-11-16T08:00:00Z; without a zone it is that of this machine."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        msg = f"{text!r} is not a time such as 2026-11-16T08:00:00Z"
        raise argparse.ArgumentTypeError(msg) from None


def _add_saga(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("saga", metavar="SAGA", type=int, help="the number of a saga")


def _add_subscription(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subscription", metavar="ID", type=int, help="only of this subscription")


def list_sagas(given: argparse.Namespace) -> None:
    """List sagas."""
    with open_app(given) as app:
        found = app.webhooks.sagas.list(
            subscription=given.subscription,
            status=given.status,
            before=given.before,
            limit=given.limit,
        )
    rows = map(_saga, found)
    Output(as_json=given.json).show({"sagas": found}, lambda: [Table(SAGAS, rows)])


def _saga(each: Saga) -> tuple[object, ...]:
    age, next_at = since(each.created_at), _or_dash(each.next_attempt_at)
    known = each.id, each.subscription, _or_dash(each.type), each.status, each.attempts
    return *known, age, next_at, _or_dash(each.last_error), each.event


def attempts(given: argparse.Namespace) -> None:
    """Show the attempts of a saga."""
    with open_app(given) as app:
        found = app.webhooks.sagas.attempts(given.saga)
    rows = map(_attempt, found)
    Output(as_json=given.json).show({"attempts": found}, lambda: [Table(ATTEMPTS, rows)])


def _attempt(each: Attempt) -> tuple[object, ...]:
    took = "-" if each.duration is None else spoken(each.duration)
    known = each.number, each.status, _or_dash(each.response_status), _or_dash(each.error_code)
    excerpt = (each.excerpt or "")[:MOST_SHOWN]
    return *known, took, each.made_at, _or_dash(each.worker), excerpt


def resend(given: argparse.Namespace) -> None:
    """Deliver an event once more."""
    with open_app(given) as app:
        saga = app.webhooks.sagas.resend(given.saga, confirm=given.confirm)
    line = f"saga {saga.id} delivers the event of saga {given.saga} once more"
    Output(as_json=given.json).show({"saga": saga}, lambda: [text(line)])


def cancel(given: argparse.Namespace) -> None:
    """Cancel a saga."""
    with open_app(given) as app:
        saga = app.webhooks.sagas.cancel(given.saga)
    line = f"saga {saga.id} is {saga.status}"
    if saga.status is SagaStatus.IN_PROGRESS:
        line = f"saga {saga.id} ends with its attempt"
    Output(as_json=given.json).show({"saga": saga}, lambda: [text(line)])


def dead_letters(given: argparse.Namespace) -> None:
    """List dead letters, or show one."""
    with open_app(given) as app:
        if given.letter is not None:
            letter = app.webhooks.dead_letters.get(given.letter)
            Output(as_json=given.json).show(described(letter), lambda: _shown(letter, app))
            return
        found = app.webhooks.dead_letters.list(
            subscription=given.subscription, before=given.before, limit=given.limit
        )
    rows = map(_letter, found)
    document = {"dead_letters": [described(each) for each in found]}
    Output(as_json=given.json).show(document, lambda: [Table(LETTERS, rows)])


def described(letter: DeadLetter) -> dict[str, Any]:
    """Return the JSON form of a dead letter."""
    known = {name: getattr(letter, name) for name in letter.__struct_fields__ if name != "body"}
    as_json = letter.encoding == Encoding.JSON
    return known | {"payload": msgspec.Raw(letter.body.encode()) if as_json else letter.body}


def _letter(each: DeadLetter) -> tuple[object, ...]:
    known = each.id, each.subscription, each.saga, _or_dash(each.type), _or_dash(each.error_code)
    return *known, since(each.failed_at), _or_dash(each.requeued_as), each.event


def _shown(letter: DeadLetter, app: App) -> list[Any]:
    is_json = letter.encoding == Encoding.JSON
    body = redacted(letter.body, app.settings.redact, strict=is_json)
    return [Table(LETTERS, [_letter(letter)]), "", text(body)]


def requeue(given: argparse.Namespace) -> None:
    """Deliver dead letters again."""

    def requeued(app: App, letter: int) -> str:
        saga = app.webhooks.dead_letters.requeue(letter, actor=ACTOR)
        if saga.status is SagaStatus.HELD:
            return (
                f"saga {saga.id} is Held: subscription {saga.subscription} is paused or stopped; "
                "resume or enable it"
            )
        return f"saga {saga.id} delivers it again"

    _each(given, requeued)


def forget(given: argparse.Namespace) -> None:
    """Forget dead letters."""

    def forgotten(app: App, letter: int) -> str:
        if not app.webhooks.dead_letters.delete(letter):
            msg = f"there is no dead letter {letter}; old ones are forgotten"
            raise NotFound(msg)
        return "forgotten"

    _each(given, forgotten)


def _each(given: argparse.Namespace, act: Callable[[App, int], str]) -> None:
    """Do something to each dead letter; the others follow one that is refused."""
    done: list[dict[str, Any]] = []
    lines: list[str] = []
    refused: TowpathError | None = None
    with open_app(given) as app:
        for letter in given.letters:
            try:
                did = act(app, letter)
            except TowpathError as error:
                refused = refused or error
                did = str(error)
                done.append({"letter": letter, "code": error.code, "message": str(error)})
            else:
                done.append({"letter": letter, "did": did})
            lines.append(f"dead letter {letter}: {did}")
    Output(as_json=given.json).show({"dead_letters": done}, lambda: map(text, lines))
    if refused:
        raise refused


def replay(given: argparse.Namespace) -> None:
    """Make deliveries again, or count them."""
    names = ("status", "types", "since", "until", "rate")
    asked = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    with open_app(given) as app:
        if given.preview:
            count, job = app.webhooks.preview(given.id, **asked), None
            line = f"{_deliveries(count)} of subscription {given.id} would be made again"
        else:
            job = app.webhooks.replay(given.id, **asked)
            count = job.payload["count"]
            line = f"job {job.id} makes {_deliveries(count)} of subscription {given.id} again"
    document = {"subscription": given.id, "count": count, "job": job and job.id}
    Output(as_json=given.json).show(document, lambda: [text(line)])


def _deliveries(count: int) -> str:
    return "1 delivery" if count == 1 else f"{count:,} deliveries"


def _or_dash(value: datetime | str | int | None) -> object:
    return "-" if value is None else value


VERBS: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "sagas": list_sagas,
    "attempts": attempts,
    "resend": resend,
    "cancel": cancel,
    "dead-letters": dead_letters,
    "requeue": requeue,
    "forget": forget,
    "replay": replay,
}
