"""Checks of what callers pass to `app.webhooks`, before anything is stored or sealed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict, cast

import msgspec

from towpath.app.checks import count, refuse_unknown
from towpath.errors import Invalid, InvalidRule
from towpath.model.addresses import AddressGuard, networks_of
from towpath.model.attempts import BodyKind
from towpath.model.deliveries import DAY, MINUTE, SECOND, RetrySchedule
from towpath.model.instants import FOREVER, Duration, instant, microseconds
from towpath.model.limits import Limit
from towpath.model.payload import clean_text
from towpath.model.sagas import ENDED, SagaStatus
from towpath.model.signatures import PREFIX, key_of, new_secret
from towpath.model.subscriptions import Replay, Selection
from towpath.model.targets import TargetUrl, custom_headers
from towpath.settings import Settings

LEAST_TIMEOUT: Final = SECOND
MOST_TIMEOUT: Final = MINUTE
MOST_CONCURRENCY: Final = 100
LEAST_PACE: Final = SECOND // 1_000
MOST_BURST: Final = 1_000
MOST_TYPES: Final = 100
MOST_FINAL: Final = 100
MOST_OWNER: Final = 255
MOST_TYPE: Final = 200
MOST_DESCRIPTION: Final = 1_000
MOST_OVERLAP: Final = 7 * DAY
FAILURES: Final = range(300, 600)  # statuses of answers that are no success
MOST_NUMBER: Final = 2**63 - 1


class SubscriptionOptions(TypedDict, total=False):
    """How a subscription is called, apart from its channel and URL."""

    types: Sequence[str]  # of events, such as ["order.*"]; default ["*"], which is all
    filter_rule: str | None  # a rule over @event; the default is every event of these types
    timeout: Duration  # of one attempt, 1 s to 60 s; default 15 s
    concurrency: int  # deliveries at once, 1 to 100; default 10
    rate: str | None  # of deliveries, such as "10/s" or "100/15m"; default none
    burst: int  # deliveries at once after a pause, with a rate; default 1
    waits: Sequence[Duration] | None  # between attempts; default 5 s, 5 min, … 24 h: ten attempts
    ordered: bool  # one delivery after the other, in the order of events
    body: BodyKind | str  # envelope (the default), or payload: the payload alone
    headers: Mapping[str, str]  # sent with each request; stored sealed, never shown again
    final_statuses: Sequence[int]  # of answers after which no attempt follows
    owner: str | None  # for rules: @subscription.owner
    description: str  # for people


class SubscriptionChanges(SubscriptionOptions, total=False):
    """What `update` can change."""

    url: str  # deliveries that wait are sent to it, too


class ReplayFilter(TypedDict, total=False):
    """Which ended deliveries of a subscription are made again."""

    status: SagaStatus | str  # DeadLettered (the default), Completed or Cancelled
    types: Sequence[str]  # of events, such as ["order.*"]; default ["*"]
    since: datetime | None  # only events published since then,
    until: datetime | None  # or before then
    rate: str | None  # such as "100/s"; default as quickly as they can be made


DEFAULTS: Final[SubscriptionOptions] = {
    "types": ["*"],
    "filter_rule": None,
    "timeout": 15,
    "concurrency": 10,
    "rate": None,
    "burst": 1,
    "waits": None,
    "ordered": False,
    "body": BodyKind.ENVELOPE,
    "final_statuses": [],
    "owner": None,
    "description": "",
}


def columns_of(given: SubscriptionChanges, settings: Settings) -> dict[str, Any]:
    """Check what is given; return it as columns of NewSubscription, without headers."""
    refuse_unknown(given.keys(), SubscriptionChanges.__optional_keys__)
    named = cast("Mapping[str, Any]", given)
    columns = {
        _COLUMNS.get(name, name): read(named[name]) for name, read in _READ.items() if name in named
    }
    if "url" in given:
        columns["url"] = url_of(given["url"], settings)
    return columns


def url_of(url: str, settings: Settings) -> str:
    """Return a URL as it is called; raise InvalidTarget or BlockedTarget."""
    target = TargetUrl.parse(url, allow_http=settings.webhook_http)
    target.check(AddressGuard(networks_of(settings.webhook_allow)))
    return target.url


def headers_of(headers: Any) -> dict[str, str]:
    """Return custom headers, in lower case; raise InvalidHeader if one cannot be sent."""
    if not isinstance(headers, Mapping):
        # The value is not repeated: it may be a credential.
        msg = f"headers must be a mapping from text to text, not {type(headers).__name__}"
        raise Invalid(msg)
    return custom_headers(cast("Mapping[str, str]", headers))


def secret_of(secret: str | None) -> str:
    """Return the secret, a new one if none is given; raise InvalidSecret, which repeats nothing."""
    if secret is None:
        return new_secret()
    key_of(secret)
    return PREFIX + secret.removeprefix(PREFIX)


def overlap_of(overlap: Duration) -> int:
    """Return how long an old secret still signs, in microseconds."""
    us = microseconds(overlap, "overlap")
    if us > MOST_OVERLAP:
        msg = f"overlap {overlap!r} is more than 7 days"
        raise Invalid(msg)
    return us


def check_selection(types: Sequence[str], filter_rule: str | None) -> None:
    """Raise Invalid if no event can be chosen by these types, InvalidRule if the rule is wrong."""
    if len(_list(types, "types", "['order.*']")) > MOST_TYPES:
        msg = f"types has {len(types)} entries; at most {MOST_TYPES} are allowed, and * is all"
        raise Invalid(msg)
    if not isinstance(filter_rule, str | None):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"filter_rule must be text, not {type(filter_rule).__name__}"
        raise Invalid(msg)
    try:
        Selection(types, filter_rule)
    except InvalidRule as error:
        msg = f"filter_rule: {error}"
        raise InvalidRule(msg, error.position, "filter_rule") from error


def replay_of(subscription: int, given: ReplayFilter) -> Replay:
    """Check a filter; return the replay, which is not counted yet."""
    refuse_unknown(given.keys(), ReplayFilter.__optional_keys__)
    status = given.get("status", SagaStatus.DEAD_LETTERED)
    if not isinstance(status, str) or status not in ENDED:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        known = ", ".join(each for each in SagaStatus if each in ENDED)
        msg = f"status {str(status)[:100]!r} is not that of an ended delivery: {known}"
        raise Invalid(msg)
    types = given.get("types", ["*"])
    check_selection(types, None)
    since, until = given.get("since"), given.get("until")
    return Replay(
        subscription=number_of(subscription, "subscription"),
        status=SagaStatus(status),
        types=list(types),
        since=0 if since is None else instant(since, "since"),
        until=FOREVER if until is None else instant(until, "until"),
        upto=0,
        count=0,
        pace=pace_of(given.get("rate")),
    )


def number_of(number: Any, of: str) -> int:
    """Return the number of a subscription, saga or dead letter; raise Invalid if it is none."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MOST_NUMBER:
        msg = f"{str(number)[:100]!r} is not the number of a {of}"
        raise Invalid(msg)
    return number


def owner_of(owner: Any) -> str | None:
    """Return an owner; raise Invalid if it cannot be one."""
    if owner is None:
        return None
    return _text(owner, "owner", 1, MOST_OWNER)


def type_of(type: Any) -> str | None:
    """Return the type of an event to search for; raise Invalid if no database can compare it."""
    if type is None:
        return None
    return _text(type, "type", 0, MOST_TYPE)


def pace_of(rate: Any) -> int | None:
    """Return the microseconds from one start to the next at a rate."""
    if rate is None:
        return None
    pace = Limit("rate", rate=rate).pace
    if pace is None or not LEAST_PACE <= pace <= DAY:
        msg = f"rate {rate!r} is not between 1 a day and 1,000 a second"
        raise Invalid(msg)
    return pace


def json_list(values: Iterable[object]) -> str:
    """Return a list as it is stored."""
    return msgspec.json.encode(list(values)).decode()


def _types(types: Any) -> str:
    check_selection(types, None)
    return json_list(dict.fromkeys(types))


def _filter_rule(text: Any) -> str | None:
    check_selection(["*"], text)
    return cast("str | None", text)


def _timeout(timeout: Any) -> int:
    us = microseconds(timeout, "timeout")
    if not LEAST_TIMEOUT <= us <= MOST_TIMEOUT:
        msg = f"timeout {timeout!r} is not between 1 second and 60 seconds"
        raise Invalid(msg)
    return us


def _within(name: str, most: int) -> Callable[[Any], int]:
    def read(number: Any) -> int:
        if count(number, name) < 1 or number > most:
            msg = f"{name} {number} is not between 1 and {most:,}"
            raise Invalid(msg)
        return int(number)

    return read


def _waits(waits: Any) -> str | None:
    return None if waits is None else RetrySchedule.of(waits).as_text()


def _ordered(ordered: Any) -> bool:
    if not isinstance(ordered, bool):
        msg = f"ordered must be true or false, not {ordered!r}"
        raise Invalid(msg)
    return ordered


def _body(body: Any) -> str:
    try:
        return BodyKind(body).value
    except ValueError as error:
        msg = f"unknown body {body!r}; known bodies: {', '.join(BodyKind)}"
        raise Invalid(msg) from error


def _final(statuses: Any) -> str | None:
    final = _list(statuses, "final_statuses", "[400, 422]")
    for status in final:
        if not isinstance(status, int) or isinstance(status, bool) or status not in FAILURES:
            msg = f"final_statuses: {status!r} is not the status of a failure, from 300 to 599"
            raise Invalid(msg)
    if len(final) > MOST_FINAL:
        msg = f"final_statuses has {len(final)} entries; at most {MOST_FINAL} are allowed"
        raise Invalid(msg)
    return json_list(dict.fromkeys(final)) if final else None


def _description(text: Any) -> str:
    return _text(text, "description", 0, MOST_DESCRIPTION)


def _list(value: Any, name: str, example: str) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        msg = f"{name} must be a list such as {example}, not {value!r}"
        raise Invalid(msg)
    return value  # pyright: ignore[reportUnknownVariableType] - its items are checked next


def _text(text: Any, name: str, least: int, most: int) -> str:
    if (
        not isinstance(text, str)
        or not least <= len(text) <= most
        or clean_text(text, most) != text
    ):
        msg = f"{name} must be text of {least} to {most:,} characters without NUL"
        raise Invalid(msg)
    return text


_COLUMNS: Final = {"rate": "pace", "final_statuses": "final"}  # stored under other names
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "types": _types,
    "filter_rule": _filter_rule,
    "timeout": _timeout,
    "concurrency": _within("concurrency", MOST_CONCURRENCY),
    "rate": pace_of,
    "burst": _within("burst", MOST_BURST),
    "waits": _waits,
    "ordered": _ordered,
    "body": _body,
    "final_statuses": _final,
    "owner": owner_of,
    "description": _description,
}
