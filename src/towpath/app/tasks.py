"""Tasks: functions whose calls are jobs."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec
from msgspec.structs import astuple

from towpath.app.checks import (
    Defaults,
    EnqueueOptions,
    at_least_one,
    new_jobs,
    refuse_unknown,
    task_name,
)
from towpath.app.context import Context
from towpath.app.flows import Step
from towpath.errors import (
    Conflict,
    Invalid,
    InvalidArguments,
    JobCancelled,
    JobFailed,
    ResultTimeout,
)
from towpath.model.arguments import Signature
from towpath.model.backoff import BackoffOption
from towpath.model.instants import Duration, microseconds
from towpath.model.job import Job
from towpath.model.limits import Limit
from towpath.model.sizes import Size, size_in_bytes
from towpath.model.states import Status
from towpath.model.topics import checked
from towpath.store.jobs import NewJob

if TYPE_CHECKING:
    from towpath.app.app import App

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)
Call = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and named arguments."""

Wait: TypeAlias = Callable[[int], Duration] | Callable[[int, Exception], Duration]
"""Returns the wait after the given number of failures, of which this is the last."""

Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]
"""One class of errors, or several."""

OnFailure: TypeAlias = Callable[[Context, Exception, bool], object]
"""Called after each failure of a job; True means that it was the last try. Blocking or async."""

FIRST_PAUSE: Final = 0.005  # seconds between two reads of a result; each pause is longer
LAST_PAUSE: Final = 0.25


class TaskOptions(TypedDict, total=False):
    """How the jobs of a task are enqueued and run; a call may override some options."""

    name: str  # default: the name of the function
    topic: str  # several tasks may share a topic; default: the name
    alias: str | Sequence[str]  # names that the task had before
    priority: int  # 0 is the most urgent; default 50
    ttr: Duration  # how long a lease without a session lives
    max_retries: int  # a job is buried when its failures reach this number
    max_crashes: int  # a job is buried when the crashes of its workers reach this number
    timeout: Duration  # how long one run may last
    retention: Duration  # how long a finished job is kept
    expires_after: Duration  # a job that has not begun this long after the call is cancelled
    backoff: BackoffOption | Wait  # the pause after each failure; the worker calls a function
    limit: Limit | None  # bounds how many jobs of its key run at once, or how often one starts
    retry_on: Errors  # only these errors are retried; another one fails the job at once
    dont_retry_on: Errors  # these errors fail the job at once
    keep_result: bool  # False: the result of the function is not stored
    on_failure: OnFailure  # called in the worker after every failure, not after a crash
    concurrency: int  # how many runs at once in one worker, within the worker's own concurrency
    sandbox: bool  # runs in a separate process, which is killed at the time limit and on cancel
    memory: Size  # the memory limit of that process, such as "512MiB"; Linux only


class CallOptions(EnqueueOptions, total=False):
    """How one call of a task is enqueued."""

    connection: object  # the call is stored in this connection's transaction


class TaskJob(Job, Generic[R], frozen=True, kw_only=True):
    """A job that is a call of a task: all fields of a Job, and the result."""

    task: "Task[Any]"  # whose call it is

    async def aresult(self, timeout: Duration = 600) -> R:
        """Wait for the result of the task; raises JobFailed, JobCancelled or ResultTimeout."""
        result: R = self.task.returned_by(await self.await_(timeout))
        return result

    async def await_(self, timeout: Duration = 600) -> "TaskJob[R]":
        """Wait for the end of the job, good or bad, and return it; raises ResultTimeout."""
        deadline = time.monotonic() + microseconds(timeout, "timeout") / 1e6
        for pause in _pauses():
            job = await self.arefresh()
            if _has_ended(job):
                return job
            await asyncio.sleep(_rest(deadline, pause, self))
        raise AssertionError  # _pauses is endless

    async def arefresh(self) -> "TaskJob[R]":
        """Read the job as it is now."""
        return self.task.job(await self.task.app.jobs.aget(self.id))

    async def acancel(self) -> "TaskJob[R]":
        """Cancel the job; a running one is asked to stop, and ends when its worker answers."""
        return self.task.job(await self.task.app.jobs.acancel(self.id))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def result(self, timeout: Duration = 600) -> R:
        """Wait for the result of the task; raises JobFailed, JobCancelled or ResultTimeout."""
        result: R = self.task.returned_by(self.wait(timeout))
        return result

    def wait(self, timeout: Duration = 600) -> "TaskJob[R]":
        """Wait for the end of the job, good or bad, and return it; raises ResultTimeout."""
        deadline = time.monotonic() + microseconds(timeout, "timeout") / 1000000.0
        for pause in _pauses():
            job = self.refresh()
            if _has_ended(job):
                return job
            time.sleep(_rest(deadline, pause, self))
        raise AssertionError

    def refresh(self) -> "TaskJob[R]":
        """Read the job as it is now."""
        return self.task.job(self.task.app.jobs.get(self.id))

    def cancel(self) -> "TaskJob[R]":
        """Cancel the job; a running one is asked to stop, and ends when its worker answers."""
        return self.task.job(self.task.app.jobs.cancel(self.id))


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 1.5, LAST_PAUSE)


def _rest(deadline: float, pause: float, job: TaskJob[Any]) -> float:
    if job.task.app.stands_still:
        msg = f"job {job.id} of topic {job.topic!r} has not run; call `run()` of the test kit first"
        raise ResultTimeout(msg)
    left = deadline - time.monotonic()
    if left <= 0:
        msg = f"job {job.id} of topic {job.topic!r} has not ended in time; it continues"
        raise ResultTimeout(msg)
    return min(pause, left)


def _has_ended(job: Job) -> bool:
    return job.status in {Status.COMPLETED, Status.FAILED, Status.CANCELLED}


class Calls(Generic[F_co]):
    """What `task.using(…)` returns: it enqueues calls of the task with these options.

    Its type is that of the function. The verbs are overloaded on `self`, not the decorator on the
    function: mypy gives up on overloads where an argument contains Any, as a result often does.
    """

    def __init__(self, task: "Task[Any]", options: CallOptions) -> None:
        self._task = task
        self._given = options

    @overload
    def s(
        self: "Calls[Callable[..., Coroutine[Any, Any, R]]]", *args: Any, **kwargs: Any
    ) -> Step[R]: ...

    @overload
    def s(self: "Calls[Callable[..., R]]", *args: Any, **kwargs: Any) -> Step[R]: ...

    def s(self, *args: Any, **kwargs: Any) -> Step[Any]:
        """Make a step of a flow: see `towpath.group` and `|`."""
        return Step(self._task, args, kwargs, self._given)

    @overload
    async def aenqueue(
        self: "Calls[Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]]",
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> TaskJob[R]: ...

    @overload
    async def aenqueue(
        self: "Calls[Callable[P, Coroutine[Any, Any, R]]]", *args: P.args, **kwargs: P.kwargs
    ) -> TaskJob[R]: ...

    @overload
    async def aenqueue(
        self: "Calls[Callable[Concatenate[Context, P], R]]", *args: P.args, **kwargs: P.kwargs
    ) -> TaskJob[R]: ...

    @overload
    async def aenqueue(
        self: "Calls[Callable[P, R]]", *args: P.args, **kwargs: P.kwargs
    ) -> TaskJob[R]: ...

    async def aenqueue(self, *args: Any, **kwargs: Any) -> TaskJob[Any]:
        """Store a call."""
        return (await self._task.astore([(args, kwargs)], self._given))[0]

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    @overload
    def enqueue(
        self: "Calls[Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]]",
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> TaskJob[R]: ...

    @overload
    def enqueue(
        self: "Calls[Callable[P, Coroutine[Any, Any, R]]]", *args: P.args, **kwargs: P.kwargs
    ) -> TaskJob[R]: ...

    @overload
    def enqueue(
        self: "Calls[Callable[Concatenate[Context, P], R]]", *args: P.args, **kwargs: P.kwargs
    ) -> TaskJob[R]: ...

    @overload
    def enqueue(self: "Calls[Callable[P, R]]", *args: P.args, **kwargs: P.kwargs) -> TaskJob[R]: ...

    def enqueue(self, *args: Any, **kwargs: Any) -> TaskJob[Any]:
        """Store a call."""
        return self._task.store([(args, kwargs)], self._given)[0]


class Task(Calls[F_co]):
    """A function whose calls can be stored as jobs. A direct call runs it at once.

    `app.task` makes it. Arguments are checked and stored by the function's annotations. `name`,
    `topic` and `function` tell what it is.
    """

    def __init__(self, app: "App", function: Callable[..., Any], options: TaskOptions) -> None:
        super().__init__(self, {})
        self.app = app
        self.function = function
        self.name = _name_of(function, options)
        self.topic = checked(options.get("topic", self.name.replace(".", "-")))
        self.aliases = _aliases(options)
        self.is_async = inspect.iscoroutinefunction(function)
        self.on_failure = _callable(options.get("on_failure"), "on_failure")
        self.keep_result = options.get("keep_result", True)
        self.backoff = _wait_of(options.get("backoff"))
        self._retry_on = _errors(options, "retry_on", Exception)
        self._dont_retry_on = _errors(options, "dont_retry_on", ())
        self.concurrency = _concurrency(options)
        self.sandbox = bool(options.get("sandbox"))
        self.memory = _memory(options)
        if self.sandbox and "<locals>" in function.__qualname__:
            msg = (
                f"{function.__qualname__}: a sandbox imports its task by name; define the function "
                "at the top level of its module"
            )
            raise Invalid(msg)
        own = {
            "name", "topic", "alias", "on_failure", "keep_result", "concurrency", "sandbox",
            "memory", "retry_on", "dont_retry_on",
        }  # fmt: skip
        if self.backoff:
            own.add("backoff")
        self._options: CallOptions = {k: v for k, v in options.items() if k not in own}  # type: ignore[assignment] # a subset of the same keys
        if self.name != self.topic:
            self._options["task"] = self.name
        # Wrong options fail here, where the task is defined.
        new_jobs(self.topic, (), self._options, Defaults.of(app.settings))
        self._signature: Signature | None = None
        with contextlib.suppress(NameError):  # an annotation may name a class defined further down
            self._signature = Signature(function, Context)
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    @property
    def signature(self) -> Signature:
        """The parameters of its function."""
        if self._signature is None:
            try:
                self._signature = Signature(self.function, Context)
            except NameError as error:
                msg = f"{self.function.__qualname__}: an annotation cannot be resolved: {error}"
                raise InvalidArguments(msg) from error
        return self._signature

    @overload
    def __call__(
        self: "Task[Callable[Concatenate[Context, P], R]]", *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    def __call__(self: "Task[Callable[P, R]]", *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function at once, without a job."""
        return self.function(*self._direct(args), **kwargs)

    @overload
    async def aenqueue_many(
        self: "Task[Callable[..., Coroutine[Any, Any, R]]]", calls: Iterable[Mapping[str, Any]]
    ) -> list[TaskJob[R]]: ...

    @overload
    async def aenqueue_many(
        self: "Task[Callable[..., R]]", calls: Iterable[Mapping[str, Any]]
    ) -> list[TaskJob[R]]: ...

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[TaskJob[Any]]:
        """Store a call for each set of named arguments: all of them or none."""
        return await self.astore([((), _named(call)) for call in calls], {})

    def using(self, **options: Unpack[CallOptions]) -> Calls[F_co]:
        """Return the task with other options for one call, and with `connection=` if wanted.

        The options are those of `app.jobs.enqueue`: `task.using(delay="15m").enqueue(…)`.
        """
        refuse_unknown(options.keys(), CallOptions.__optional_keys__)
        return Calls(self, options)

    async def astore(self, calls: Sequence[Call], options: CallOptions) -> list[TaskJob[Any]]:
        """Store calls."""
        bodies = self._bodies(calls)
        jobs = await self.app.jobs.aenqueue_many(self.topic, bodies, **self._all(options))
        return [self.job(job) for job in jobs]

    def new(self, body: str, options: CallOptions, around: contextlib.ExitStack) -> NewJob:
        """Return a call that is not stored yet, and enter the middleware of its enqueue."""
        given = {**self._all(options)}
        if given.pop("connection", None) is not None:
            msg = "a step cannot have `connection`; pass it to the `enqueue` of the flow"
            raise Invalid(msg)
        entered = self.app.middleware.around_enqueue(self.topic, given)  # type: ignore[arg-type] # a subset of the same keys
        carried = around.enter_context(entered)
        return self.app.storing.step(self.topic, msgspec.Raw(body.encode()), carried)

    def returned_by(self, job: Job) -> Any:
        """Return the result of a job that has ended, in the type of its annotation."""
        if job.status is Status.FAILED:
            msg = f"job {job.id} of topic {job.topic!r} failed: {job.last_error}"
            raise JobFailed(msg)
        if job.status is Status.CANCELLED:
            msg = f"job {job.id} of topic {job.topic!r} was cancelled"
            raise JobCancelled(msg)
        return self.signature.decode_result(job.result_body)

    def as_enqueued(self, call: Call, options: EnqueueOptions) -> tuple[msgspec.Raw, CallOptions]:
        """Return the payload and the options of a call."""
        return self._bodies([call])[0], {**self._options, **options}

    def from_outside(
        self, payload: msgspec.Raw, options: EnqueueOptions
    ) -> tuple[msgspec.Raw, EnqueueOptions]:
        """Return payload and options of a call by another program, which sends the arguments.

        The call is checked as any other, and has the options of the task.
        """
        body = payload if bytes(payload) != b"null" else msgspec.Raw(b"{}")
        self.signature.decode(bytes(body).decode(errors="replace"))  # raises if they do not fit
        own = {k: v for k, v in self._options.items() if k != "delay" or "run_at" not in options}
        return body, cast("EnqueueOptions", {**own, **options})

    def may_retry(self, error: Exception) -> bool:
        """Say whether a job may be tried again after this error."""
        return isinstance(error, self._retry_on) and not isinstance(error, self._dont_retry_on)

    def _direct(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of a direct call, with a context if the function takes one."""
        return (Context(self.app), *args) if self.signature.takes_context else args

    def _bodies(self, calls: Sequence[Call]) -> list[msgspec.Raw]:
        most = self.app.settings.max_payload
        return [msgspec.Raw(self.signature.encode(*call, most).encode()) for call in calls]

    def _all(self, options: CallOptions) -> CallOptions:
        own = self._options.copy()
        if "expires_at" in options:  # it replaces the task's expires_after
            own.pop("expires_after", None)
        return {**own, **options}

    def job(self, job: Job) -> TaskJob[Any]:
        """Return a stored call of this task as a TaskJob."""
        return TaskJob(*astuple(job), task=self)

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    @overload
    def enqueue_many(
        self: "Task[Callable[..., Coroutine[Any, Any, R]]]", calls: Iterable[Mapping[str, Any]]
    ) -> list[TaskJob[R]]: ...

    @overload
    def enqueue_many(
        self: "Task[Callable[..., R]]", calls: Iterable[Mapping[str, Any]]
    ) -> list[TaskJob[R]]: ...

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[TaskJob[Any]]:
        """Store a call for each set of named arguments: all of them or none."""
        return self.store([((), _named(call)) for call in calls], {})

    def store(self, calls: Sequence[Call], options: CallOptions) -> list[TaskJob[Any]]:
        """Store calls."""
        bodies = self._bodies(calls)
        jobs = self.app.jobs.enqueue_many(self.topic, bodies, **self._all(options))
        return [self.job(job) for job in jobs]


def _concurrency(options: TaskOptions) -> int | None:
    return at_least_one(options["concurrency"], "concurrency") if "concurrency" in options else None


def _memory(options: TaskOptions) -> int | None:
    if "memory" not in options:
        return None
    if not options.get("sandbox"):
        msg = "`memory` requires sandbox=True"
        raise Invalid(msg)
    return size_in_bytes(options["memory"], "memory")


def _named(call: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(call, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"enqueue_many takes named arguments for each call, as {{'to': 'ada'}}, not {call!r}"
        raise InvalidArguments(msg)
    return call


def _errors(options: TaskOptions, name: str, default: Errors) -> Errors:
    given = cast("Errors", options.get(name, default))
    for each in cast("tuple[object, ...]", given if isinstance(given, tuple) else (given,)):
        if not (isinstance(each, type) and issubclass(each, Exception)):
            msg = f"{name}: {each!r} is not a class of errors; pass one, or a tuple of some"
            raise Invalid(msg)
    return given


def _callable(function: OnFailure | None, name: str) -> OnFailure | None:
    if function is not None and not callable(function):
        msg = f"{name} {function!r} is not a function"
        raise Invalid(msg)
    return function


def _wait_of(backoff: object) -> Callable[[int, Exception], Duration] | None:
    """Return a backoff function that takes failures and error; None if it is not a function."""
    if not callable(backoff):
        return None
    function = cast("Callable[..., Duration]", backoff)
    try:
        inspect.signature(function).bind(1, ValueError())
    except TypeError:
        return lambda failures, _: function(failures)
    return function


def _check_function(function: Callable[..., Any]) -> None:
    """Raise Invalid if a function cannot be a task."""
    if not inspect.isroutine(function) or not hasattr(function, "__qualname__"):
        msg = f"a task must be a function, not {function!r}; write a function that calls it"
        raise Invalid(msg)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        msg = f"{function.__qualname__} is a generator; a task must return its result"
        raise Invalid(msg)
    if next(iter(inspect.signature(function).parameters), None) == "self":
        msg = f"{function.__qualname__} is a method, and `self` cannot be stored; use a function"
        raise Invalid(msg)


def _source(function: Callable[..., Any]) -> tuple[str, str]:
    """Return where a function is defined; a reloaded module defines the same function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename if code else function.__module__), function.__qualname__


class Decorator:
    """Makes a task of a function."""

    def __init__(self, tasks: "Tasks", options: TaskOptions) -> None:
        self._tasks = tasks
        self._options = options

    def __call__(self, function: F) -> Task[F]:
        """Make a task of a function, and register it by its topic."""
        return self._tasks.add(function, self._options)


class Tasks:
    """The tasks of an app. Those of one topic differ by name."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._topics: dict[str, dict[str, Task[Any]]] = {}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the topics."""
        return iter(self._topics)

    def __contains__(self, topic: object) -> bool:
        """Say whether a topic has a task."""
        return topic in self._topics

    def __len__(self) -> int:
        """Count the topics."""
        return len(self._topics)

    def of(self, topic: str) -> list[Task[Any]]:
        """Return the tasks of a topic."""
        return list(dict.fromkeys(self._topics.get(topic, {}).values()))

    def find(self, topic: str, name: str | None = None) -> Task[Any] | None:
        """Return the task of a job. Without a name it is the only one of its topic, if any."""
        named = self._topics.get(topic, {})
        if name is not None or topic in named:
            return named.get(name or topic)
        several = self.of(topic)
        return several[0] if len(several) == 1 else None

    def for_call(self, topic: str, name: str | None) -> Task[Any] | None:
        """Return the task that another program calls; None if this app has none in the topic."""
        task = self.find(topic, name)
        if task is None and topic in self:
            names = ", ".join(sorted(self._topics[topic]))
            what = f"no task {name!r}" if name else "several tasks"
            msg = f"topic {topic!r} has {what}; pass `task`, which is one of {names}"
            raise Invalid(msg)
        return task

    def add(self, function: F, options: TaskOptions) -> Task[F]:
        """Make a task of a function."""
        refuse_unknown(options.keys(), TaskOptions.__optional_keys__)
        _check_function(function)
        task = Task[F](self._app, function, options)
        places = [(task.topic, name) for name in (task.name, *task.aliases)]
        if "topic" not in options:  # a renamed task had its old name as its topic
            places += [(checked(alias.replace(".", "-")), alias) for alias in task.aliases]
        for place in places:
            self._check_free(*place, task)
        for topic, name in places:
            self._topics.setdefault(topic, {})[name] = task
        return task

    def _check_free(self, topic: str, name: str, task: Task[Any]) -> None:
        known = self._topics.get(topic, {}).get(name)
        if known is not None and _source(known.function) != _source(task.function):
            msg = (
                f"topic {topic!r} has a task {name!r} already, {_place(known)}; {_place(task)} "
                "needs another `name` or `topic`"
            )
            raise Conflict(msg)
        other = next(
            (each for each in self.of(topic) if each.concurrency != task.concurrency), None
        )
        if other is not None and _source(other.function) != _source(task.function):
            msg = (
                f"`concurrency` holds for a topic, and {_place(other)} and {_place(task)} give "
                f"{topic!r} different values"
            )
            raise Conflict(msg)


def _place(task: Task[Any]) -> str:
    return f"{task.function.__module__}.{task.function.__qualname__}"


def _name_of(function: Callable[..., Any], options: TaskOptions) -> str:
    name = function.__name__
    if name == "<lambda>":
        name = checked(options.get("topic", name))
    return task_name(options.get("name", name))


def _aliases(options: TaskOptions) -> tuple[str, ...]:
    given = options.get("alias", ())
    return tuple(map(task_name, (given,) if isinstance(given, str) else given))
