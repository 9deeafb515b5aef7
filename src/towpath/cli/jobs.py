"""towpath jobs: shows jobs, and changes them without a lease."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Final, Literal, Self, cast

import msgspec

from towpath import App, Job, LogLine, Status, TowpathError, UnreadableJob
from towpath.app.checks import ORDERS, STATUSES, EnqueueOptions
from towpath.cli.apps import add_common, add_limit, duration, instant, open_app
from towpath.cli.output import (
    Columns,
    Output,
    Refused,
    Table,
    complain,
    confirm,
    counting,
    jobs_are,
    plain,
    since,
    text,
)
from towpath.model.job import Failure, FailureKind
from towpath.model.pages import Order
from towpath.model.payload import Encoding, raw_bytes, redacted

EXAMPLES: Final = """\
Give a job by its id or by its number (seq).

examples:
  towpath jobs list --status failed --topic mail
  towpath jobs show 42
  towpath jobs requeue 42 43 0198c1de-7d52-7c7f-b0f4-4f5a2f1c9d11
  towpath jobs requeue --all --topic mail --status failed
  towpath jobs enqueue mail '{"to": "ada@example.org"}' --delay 15m
  towpath jobs kick --topic mail --limit 100
  towpath jobs reschedule 42 --delay 15m
  towpath jobs cancel 42
  towpath jobs delete 42
  towpath jobs forget --all --topic mail --older-than 1d
"""
LIST: Final[Columns] = {
    "seq": "right",
    "topic": "left",
    "state": "left",
    "retries": "right",
    "age": "right",
    "payload or error": "left",
}
SHOWN: Final = (
    "id", "seq", "topic", "task", "status", "state", "priority", "key", "created_at", "run_at"
)  # fmt: skip
COUNTED: Final = ("retries", "crashes", "timeouts", "releases", "buries", "kicks")
TIMES: Final = ("expires_at", "reserved_at", "until", "finished_at", "duration")
GONE: Final = {"delete": "deleted", "forget": "forgotten"}  # what a verb makes of a job
PAGE: Final = 1_000
MOST_SHOWN: Final = 1_000  # characters of a payload in a list

Verb = Callable[[App, Job], Job]


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Show, enqueue and change jobs."
    parser.epilog = EXAMPLES
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB", dest="verb")

    def verb(name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
        lines = "\n".join(f"  towpath jobs {name} {words}" for words in examples)
        return verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"examples:\n{lines}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    listing = verb(
        "list",
        "list jobs, newest first",
        "--status failed --since 1h --error timeout",
        "--status ready --topic mail --order next --limit 10",
        "--worker web-1",
    )
    _add_filters(listing)
    listing.add_argument(
        "--order",
        choices=ORDERS,
        metavar="ORDER",
        default=Order.NEWEST,
        help=f"{', '.join(ORDERS)}; next is the order of reservation of a state (default newest)",
    )
    add_limit(listing, 50)
    listing.add_argument("--after", metavar="JOB", help="continue after the last job of a page")
    listing.set_defaults(run=list_jobs)

    showing = verb("show", "show jobs in full, with their failures", "42", "42 --reveal")
    _add_jobs(showing, "+")
    showing.add_argument(
        "--reveal", action="store_true", help="show passwords and other redacted values"
    )
    showing.set_defaults(run=show)

    adding = verb(
        "enqueue",
        "store a job; with an app, its task checks the payload and adds its options",
        """mail '{"to": "ada@example.org"}' --delay 15m""",
        "mail - < mail.json",
    )
    adding.add_argument("topic", metavar="TOPIC", help="of the job")
    adding.add_argument("payload", metavar="JSON", nargs="?", help="- to read it from stdin")
    _add_priority(adding, "0 is the most urgent (default 50)")
    _add_delay(adding, "from now before the job may start, such as 15m")
    adding.add_argument(
        "--expires-after",
        metavar="TIME",
        type=duration,
        help="cancel the job if it has not started by then",
    )
    adding.add_argument(
        "--key", metavar="TEXT", help="store nothing while an unfinished job has this key"
    )
    adding.add_argument("--task", metavar="NAME", help="the task, if the topic has several")
    adding.add_argument(
        "--max-retries", metavar="NUMBER", type=int, help="bury the job after so many failures"
    )
    adding.set_defaults(run=enqueue)

    for name, summary, act in (
        ("requeue", "make failed or cancelled jobs ready, counters back to 0", _requeue),
        ("cancel", "cancel jobs; running ones are asked to stop", _cancel),
        ("delete", "delete jobs that are neither running nor completed", _delete),
    ):
        acting = verb(name, summary, "42 43", "--all --topic mail --status failed")
        _add_chosen(acting)
        acting.set_defaults(run=_acting(name, act))

    forgetting = verb(
        "forget",
        "forget completed and cancelled jobs before their retention is over",
        "42 43",
        "--all --topic mail --older-than 1d",
    )
    _add_chosen(forgetting, of_lists=False)
    forgetting.add_argument(
        "--older-than", metavar="TIME", type=duration, help="jobs that ended so long ago"
    )
    forgetting.set_defaults(run=forget)

    kicking = verb(
        "kick", "make buried or delayed jobs ready, counters kept", "42", "--topic mail --limit 100"
    )
    _add_jobs(kicking, "*")
    kicking.add_argument(
        "--topic",
        metavar="TOPIC",
        help="instead of jobs: kick its buried jobs, or delayed ones if none is buried",
    )
    kicking.add_argument(
        "--limit", metavar="NUMBER", type=int, default=1, help="jobs of the topic (default 1)"
    )
    kicking.set_defaults(run=kick)

    moving = verb(
        "reschedule",
        "change the time or priority of pending jobs",
        "42 --delay 15m",
        "42 --delay 0",
    )
    _add_jobs(moving, "+")
    _add_delay(moving, "from now, such as 15m; 0 is now")
    _add_priority(moving, "0 is the most urgent")
    moving.set_defaults(run=reschedule)

    for each in verbs.choices.values():
        add_common(each)


def list_jobs(given: argparse.Namespace) -> None:
    """Show a page of jobs."""
    with open_app(given) as app:
        ahead = "after" if given.order == Order.OLDEST else "before"
        filters = _filters(given)
        if given.after:
            filters[ahead] = _found(app, given.after)
        jobs = app.jobs.list(**filters, order=given.order, limit=given.limit)
    full = len(jobs) == min(given.limit, PAGE)
    document = {
        "jobs": [described(job) for job in jobs],
        "after": jobs[-1].seq if full else None,
    }
    rows = (_row(job, app.settings.redact) for job in jobs)
    Output(as_json=given.json).show(document, lambda: [Table(LIST, rows)])
    if full and sys.stdout.isatty() and not given.json:
        print(f"more: --after {jobs[-1].seq}", file=sys.stderr)


def show(given: argparse.Namespace) -> int:
    """Show jobs in full."""
    out = Output(as_json=given.json)
    shown: list[tuple[Job, list[Failure], list[LogLine]]] = []
    code = 0
    with open_app(given) as app:
        for name in given.jobs:
            with _reporting(given) as reported:
                job = _found(app, name)
                shown.append((job, app.jobs.failures(job), app.jobs.logs(job)))
            code = code or reported.code
    document = [
        {**described(job), "failures": failures, "logs": logs} for job, failures, logs in shown
    ]
    names = "" if given.reveal else app.settings.redact
    out.show({"jobs": document}, lambda: (text(_in_full(*each, names)) for each in shown))
    return code


def enqueue(given: argparse.Namespace) -> None:
    """Store a job; the task of its topic checks the arguments and adds its options."""
    names = ("task", "priority", "delay", "expires_after", "key", "max_retries")
    given_options = {name: getattr(given, name) for name in names}
    options = cast(
        "EnqueueOptions", {name: each for name, each in given_options.items() if each is not None}
    )
    body = sys.stdin.read() if given.payload == "-" else given.payload
    # Raw, so that numbers keep their digits; invalid JSON is refused.
    payload = msgspec.Raw(b"null" if body is None else body.encode())
    with open_app(given, creates=True) as app:
        task = app.tasks.for_call(given.topic, given.task)
        if task:
            payload, options = task.from_outside(payload, options)
        job = app.jobs.enqueue(given.topic, payload, **options)
    _show_acted(given, [job])


def kick(given: argparse.Namespace) -> int:
    """Make jobs ready."""
    if bool(given.topic) == bool(given.jobs):
        msg = "give the jobs to kick, or --topic, not both"
        raise Refused(msg)
    if given.jobs:
        return _act(given, lambda app, job: app.jobs.kick_job(job))
    with open_app(given) as app:
        kicked = app.jobs.kick(given.topic, given.limit)
    Output(as_json=given.json).show(
        {"topic": given.topic, "kicked": kicked},
        lambda: [text(f"{jobs_are(kicked, given.topic)} ready")],
    )
    return 0


def reschedule(given: argparse.Namespace) -> int:
    """Change the time or priority of pending jobs."""
    if given.delay is None and given.priority is None:
        msg = "give --delay, --priority or both"
        raise Refused(msg)
    delay, priority = given.delay, given.priority
    return _act(given, lambda app, job: app.jobs.reschedule(job, delay=delay, priority=priority))


def forget(given: argparse.Namespace) -> int:
    """Forget finished jobs."""
    filters = _filters(given)
    if given.older_than is not None:
        filters["older_than"] = given.older_than
    _confirm_chosen(given, "forget", "finished job", filters)
    if given.jobs:
        return _act(given, _forget)
    with open_app(given) as app, counting("jobs are forgotten") as count:
        number = app.jobs.forget_all(**filters, progress=count)
    Output(as_json=given.json).show(
        {"forgotten": number}, lambda: [text(f"{jobs_are(number)} forgotten")]
    )
    return 0


def _requeue(app: App, job: Job) -> Job:
    return app.jobs.requeue(job)


def _cancel(app: App, job: Job) -> Job:
    return app.jobs.cancel(job)


def _delete(app: App, job: Job) -> Job:
    app.jobs.delete(job)
    return job


def _forget(app: App, job: Job) -> Job:
    app.jobs.forget(job)
    return job


def _acting(name: str, verb: Verb) -> Callable[[argparse.Namespace], int]:
    def act(given: argparse.Namespace) -> int:
        _confirm_chosen(given, name, "job", _filters(given))
        return _act(given, verb)

    return act


def _confirm_chosen(
    given: argparse.Namespace, name: str, what: str, filters: dict[str, Any]
) -> None:
    if given.all == bool(given.jobs) or (filters and not given.all):
        msg = f"give the jobs to {name}, or --all with filters, not both"
        raise Refused(msg)
    if given.all:
        described = ", ".join(f"{each} {plain(value)}" for each, value in filters.items())
        confirm(f"{name} every {what}{' with ' if described else ''}{described}", yes=given.yes)


def _act(given: argparse.Namespace, verb: Verb) -> int:
    """Act on each job; an error of one does not stop the others."""
    done: list[Job] = []
    code = 0
    with open_app(given) as app:
        chosen = list(_chosen(app, given))
        for name in chosen:
            with _reporting(given) as reported:
                found = app.jobs.get(name) if isinstance(name, Job) else _found(app, name)
                # An action on an earlier job may have moved this one too.
                has_moved = isinstance(name, Job) and found.state != name.state
                done.append(found if has_moved else verb(app, found))
            code = code or reported.code
    _show_acted(given, done)
    if not chosen and not given.json:
        print("no job matches")
    return code


def _chosen(app: App, given: argparse.Namespace) -> Iterator[Job | str]:
    if given.jobs:
        yield from given.jobs
        return
    chosen = page = app.jobs.list(**_filters(given), limit=PAGE)
    while page:
        page = app.jobs.list(**_filters(given), limit=PAGE, before=page[-1])
        chosen += page
    yield from reversed(chosen)  # oldest first: a job comes before those that wait for it


class _reporting:  # noqa: N801 - used as a function in `with`
    """Report an error about one of several jobs, and continue."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._as_json: bool = given.json
        self.code = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> bool:
        if not isinstance(error, TowpathError):
            return False
        complain(error.code, str(error), as_json=self._as_json)
        self.code = 1
        return True


def _show_acted(given: argparse.Namespace, jobs: list[Job]) -> None:
    gone = GONE.get(given.verb)
    Output(as_json=given.json).show(
        {"jobs": [{"id": job.id, "seq": job.seq} if gone else described(job) for job in jobs]},
        lambda: [text(f"job {job.seq} ({job.id}) is {gone or _state(job)}") for job in jobs],
    )


def _state(job: Job) -> str:
    return "asked to stop" if job.cancel_requested else job.state


def _add_chosen(parser: argparse.ArgumentParser, *, of_lists: bool = True) -> None:
    _add_jobs(parser, "*")
    parser.add_argument("--all", action="store_true", help="all jobs that match the filters")
    parser.add_argument("--yes", action="store_true", help="do not ask for a confirmation")
    _add_filters(parser, of_lists=of_lists)


def _add_filters(parser: argparse.ArgumentParser, *, of_lists: bool = True) -> None:
    filters = parser.add_argument_group("filters")
    filters.add_argument("--topic", metavar="TOPIC", help="jobs of this topic")
    filters.add_argument(
        "--status",
        choices=[*STATUSES],
        metavar="STATUS",
        help=f"a status or a state: {', '.join(STATUSES)}",
    )
    filters.add_argument("--key", metavar="TEXT", help="jobs with this key")
    filters.add_argument(
        "--text",
        metavar="TEXT",
        help="text in the payload, the key or the last error; to forget, in the payload",
    )
    if not of_lists:
        return
    filters.add_argument("--error", metavar="TEXT", help="text in the last error")
    filters.add_argument("--worker", metavar="NAME", help="jobs that this worker has now")
    filters.add_argument(
        "--since",
        metavar="TIME",
        type=instant,
        help="enqueued then or later: an instant, or how long ago, such as 1h",
    )
    filters.add_argument("--until", metavar="TIME", type=instant, help="enqueued before that")


def _add_jobs(parser: argparse.ArgumentParser, number: Literal["*", "+"]) -> None:
    parser.add_argument("jobs", nargs=number, metavar="JOB", help="its id or its number (seq)")


def _add_delay(parser: argparse.ArgumentParser, summary: str) -> None:
    parser.add_argument("--delay", metavar="TIME", type=duration, help=summary)


def _add_priority(parser: argparse.ArgumentParser, summary: str) -> None:
    parser.add_argument("--priority", metavar="NUMBER", type=int, help=summary)


def _filters(given: argparse.Namespace) -> dict[str, Any]:
    names = ("topic", "status", "key", "text", "error", "worker", "since", "until")
    return {name: each for name in names if (each := getattr(given, name, None)) is not None}


def _found(app: App, job: Job | str) -> Job:
    if isinstance(job, Job):
        return job
    return app.jobs.numbered(int(job)) if job.isdecimal() else app.jobs.get(job)


def _row(job: Job, redact: str) -> tuple[object, ...]:
    error = job.last_error if job.state != "completed" else None
    shown = error or _payload(job, redact)
    age = since(job.created_at)
    topic = f"{job.topic} ({job.task_name})" if job.task_name else job.topic
    return str(job.seq), topic, job.state, job.retries, age, shown[:MOST_SHOWN]


def _field(job: Job, name: str) -> object:
    return getattr(job, "task_name" if name == "task" else name)


def _payload(job: Job, redact: str) -> str:
    if isinstance(job, UnreadableJob):
        return job.why
    if job.encoding == Encoding.BASE64:
        return f"{len(raw_bytes(job.body, job.encoding)):,} bytes, in base64: {job.body}"
    return redacted(job.body, redact, strict=job.encoding == Encoding.JSON)


def described(job: Job) -> dict[str, Any]:
    """Return the JSON form of a job; an unreadable job has the reason instead of its payload."""
    known = {name: _field(job, name) for name in (*SHOWN, *COUNTED, *TIMES)}
    known |= {"epoch": job.epoch, "ttr": job.ttr, "cancel_requested": job.cancel_requested}
    known |= {"progress": job.progress, "progress_message": job.progress_message}
    known |= {"result": job.returned, "last_error": job.last_error, "encoding": job.encoding}
    if isinstance(job, UnreadableJob):
        return {**known, "unreadable": job.why}
    as_json = job.encoding == Encoding.JSON
    payload = msgspec.Raw(job.body.encode()) if as_json else job.body
    return {**known, "payload": payload, "options": job.options}


def _in_full(job: Job, failures: list[Failure], logs: list[LogLine], redact: str) -> str:
    lines = [
        f"{name:<13}{plain(_field(job, name))}"
        for name in (*SHOWN, *TIMES)
        if _field(job, name) is not None
    ]
    counted = (f"{name} {getattr(job, name)}" for name in COUNTED if getattr(job, name))
    lines.append(f"{'counted':<13}{', '.join(counted) or '-'}")
    if job.cancel_requested:
        lines.append("a cancel was requested")
    lines += _put_off(job, failures)
    if job.progress is not None:
        lines.append(f"{'progress':<13}{job.progress:.0%} {job.progress_message or ''}".rstrip())
    lines += ["", "payload", _indented(_pretty(_payload(job, redact)))]
    if job.result_body is not None:
        lines += ["", "result", _indented(_pretty(redacted(job.result_body, redact)))]
    if logs:
        lines += ["", "log", *(_indented(f"{plain(each.at)} {each.text}") for each in logs)]
    for failure in failures:
        run = "" if failure.run is None else f" in run {failure.run}"
        lines += ["", f"{failure.kind}{run} at {plain(failure.failed_at)}"]
        lines.append(_indented(failure.traceback or failure.error))
    return "\n".join([*lines, ""])


def _put_off(job: Job, failures: list[Failure]) -> Iterator[str]:
    """Say that workers give back a job because they do not know its task or its arguments."""
    streak = [*takewhile(lambda each: each.kind == FailureKind.UNKNOWN, reversed(failures))]
    if job.status == Status.PENDING and streak and streak[0].epoch == job.epoch:
        yield f"{'waits':<13}for a worker that can run it, since {plain(streak[-1].failed_at)};"
        yield f"{'':<13}it fails an hour after that: {streak[0].error}"


def _pretty(body: str) -> str:
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except ValueError:
        return body


def _indented(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.rstrip().splitlines())
