"""Tasks: typed calls that become jobs."""

import asyncio
import concurrent.futures
import enum
import functools
import math
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import NoReturn

import msgspec
import pytest

from tests.workers import ended, working
from towpath import App, Context, Retry, State, Status
from towpath.errors import (
    Conflict,
    IncompatibleData,
    Invalid,
    InvalidArguments,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    PayloadTooLarge,
    ResultTimeout,
)
from towpath.model.arguments import Signature
from towpath.testing import isolated


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


class Order(msgspec.Struct):
    id: uuid.UUID
    at: datetime


class Model:
    """As pydantic's models behave."""

    def __init__(self, name):
        self.name = name

    def model_dump(self, mode):
        return {"name": self.name}

    @classmethod
    def model_validate(cls, value):
        if set(value) != {"name"}:
            raise ValueError("a name is needed")
        return cls(value["name"])


@pytest.fixture
def plain(make_app) -> App:
    """The app itself: a task belongs to it, in both colours."""
    return make_app()


def enqueued(colour, task, *args, **kwargs):
    """Enqueue in this colour."""
    return colour(task).enqueue(*args, **kwargs)


def ran(app, job):
    """Decode the arguments of a job and call the function, as a worker does."""
    task = app.tasks.find(job.topic)
    args, kwargs = task.signature.decode(app.jobs.get(job.id).body)
    return task.function(*args, **kwargs)


def test_a_call_is_stored_by_the_names_of_its_parameters(plain, colour):
    """DQ-13"""

    @plain.task()
    def resize(image: int, *, width: int = 800): ...

    job = enqueued(colour, resize, 7)

    assert (job.topic, plain.jobs.get(job.id).payload) == ("resize", {"image": 7})


def test_to_call_a_task_is_to_run_it(plain):
    @plain.task()
    def double(number: int) -> int:
        """Twice as much."""
        return number * 2

    assert double(21) == 42
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
    assert plain.jobs.stats().ready == 0


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2, 3, 4), {"e": 5, "f": 6}),
        ((1, 2), {}),
        ((1,), {"b": 2, "d": 4}),
    ],
)
def test_every_kind_of_parameter_comes_back_as_it_was_given(plain, args, kwargs):
    def function(a: int, /, b: int, *c: int, d: int = 0, **rest: int):
        return a, b, c, d, rest

    task = plain.task()(function)

    assert ran(plain, task.enqueue(*args, **kwargs)) == function(*args, **kwargs)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Point, Point(1, 2)),
        (Order, Order(uuid.UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC))),
        (Colour, Colour.RED),
        (Decimal, Decimal("1.10")),
        (bytes, b"\x00\xff"),
        (list[Point], [Point(1, 2), Point(3, 4)]),
        (int | None, None),
        (dict[str, float], {"a": 1.5}),
    ],
    ids=str,
)
def test_values_are_stored_by_annotation(plain, annotation, value):
    def function(value): ...

    function.__annotations__["value"] = annotation
    task = plain.task()(function)
    task.function = lambda value: value

    assert ran(plain, task.enqueue(value)) == value


def test_pydantic_models_are_stored_and_checked(plain):
    @plain.task()
    def greet(who: Model, other: Model | None = None):
        return who.name

    assert ran(plain, greet.enqueue(Model("Ada"))) == "Ada"
    with pytest.raises(InvalidArguments, match="a name is needed"):
        greet.signature.decode('{"who": {"nam": 1}}')


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing a required argument: 'number'"),
        ((1, 2), {}, "too many positional arguments"),
        ((1,), {"shade": "red"}, "unexpected keyword argument 'shade'"),
        (("seven",), {}, "Expected `int`, got `str` - at `\\$.number`"),
    ],
)
def test_wrong_arguments_fail_in_the_caller_and_nothing_is_stored(
    plain, colour, args, kwargs, words
):
    @plain.task()
    def double(number: int): ...

    with pytest.raises(InvalidArguments, match=words):
        enqueued(colour, double, *args, **kwargs)
    assert plain.jobs.stats().ready == 0


def test_what_is_not_json_or_too_large_is_refused(plain):
    @plain.task()
    def note(text: object): ...

    with pytest.raises(InvalidPayload):
        note.enqueue(math.nan)
    with pytest.raises(InvalidPayload, match="a Context cannot be stored"):
        note.enqueue(Context(plain, None))
    with pytest.raises(PayloadTooLarge):
        note.enqueue("x" * 2**20)


def test_a_context_is_injected_and_never_stored(plain):
    @plain.task()
    def report(ctx: Context, number: int): ...

    job = report.enqueue(7)

    assert report.signature.takes_context
    assert plain.jobs.get(job.id).payload == {"number": 7}


def test_options_of_the_task_hold_unless_the_call_says_otherwise(plain, colour):
    @plain.task(topic="pictures", priority=7, max_retries=9)
    def resize(image: int): ...

    first = enqueued(colour, resize, 1)
    second = colour(resize.using(priority=1, key="two", delay="1h")).enqueue(2)

    assert (first.topic, first.priority, first.options.max_retries) == ("pictures", 7, 9)
    assert (second.priority, second.key, second.options.max_retries) == (1, "two", 9)
    assert second.run_at > second.created_at


def test_many_calls_are_stored_together_or_not_at_all(plain, colour):
    @plain.task()
    def double(number: int): ...

    jobs = colour(double).enqueue_many([{"number": n} for n in range(3)])
    with pytest.raises(InvalidArguments):
        colour(double).enqueue_many([{"number": 3}, {"number": "four"}])

    assert [plain.jobs.get(job.id).payload for job in jobs] == [{"number": n} for n in range(3)]
    assert plain.jobs.stats().ready == 3


def test_an_unknown_option_of_a_task_is_named(plain):
    with pytest.raises(Invalid, match=r"option `retries` \(use `max_retries`\); known"):

        @plain.task(retries=3)
        def double(number: int): ...


# ---------------------------------------------------------------- results


@pytest.fixture
def sum_up(plain):
    @plain.task(max_retries=1)
    def sum_up(points: list[Point]) -> Point:
        return Point(sum(p.x for p in points), sum(p.y for p in points))

    return sum_up


def test_a_result_comes_back_as_it_is_annotated(plain, colour, sum_up):
    job = enqueued(colour, sum_up, [Point(1, 2), Point(3, 4)])
    [lease] = plain.jobs.reserve("sum_up")
    plain.jobs.complete(lease, ran(plain, job))

    assert colour(job).result(timeout=5) == Point(4, 6)


def test_a_job_that_failed_or_was_cancelled_has_no_result(plain, colour, sum_up):
    failed, cancelled = (enqueued(colour, sum_up, []) for _ in range(2))
    [lease] = plain.jobs.reserve("sum_up")
    plain.jobs.fail(lease, ValueError("no points"))
    plain.jobs.cancel(cancelled)

    with pytest.raises(JobFailed, match="ValueError: no points"):
        colour(failed).result(timeout=5)
    with pytest.raises(JobCancelled):
        colour(cancelled).result(timeout=5)


def test_waiting_for_a_result_ends_in_time_and_leaves_the_job_alone(plain, colour, sum_up):
    job = enqueued(colour, sum_up, [])

    with pytest.raises(ResultTimeout, match=str(job.id)):
        colour(job).result(timeout=0.02)
    assert plain.jobs.get(job.id).status == "pending"


# ---------------------------------------------------------------- functions of every kind


class Printer:
    """Something with methods."""

    def __init__(self, name):
        self.name = name

    def print(self, page: int) -> str:
        return f"{self.name} {page}"

    @classmethod
    def clean(cls, page: int) -> str:
        return f"clean {page}"

    @staticmethod
    def feed(page: int) -> str:
        return f"feed {page}"

    def __call__(self, page: int) -> str:
        return f"called {page}"


@pytest.mark.parametrize(
    "function", [Printer("a").print, Printer.clean, Printer.feed], ids=["bound", "class", "static"]
)
def test_a_method_with_its_object_is_a_function(plain, function):
    task = plain.task()(function)

    assert ran(plain, task.enqueue(1)) == function(1) == task(1)


def pages():
    yield 1


async def apages():
    yield 1


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (functools.partial(Printer.feed, 1), "a task must be a function"),
        (Printer("a"), "a task must be a function"),
        (Printer, "a task must be a function"),
        (7, "a task must be a function"),
        (Printer.print, "is a method, and `self` cannot be stored"),
        (pages, "is a generator"),
        (apages, "is a generator"),
    ],
    ids=["partial", "object", "class", "number", "method", "generator", "async generator"],
)
@pytest.mark.one_database
def test_what_cannot_be_a_task_is_refused_where_it_is_defined(plain, odd, words):
    with pytest.raises(Invalid, match=words):
        plain.task(topic="odd")(odd)
    assert "odd" not in plain.tasks


@pytest.mark.parametrize(
    "option",
    [
        {"max_retries": "3"},
        {"priority": -1},
        {"timeout": "soon"},
        {"backoff": "soon"},
        {"backoff": [-1]},
        {"on_failure": "mail"},
        {"topic": "no topic"},
    ],
    ids=str,
)
@pytest.mark.one_database
def test_an_option_that_makes_no_sense_is_refused_where_the_task_is_defined(plain, option):
    with pytest.raises(Invalid):
        plain.task(**option)(pages_of)


def pages_of(number: int) -> int:
    return number


def test_an_option_of_a_call_that_nobody_knows_is_named_at_once(plain):
    task = plain.task()(pages_of)

    with pytest.raises(Invalid, match=r"`prioriy` \(did you mean `priority`\?\)"):
        task.using(prioriy=1)
    with pytest.raises(Invalid, match="unknown option `topic`"):
        task.using(topic="other")


def test_two_functions_of_one_name_from_two_modules_are_two(plain):
    module = {}
    exec("def pages_of(number: int): ...", module)  # noqa: S102 - another module
    plain.task()(pages_of)

    with pytest.raises(Conflict, match="pages_of"):
        plain.task()(module["pages_of"])
    plain.task()(pages_of)  # as when a module is loaded again


# ---------------------------------------------------------------- annotations


def test_an_annotation_may_name_a_class_that_is_defined_further_down(plain):
    module = {"app": plain, "dataclass": dataclass}
    exec(  # noqa: S102 - a module in which the order matters
        "@app.task()\n"
        "def measure(value: 'Later') -> int: return value.number\n"
        "@dataclass\n"
        "class Later: number: int\n",
        module,
    )

    assert ran(plain, module["measure"].enqueue(module["Later"](3))) == 3


def test_an_annotation_that_names_nothing_is_explained_in_the_caller(plain):
    def lost(value: "Nowhere"): ...  # noqa: F821 - so it is

    task = plain.task()(lost)

    with pytest.raises(
        InvalidArguments,
        match="lost: an annotation cannot be resolved: name 'Nowhere' is not defined",
    ):
        task.enqueue(1)


@pytest.mark.parametrize("annotation", [3, datetime | str], ids=str)
@pytest.mark.one_database
def test_an_annotation_that_cannot_be_stored_is_refused_where_it_stands(plain, annotation):
    def wrong(value): ...

    wrong.__annotations__["value"] = annotation
    with pytest.raises(InvalidArguments, match="wrong"):
        plain.task()(wrong)


def test_a_task_that_never_returns_is_a_task(plain):
    @plain.task()
    def fail() -> NoReturn:
        raise ValueError

    fail.enqueue()


def test_a_default_is_the_one_of_when_the_job_runs(plain):
    def old(number: int, unit: str = "cm"):
        return number, unit

    job = plain.task(topic="measure")(old).enqueue(1)

    def new(number: int, unit: str = "mm", *, scale: float = 2.0):
        return number, unit, scale

    plain.tasks.find("measure").function = new
    plain.tasks.find("measure")._signature = Signature(new, Context)
    assert ran(plain, job) == (1, "mm", 2.0)


def test_a_mutable_default_is_not_shared_by_the_queue(plain):
    @plain.task()
    def collect(number: int, into: list[int] = []):  # noqa: B006 - the function's own mistake
        return [*into, number]

    assert ran(plain, collect.enqueue(1)) == [1]
    assert ran(plain, collect.enqueue(2, [1])) == [1, 2]


def test_none_is_not_the_same_as_nothing(plain):
    @plain.task()
    def greet(name: str | None = "you"):
        return name

    assert ran(plain, greet.enqueue()) == "you"
    assert ran(plain, greet.enqueue(None)) is None


def test_a_job_without_a_payload_calls_a_task_without_arguments(plain):
    @plain.task()
    def ping(times: int = 1):
        return times

    assert ran(plain, plain.jobs.enqueue("ping")) == 1


def test_a_result_that_no_longer_fits_is_explained(plain, colour, sum_up):
    job = enqueued(colour, sum_up, [])
    [lease] = plain.jobs.reserve("sum_up")
    plain.jobs.complete(lease, {"x": 1})

    with pytest.raises(IncompatibleData, match=r"the stored result of .*sum_up does not fit"):
        colour(job).result(timeout=5)


# ---------------------------------------------------------------- hostile functions in a worker


def disguised(function):
    """A decorator that hides that a function is async."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def test_a_decorator_that_hides_that_a_function_is_async_does_no_harm(plain):
    @plain.task()
    @disguised
    async def double(number: int) -> int:
        return number * 2

    with working(plain):
        assert double.enqueue(21).result(20) == 42


class Untamed(BaseException):
    """Of a library that wants not to be caught."""


class Unspeakable(Exception):
    """Cannot say what it is."""

    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt(), "the task raised KeyboardInterrupt"),
        (GeneratorExit(), "the task raised GeneratorExit"),
        (concurrent.futures.CancelledError(), "the task was cancelled"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_is_raised_in_a_thread_stays_there(plain, error, words):
    @plain.task(max_retries=1)
    def fail() -> None:
        raise error

    with working(plain, concurrency=1):
        assert words in ended(plain, fail.enqueue()).last_error
        assert words in ended(plain, fail.enqueue()).last_error


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "blocking"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(3), "the task exited: 3"),
        (Untamed(), "the task raised Untamed"),
        (StopIteration(), "StopIteration"),
        (StopAsyncIteration(), "StopAsyncIteration"),
        (asyncio.CancelledError(), "the task was cancelled"),
        (Unspeakable(), "Unspeakable: <exception text unavailable: __str__ raised>"),
        (ExceptionGroup("all", [ValueError("a")]), "ExceptionGroup: all"),
        (RecursionError("deep"), "RecursionError: deep"),
        (ValueError("\0 \ud800"), "ValueError: \N{REPLACEMENT CHARACTER} ?"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_a_task_raises_is_its_own_failure(plain, is_async, error, words):
    """The worker and the other jobs go on."""

    @plain.task(max_retries=1, topic="fail")
    async def afail() -> None:
        raise error

    @plain.task(max_retries=1, topic="bfail")
    def fail() -> None:
        raise error

    @plain.task()
    async def fine() -> str:
        return "fine"

    with working(plain, concurrency=1):
        job = (afail if is_async else fail).enqueue()
        assert words in ended(plain, job).last_error
        assert fine.enqueue().result(20) == "fine"


@pytest.mark.parametrize(
    ("options", "error", "state"),
    [
        ({"retry_on": ConnectionError}, ConnectionResetError, State.DELAYED),
        ({"retry_on": ConnectionError}, ValueError, State.BURIED),
        ({"retry_on": (ConnectionError, ValueError)}, ValueError, State.DELAYED),
        ({"dont_retry_on": ValueError}, ValueError, State.BURIED),
        ({"dont_retry_on": ValueError}, KeyError, State.DELAYED),
        (
            {"retry_on": OSError, "dont_retry_on": FileNotFoundError},
            FileNotFoundError,
            State.BURIED,
        ),
    ],
)
def test_only_some_errors_are_retried(app, options, error, state):
    @app.task(**options)
    def work() -> None:
        raise error

    with isolated(app) as jobs:
        job = work.enqueue()
        jobs.run(raises=False)
        assert app.jobs.get(job).state is state


def test_a_task_that_asks_for_a_retry_gets_it(app):
    @app.task(dont_retry_on=ValueError)
    def work() -> None:
        raise Retry(after=1) from ValueError()

    with isolated(app) as jobs:
        job = work.enqueue()
        jobs.run(raises=False)
        assert app.jobs.get(job).state is State.DELAYED


@pytest.mark.parametrize("name", ["retry_on", "dont_retry_on"])
@pytest.mark.parametrize("given", ["ValueError", int, [ValueError], BaseException])
def test_what_is_no_class_of_errors_is_refused(app, name, given):
    with pytest.raises(Invalid, match=f"{name}.*not a class of errors"):
        app.task(topic="work", **{name: given})(lambda: None)


def test_a_job_of_a_task_is_refreshed_waited_for_and_cancelled(app):
    @app.task()
    def work() -> int:
        return 1

    with isolated(app) as jobs:
        job, other = work.enqueue(), work.enqueue()
        assert other.cancel().status is Status.CANCELLED
        assert other.wait().status is Status.CANCELLED
        jobs.run()
        assert job.refresh().status is Status.COMPLETED
        assert job.wait().result() == 1


def test_enqueue_many_takes_named_arguments(app):
    @app.task()
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(InvalidArguments, match=r"named arguments.*not \(1, 2\)"):
        add.enqueue_many([(1, 2)])
