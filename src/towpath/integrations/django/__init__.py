"""A backend for Django's tasks, on Django's own database.

    TASKS = {"default": {"BACKEND": "towpath.integrations.django.TowpathBackend"}}
    INSTALLED_APPS = [..., "towpath.integrations.django"]

Then `manage.py migrate` also creates Towpath's tables, and `manage.py towpath_worker` runs the
tasks.

Inside `transaction.atomic()` a task is enqueued on Django's own connection: it is stored if the
transaction commits, and only then. So `transaction.on_commit` is not needed.
"""

import contextlib
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from urllib.parse import quote, urlencode
from uuid import UUID

import django
import msgspec
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import import_string
from msgspec import Struct

from towpath.app.app import App
from towpath.app.context import Bury, Cancel, Context
from towpath.app.tasks import CallOptions
from towpath.app.tasks import Task as TowpathTask
from towpath.errors import Invalid, NotFound
from towpath.model.ids import uuid7
from towpath.model.job import Failure, Job
from towpath.model.states import State, Status
from towpath.model.topics import checked

# Django has tasks since 6.0; before, the package django-tasks has the same under its own name.
# Its types take no parameters, so generic types are in quotes here.
if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError, TaskResult
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    from django_tasks import TaskContext, TaskResultStatus, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError, TaskResult
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = ["TowpathBackend", "database_url", "task_backends"]

P = ParamSpec("P")
R = TypeVar("R")

DJANGO_MOST_PRIORITY: Final = 100  # in Django a higher priority is more urgent
STATUS: Final = {
    Status.PENDING: TaskResultStatus.READY,
    Status.PROCESSING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}


class DjangoCall(Struct, kw_only=True):
    """A stored call of a Django task."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str


class TowpathBackend(BaseTaskBackend):
    """Stores tasks as jobs. A queue is the topic of the same name.

    OPTIONS takes `database`, if it is not the default one, and any setting of an App:
    `{"database": "jobs", "max_retries": 5}`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._settings = dict(self.options)
        self._database: str = self._settings.pop("database", DEFAULT_DB_ALIAS)

    @property
    def app(self) -> App:
        """The app that stores the tasks as jobs; it may have other tasks too."""
        app = _app(database_url(self._database), tuple(sorted(self._settings.items())))
        for queue in self.queues - {*app.tasks}:
            _runner(app, queue)
        return app

    def migrate(self, database: str) -> None:
        """Create or update Towpath's tables, if they are in this database of Django."""
        if database != self._database:
            return
        given: dict[str, Any] = {**self._settings, "migrate": True}
        # A separate app that is closed at once: the database of a test may be dropped soon.
        with (
            contextlib.suppress(ImproperlyConfigured),  # tests in memory need no tables
            App(database_url(database), **given) as app,
        ):
            app.migrate()

    def flush(self, database: str) -> None:
        """Delete all jobs, and close the app: the database of a test may be dropped soon."""
        if database != self._database:
            return
        with contextlib.suppress(ImproperlyConfigured):  # tests in memory have no tables
            app = self.app
            app.delete_everything()
            app.close()
            for key in [key for key, each in _apps.items() if each is app]:
                del _apps[key]

    def enqueue(
        self, task: "Task[P, R]", args: list[Any], kwargs: dict[str, Any]
    ) -> "TaskResult[P, R]":
        """Store a call, in the transaction of `atomic()` if there is one."""
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id=str(uuid7()),
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,  # TaskResult converts them to JSON types, or raises
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        options: CallOptions = {
            "id": UUID(result.id),
            "priority": DJANGO_MOST_PRIORITY - task.priority,
            "connection": self._transaction(),
        }
        if task.run_after is not None:
            options["run_at"] = _aware(task.run_after)
        job = _runner(self.app, task.queue_name).using(**options).enqueue(
            task=task.module_path, args=result.args, kwargs=result.kwargs, backend=self.alias
        )  # fmt: skip
        _set(result, enqueued_at=_local(job.created_at))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> "TaskResult[..., Any]":
        """Read the result of a call, as the transaction of `atomic()` sees it."""
        connection = self._transaction()
        try:
            job = self.app.jobs.get(result_id, connection=connection)
            call = msgspec.convert(job.payload, DjangoCall)
        except (NotFound, Invalid, msgspec.ValidationError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        failures = self.app.jobs.failures(job, connection=connection) if _tries(job) else []
        return result_of(job, call, failures)

    def check(self, **kwargs: Any) -> list[CheckMessage]:  # noqa: ARG002 - Django's
        """Report settings that cannot work."""
        problems: list[CheckMessage] = []
        for queue in sorted(self.queues):
            try:
                checked(queue)
            except Invalid as error:
                problems.append(Error(f"TASKS, QUEUES: {error}", id="towpath.E001"))
        try:
            database_url(self._database)
        except ImproperlyConfigured as error:
            problems.append(Error(f"TASKS, database: {error}", id="towpath.E002"))
        return problems

    def _transaction(self) -> object:
        connection = connections[self._database]
        return connection if connection.in_atomic_block else None


def database_url(alias: str = DEFAULT_DB_ALIAS) -> str:
    """Return the URL of one of Django's databases: `App(database_url())` works on it."""
    connection = connections[alias]
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        name = str(given["NAME"])
        if name == ":memory:" or name.startswith("file:"):
            msg = (
                f"the SQLite database {alias!r} is in memory, where no worker can reach its jobs; "
                "use a file (in tests by its TEST setting), or another task backend for tests"
            )
            raise ImproperlyConfigured(msg)
        return f"sqlite:///{quote(str(Path(name).absolute()))}"
    if connection.vendor == "postgresql":
        return f"postgresql://?{urlencode(_conninfo(given), quote_via=quote)}"
    msg = f"database {alias!r} is neither SQLite nor PostgreSQL; use one of these"
    raise ImproperlyConfigured(msg)


def _conninfo(given: dict[str, Any]) -> dict[str, str]:
    from psycopg import pq  # noqa: PLC0415 - an extra that SQLite does not need

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    wanted = {"dbname": given["NAME"], "user": given["USER"], "password": given["PASSWORD"]}
    wanted |= {"host": given["HOST"], "port": given["PORT"], **given["OPTIONS"]}
    return {key: str(value) for key, value in wanted.items() if key in known and value}


_Key = tuple[str, tuple[tuple[str, Any], ...]]
_apps: Final[dict[_Key, App]] = {}  # Django makes a backend for each thread; they share one app


def _app(url: str, given: tuple[tuple[str, Any], ...]) -> App:
    return _apps.get((url, given)) or _apps.setdefault((url, given), App(url, **dict(given)))


def _runner(app: App, queue: str) -> TowpathTask[Any]:
    return app.tasks.find(queue) or app.tasks.add(_run, {"name": queue, "topic": queue})


def _run(ctx: Context, task: str, args: list[Any], kwargs: dict[str, Any], backend: str) -> Any:
    """Run a call; before and after, close old connections as Django does for a request."""
    close_old_connections()
    try:
        call = DjangoCall(task=task, args=args, kwargs=kwargs, backend=backend)
        failures = ctx.app.jobs.failures(ctx.job) if _tries(ctx.job) > 1 else []
        return _run_between_signals(ctx, result_of(ctx.job, call, failures))
    finally:
        close_old_connections()


def _run_between_signals(ctx: Context, result: "TaskResult[..., Any]") -> Any:
    sender = type(task_backends[result.backend])
    task_started.send(sender, task_result=result)
    given = (TaskContext(task_result=result),) if result.task.takes_context else ()
    try:
        returned = result.task.call(*given, *result.args, **result.kwargs)
    except Exception as error:
        last = ctx.job.retries + 1 >= ctx.job.options.max_retries
        if last or isinstance(error, Bury | Cancel):
            _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            task_finished.send(sender, task_result=result)
        raise
    _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now())
    _set(result, _return_value=returned)
    task_finished.send(sender, task_result=result)
    return returned


def result_of(job: Job, call: DjangoCall, failures: list[Failure]) -> "TaskResult[..., Any]":
    """Return the state of a job as a TaskResult of Django."""
    finished = job.finished_at
    began = job.reserved_at or (finished - job.duration if finished and job.duration else finished)
    if failures and job.state is State.BURIED:
        finished = failures[-1].failed_at
    # Of a failed try only the end is stored.
    tried = [failure.failed_at for failure in failures] + ([began] if began else [])
    result: TaskResult[..., Any] = TaskResult(
        task=import_string(call.task).using(
            priority=DJANGO_MOST_PRIORITY - job.priority, queue_name=job.topic, backend=call.backend
        ),
        id=str(job.id),
        status=STATUS[job.status],
        enqueued_at=_local(job.created_at),
        started_at=_local(tried[0]) if tried else None,
        finished_at=_local(finished) if finished else None,
        last_attempted_at=_local(tried[-1]) if tried else None,
        args=call.args,
        kwargs=call.kwargs,
        backend=call.backend,
        errors=[_error(failure) for failure in failures],
        worker_ids=["towpath"] * _tries(job),  # only the number of workers is known
    )
    _set(result, _return_value=job.returned)
    return result


def _tries(job: Job) -> int:
    """Count how often a job was started."""
    running = job.state in {State.RESERVED, State.COMPLETED}
    return job.retries + job.crashes + job.timeouts + running


def _error(failure: Failure) -> TaskError:
    """Find the class of an error in the last lines of its traceback, which name it in full."""
    name = re.escape(failure.error.partition(":")[0])
    found = re.findall(rf"^((?:[\w<>]+\.)*{name})(?::|$)", failure.traceback or "", re.MULTILINE)
    path = found[-1] if found else "towpath.errors.JobFailed"
    return TaskError(
        exception_class_path=path if "." in path else f"builtins.{path}",
        traceback=failure.traceback or failure.error,
    )


def _set(result: "TaskResult[..., Any]", **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # frozen, but Django's own backends do the same


def _aware(at: datetime) -> datetime:
    return timezone.make_aware(at) if timezone.is_naive(at) else at


def _local(at: datetime) -> datetime:
    return at if settings.USE_TZ else timezone.make_naive(at)
