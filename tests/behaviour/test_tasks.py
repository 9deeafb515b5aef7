"""Tasks: typed calls that become jobs."""

import enum
import math
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

from towpath import App, Context
from towpath.errors import (
    Conflict,
    Invalid,
    InvalidArguments,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    PayloadTooLarge,
    ResultTimeout,
)


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
    task = app.tasks[job.topic]
    args, kwargs = task.signature.decode(app.jobs.get(job.id).body)
    return task.function(*args, **kwargs)


def test_dq_13_a_call_is_stored_by_the_names_of_its_parameters(plain, colour):
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


def test_two_tasks_cannot_have_one_topic(plain):
    @plain.task(topic="mail")
    def first(): ...

    with pytest.raises(Conflict, match="first"):

        @plain.task(topic="mail")
        def second(): ...


def test_an_unknown_option_of_a_task_is_named(plain):
    with pytest.raises(Invalid, match=r"there is no retries: use .*max_retries"):

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
