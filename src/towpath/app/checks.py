"""Checks of the values that callers pass, before anything is stored."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial
from typing import Any, Final, Self, TypedDict, cast
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from towpath.errors import Invalid
from towpath.model.backoff import BackoffOption, backoff_of
from towpath.model.ids import uuid7
from towpath.model.instants import Duration, instant, microseconds
from towpath.model.job import MOST_PRIORITY, Job, Options
from towpath.model.limits import Limit
from towpath.model.pages import Order
from towpath.model.payload import clean_text, encode
from towpath.model.runs import Runs
from towpath.model.states import State, Status
from towpath.model.stats import History
from towpath.model.topics import checked
from towpath.model.unique import Unique
from towpath.names import about_unknown
from towpath.operation import Operation
from towpath.settings import Settings
from towpath.store import listing, lookup, stats
from towpath.store.admin import JobChange
from towpath.store.jobs import NewJob
from towpath.store.retention import Finished
from towpath.store.stats import KEPT_DAYS, KEPT_MINUTES, MOST_MINUTES, MOST_STEPS

PRIORITY: Final = 50
MOST_KEY: Final = 255
MOST_HEADERS: Final = 8_000  # characters of all names and values
MOST_PAGE: Final = 1_000
NO_TIMEOUT: Final = 10.0**9  # seconds

STATUSES: Final[Mapping[str, Status | State]] = {str(each): each for each in (*Status, *State)}
"""What a list of jobs can be filtered by; a status and a state of one name are the same jobs."""

STEPS: Final = (60, 300, 900, 3_600, 21_600, 86_400)
"""The steps of a history, in seconds."""

ORDERS: Final = [*map(str, Order)]

JobRef = Job | UUID | str
"""A job or its id."""


class EnqueueOptions(TypedDict, total=False):
    """How a job is enqueued, apart from its topic and payload."""

    id: UUID  # makes a repeated enqueue harmless
    priority: int  # 0 is the most urgent; default 50
    delay: Duration  # the time from now until the job may run
    run_at: datetime  # instead of a delay, with its time zone
    expires_after: Duration  # a job that has not begun this long from now is cancelled
    expires_at: datetime  # instead of expires_after, with its time zone
    ttr: Duration  # how long a lease without a session lives, unless it is touched
    task: str  # the name of the task, if the topic has several
    key: str  # if an unfinished job of the topic has this key, that job is returned instead
    unique: Unique | str  # what becomes of that job: skip, replace, update, debounce or clear
    max_retries: int  # the job is buried when its failures reach this number; 0 means 1
    max_crashes: int  # the job is buried when the crashes of its workers reach this number
    timeout: Duration  # how long one run by a worker may last
    retention: Duration  # how long the finished job is kept
    workers: int  # the number of distinct workers that must succeed
    only_workers: "Iterable[str]"  # the names of the workers that may run it
    ping_interval: Duration  # the time between two pings of a run
    worker_timeout: Duration  # the time without a ping after which a run counts as lost
    max_unexpected_retries: int  # by one worker; also how many failed workers are allowed
    unexpected_retry_delay: Duration  # the pause before each of these retries
    after: "Iterable[JobRef]"  # the job is blocked until these jobs have completed
    limit: Limit | None  # bounds how many jobs of its key run at once, or how often one starts
    backoff: BackoffOption  # the pause after each failure; default 1 min, 4 min, 16 min …
    headers: Mapping[str, str]  # metadata that is stored with the job, beside its payload


class Filters(TypedDict, total=False):
    """Which jobs a list shows."""

    topic: str | None  # of this topic
    status: Status | State | str | None  # such as pending or failed; or a state, such as buried
    key: str | None  # with this key
    text: str | None  # with this text anywhere in the payload, the key or the last error
    error: str | None  # with this text in the last error
    worker: str | None  # that a worker of this name has now
    since: datetime | None  # enqueued then or later
    until: datetime | None  # enqueued before
    ids: Sequence[JobRef] | None  # these, and no other filter
    order: Order | str  # newest, oldest, or next: as they are reserved; default newest
    before: Job | int | None  # older than this job or number, the last of the previous page
    after: Job | int | None  # newer than this job or number: the page before it
    limit: int  # at most so many jobs; default 50, maximum 1,000
    offset: int  # the number of jobs to skip


_FILTERS: Final = ("topic", "status", "key", "text", "error", "worker", "since", "until")


def page(given: Filters) -> listing.Page:
    """Check the filters of a list; return the page to read."""
    refuse_unknown(given.keys(), Filters.__optional_keys__)
    topic, key = given.get("topic"), given.get("key")
    since, until = given.get("since"), given.get("until")
    ids = given.get("ids")
    asked = listing.Page(
        topic=None if topic is None else checked(topic),
        status=_status(given.get("status")),
        key=key_of(key),
        text=_searched(given.get("text")),
        error=_searched(given.get("error")),
        worker=_searched(given.get("worker")),
        since=None if since is None else instant(since, "since"),
        until=None if until is None else instant(until, "until"),
        ids=None if ids is None else [job_id(each) for each in ids],
        before=_number(given.get("before")),
        after=_number(given.get("after")),
        order=_order(given.get("order", Order.NEWEST)),
        limit=min(at_least_one(given.get("limit", 50), "limit"), MOST_PAGE),
        offset=count(given.get("offset", 0), "offset"),
    )
    if ids is not None:
        _refuse_beside(asked, (*_FILTERS, "before", "after"), "`ids`")
        return replace(asked, limit=max(1, len(ids)), offset=0)
    if asked.worker is not None:
        if asked.status not in {None, Status.PROCESSING, State.RESERVED}:
            msg = f"no job with status {str(asked.status)!r} has a worker; leave out `worker`"
            raise Invalid(msg)
        asked = replace(asked, status=State.RESERVED)
    if asked.order is Order.NEXT:
        _refuse_beside(asked, (*_FILTERS[2:], "after"), "order 'next'")
        if len(asked.states) != 1 or not asked.states <= listing.LINES.keys():
            msg = f"order 'next' needs one of the states {', '.join(listing.LINES)}"
            raise Invalid(msg)
    return asked


def plain(asked: listing.Page) -> listing.Page:
    """Return a page of which tickets alone tell the count; raise Invalid for another one."""
    _refuse_beside(asked, (*_FILTERS[2:], "ids", "before", "after"), "a count")
    return asked


def _refuse_beside(asked: listing.Page, names: Iterable[str], what: str) -> None:
    for name in names:
        if getattr(asked, name) is not None:
            msg = f"`{name}` cannot be given beside {what}; leave one of them out"
            raise Invalid(msg)


def _status(status: Status | State | str | None) -> Status | State | None:
    if status is not None and status not in STATUSES:
        msg = f"unknown status {status!r}; known statuses and states: {', '.join(STATUSES)}"
        raise Invalid(msg)
    return None if status is None else STATUSES[status]


def _searched(text: str | None) -> str | None:
    return None if text is None else clean_text(text, MOST_KEY)


def _number(job: Job | int | None) -> int | None:
    return job.seq if isinstance(job, Job) else job and seq_of(job)


def _order(order: Order | str) -> Order:
    if order not in ORDERS:
        msg = f"unknown order {order!r}; known orders: {', '.join(ORDERS)}"
        raise Invalid(msg)
    return Order(order)


class Defaults(Struct, frozen=True):
    """The options of a job if the caller does not give them."""

    ttr: int
    max_payload: int
    options: Options

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Read the defaults from the settings."""
        options = Options(
            max_retries=count(settings.max_retries, "max_retries"),
            max_crashes=count(settings.max_crashes, "max_crashes"),
            retention=microseconds(settings.retention, "retention") / 1e6,
        )
        return cls(_ttr(settings.ttr), settings.max_payload, options)


def new_jobs(
    topic: str, payloads: Iterable[object], given: EnqueueOptions, defaults: Defaults
) -> list[NewJob]:
    """Check the payloads and options of new jobs."""
    shared = _shared(topic, given, defaults)
    id, most = given.get("id"), defaults.max_payload
    new: list[NewJob] = []
    for payload in payloads:
        body, encoding = encode(payload, most)
        new.append(
            NewJob(id=uuid7() if id is None else _uuid(id), body=body, encoding=encoding, **shared)
        )
    if id is not None and len(new) > 1:
        msg = "`id` cannot be used for several jobs; enqueue them one by one"
        raise Invalid(msg)
    return new


def _shared(topic: str, given: EnqueueOptions, defaults: Defaults) -> dict[str, Any]:
    """Return the values that all jobs of one call share."""
    shared: dict[str, Any] = {
        "topic": checked(topic),
        "priority": PRIORITY,
        "ttr": defaults.ttr,
        "options": defaults.options,
    }
    if not given:
        return shared
    refuse_unknown(given.keys(), EnqueueOptions.__optional_keys__)
    if "delay" in given and "run_at" in given:
        msg = "pass `delay` or `run_at`, not both"
        raise Invalid(msg)
    if "priority" in given:
        shared["priority"] = priority_of(given["priority"])
    if "ttr" in given:
        shared["ttr"] = _ttr(given["ttr"])
    if "delay" in given:
        shared["delay"] = microseconds(given["delay"], "delay")
    if "run_at" in given:
        shared["run_at"] = instant(given["run_at"])
    if "key" in given:
        shared["key"] = key_of(given["key"])
    shared["options"] = _options(given, defaults.options)
    return shared


def change_of(
    *, delay: Duration | None = None, run_at: datetime | None = None, priority: int | None = None
) -> JobChange:
    """Return the change of a job; raise Invalid if nothing would change."""
    if delay is not None and run_at is not None:
        msg = "pass `delay` or `run_at`, not both"
        raise Invalid(msg)
    change = JobChange(
        priority=None if priority is None else priority_of(priority),
        delay=None if delay is None else microseconds(delay, "delay"),
        run_at=None if run_at is None else instant(run_at),
    )
    if change == JobChange():
        msg = "nothing to change; pass `delay`, `run_at` or `priority`"
        raise Invalid(msg)
    return change


def finished_of(
    topic: str | None,
    status: str | None,
    older_than: Duration,
    key: str | None,
    text: str | None,
) -> Finished:
    """Return which finished jobs are meant."""
    if status not in {None, Status.COMPLETED, Status.CANCELLED}:
        msg = f"status {status!r}: only completed and cancelled jobs are forgotten"
        raise Invalid(msg)
    return Finished(
        topic=None if topic is None else checked(topic),
        cancelled=None if status is None else status == Status.CANCELLED,
        older_than=microseconds(older_than, "older_than"),
        key=key_of(key),
        text=None if text is None else lookup.containing(clean_text(text, MOST_KEY)),
    )


def unique_of(given: EnqueueOptions) -> Unique:
    """Return what becomes of an unfinished job with the same key."""
    if "unique" not in given:
        return Unique.SKIP
    try:
        unique = Unique(given["unique"])
    except ValueError as error:
        msg = f"unknown value of `unique`: {given['unique']!r}; known values: {', '.join(Unique)}"
        raise Invalid(msg) from error
    if unique is not Unique.SKIP and given.get("key") is None:
        msg = f"unique={str(unique)!r} requires `key`"
        raise Invalid(msg)
    if unique is Unique.DEBOUNCE and not ("delay" in given or "run_at" in given):
        msg = "unique='debounce' requires `delay` or `run_at`"
        raise Invalid(msg)
    return unique


def parents_of(given: EnqueueOptions) -> list[UUID]:
    """Return the ids of the jobs that a job waits for."""
    if "after" not in given:
        return []
    after = given["after"]
    if isinstance(after, str | Job | UUID):
        msg = f"`after` must be a list of jobs, not {after!r}"
        raise Invalid(msg)
    if "unique" in given:
        msg = "pass `after` or `unique`, not both"
        raise Invalid(msg)
    return list(dict.fromkeys(job_id(job) for job in after))


def job_id(job: JobRef) -> UUID:
    """Return the id of a job that is given as a job, a UUID or text."""
    return job.id if isinstance(job, Job) else _uuid(job)


def seq_of(seq: Any) -> int:
    """Return the number of a job; raise Invalid if it is not one."""
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 <= seq < 2**63:
        msg = f"{seq!r} is not the number of a job"
        raise Invalid(msg)
    return seq


def refuse_unknown(given: AbstractSet[str], known: AbstractSet[str]) -> None:
    """Raise Invalid if an option is unknown."""
    if unknown := given - known:
        raise Invalid(about_unknown(unknown, known, "option"))


def _options(given: EnqueueOptions, defaults: Options) -> Options:
    named = cast("Mapping[str, Any]", given)
    changes = {name: _READ[name](named[name]) for name in _READ.keys() & named.keys()}
    if changes.keys() >= _EXPIRY:
        msg = "pass `expires_after` or `expires_at`, not both"
        raise Invalid(msg)
    limit = given.get("limit")
    if limit is not None:
        changes["limit"] = _limit(limit)
    if not given.keys().isdisjoint(_RUNS):
        changes["runs"] = _runs(given)
    if task := given.get("task"):
        changes["task"] = task_name(task)
    if headers := given.get("headers"):
        changes["headers"] = tuple(headers_of(headers).items())
    return msgspec.structs.replace(defaults, **changes) if changes else defaults


_EXPIRY: Final = frozenset({"expires_after", "expires_at"})
_RUNS: Final = frozenset({
    "workers", "only_workers", "ping_interval", "worker_timeout", "max_unexpected_retries",
    "unexpected_retry_delay",
})  # fmt: skip


def _runs(given: EnqueueOptions) -> Runs:
    if given.get("limit") is not None or "after" in given or given.keys() & _EXPIRY:
        msg = "a job that chooses its workers cannot have `limit`, `after` or an expiry"
        raise Invalid(msg)
    only = given.get("only_workers")
    if isinstance(only, str):
        msg = f"`only_workers` must be a list of names, not {only!r}"
        raise Invalid(msg)
    names = None if only is None else tuple(dict.fromkeys(map(worker_of, only)))
    if names == ():
        msg = "`only_workers` is empty; name at least one worker"
        raise Invalid(msg)
    ping, silent = given.get("ping_interval"), given.get("worker_timeout")
    if (ping is None) != (silent is None):
        msg = "pass `ping_interval` and `worker_timeout` together"
        raise Invalid(msg)
    interval = None if ping is None else microseconds(ping, "ping_interval") / 1e6
    timeout = None if silent is None else microseconds(silent, "worker_timeout") / 1e6
    if interval is not None and timeout is not None and not 0 < interval < timeout:
        msg = f"ping_interval {ping!r} is not between 0 and worker_timeout {silent!r}"
        raise Invalid(msg)
    return Runs(
        workers=at_least_one(given.get("workers", 1), "workers"),
        only=names,
        ping_interval=interval,
        worker_timeout=timeout,
        max_unexpected_retries=count(given.get("max_unexpected_retries", 0), "retries"),
        unexpected_retry_delay=microseconds(given.get("unexpected_retry_delay", 0)) / 1e6,
    )


def worker_of(name: Any) -> str:
    """Return the name of a worker; raise Invalid if it cannot be stored."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= MOST_KEY
        or clean_text(name, MOST_KEY) != name
    ):
        msg = f"{str(name)[:MOST_KEY]!r} is not a valid worker name; use 1 to {MOST_KEY} characters"
        raise Invalid(msg)
    return name


def _ttr(ttr: Duration) -> int:
    us = microseconds(ttr, "ttr")
    if not us:
        msg = "ttr must be more than 0; with 0 the lease would end at once"
        raise Invalid(msg)
    return us


def headers_of(headers: Mapping[Any, Any]) -> dict[str, str]:
    """Return headers; raise Invalid unless they are short text."""
    if not isinstance(headers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"headers must be a mapping from text to text, not {headers!r}"
        raise Invalid(msg)
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            msg = f"header {name!r}: {value!r} is not text"
            raise Invalid(msg)
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > MOST_HEADERS:
        msg = f"the headers have {size:,} characters; at most {MOST_HEADERS:,} are allowed"
        raise Invalid(msg)
    return {clean_text(name, size): clean_text(value, size) for name, value in headers.items()}


def _limit(limit: Any) -> Limit:
    if not isinstance(limit, Limit) or key_of(limit.key) is None:
        msg = f"{limit!r} is not a Limit with a key"
        raise Invalid(msg)
    if limit.concurrency is None and limit.pace is None:
        msg = f"the limit {limit.key!r} has no bound; set its `concurrency` or its `rate`"
        raise Invalid(msg)
    if limit.concurrency is not None:
        at_least_one(limit.concurrency, "concurrency")
    at_least_one(limit.burst, "burst")
    microseconds((limit.pace or 0) * limit.burst / 1e6, "the time of a burst,")
    return limit


def _uuid(text: UUID | str) -> UUID:
    if isinstance(text, UUID):
        return text
    try:
        return UUID(text)
    except (ValueError, AttributeError, TypeError) as error:
        msg = f"{text!r} is not the id of a job"
        if isinstance(text, int):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            msg += f"; `jobs.numbered({text})` reads a job by its number"
        raise Invalid(msg) from error


def priority_of(priority: Any) -> int:
    """Return a priority; raise Invalid if it is out of range."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        msg = f"priority {priority!r} is not a whole number"
        raise Invalid(msg)
    if not 0 <= priority <= MOST_PRIORITY:
        msg = f"priority {priority} is not between 0 and {MOST_PRIORITY}"
        raise Invalid(msg)
    return priority


def task_name(name: Any) -> str:
    """Return the name of a task; raise Invalid if it cannot be one."""
    if not isinstance(name, str) or not _TASK_NAME.fullmatch(name):
        msg = f"{name!r} is not a valid task name; use 1 to 200 letters, digits, _, - and dots"
        raise Invalid(msg)
    return name


_TASK_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")


def key_of(key: Any) -> str | None:
    """Return a key; raise Invalid if it cannot be one."""
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= MOST_KEY or clean_text(key, MOST_KEY) != key:
        msg = f"key {key!r} is not text of 1 to {MOST_KEY} characters without NUL"
        raise Invalid(msg)
    return key


def count(number: Any, name: str, most: int = 2**31 - 1) -> int:
    """Return a whole number from 0 to `most`; raise Invalid if it is not one."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        msg = f"{name} {number!r} is not a whole number from 0 to {most}"
        raise Invalid(msg)
    return number


def at_least_one(number: int, name: str) -> int:
    """Return a whole number from 1; raise Invalid if it is not one."""
    if count(number, name) < 1:
        msg = f"{name} must be at least 1"
        raise Invalid(msg)
    return number


def past_minutes(minutes: int) -> int:
    """Return a number of minutes; raise Invalid beyond the time that has counts by the minute."""
    if at_least_one(minutes, "minutes") > MOST_MINUTES:
        msg = f"minutes {minutes} is more than {MOST_MINUTES}; older outcomes are kept as sums only"
        raise Invalid(msg)
    return minutes


def history_of(topic: str | None, minutes: int, step: int, *, by_topic: bool) -> Operation[History]:
    """Check what a history is asked for; return what reads it."""
    if step not in STEPS:
        msg = f"unknown step {step!r}; known steps in seconds: {', '.join(map(str, STEPS))}"
        raise Invalid(msg)
    if at_least_one(minutes, "minutes") > KEPT_DAYS:
        msg = f"minutes {minutes} is more than {KEPT_DAYS}; older outcomes are kept as sums only"
        raise Invalid(msg)
    shortest = 60 if minutes <= KEPT_MINUTES else 3_600 if minutes <= MOST_MINUTES else 86_400
    shortest = max(shortest, next(each for each in STEPS if minutes * 60 <= each * MOST_STEPS))
    if step < shortest:
        msg = f"step {step} is too short for {minutes} minutes; use a step of {shortest} seconds"
        raise Invalid(msg)
    width = step // 60
    return stats.history(
        None if topic is None else checked(topic), minutes, width, by_topic=by_topic
    )


def seconds(timeout: float | None) -> float:
    """Return a timeout in seconds."""
    return NO_TIMEOUT if timeout is None else microseconds(timeout, "timeout") / 1e6


def peekable(state: State | str) -> State:
    """Return a state that `peek` supports."""
    if state not in {State.READY, State.DELAYED, State.BURIED}:
        msg = f"peek supports the states ready, delayed and buried, not {state!r}"
        raise Invalid(msg)
    return State(state)


def _in_seconds(duration: Duration, name: str) -> float:
    return microseconds(duration, name) / 1e6


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **{name: partial(count, name=name) for name in ("max_retries", "max_crashes")},
    **{name: partial(_in_seconds, name=name) for name in ("timeout", "retention", "expires_after")},
    "expires_at": partial(instant, name="expires_at"),
    "backoff": backoff_of,
}
