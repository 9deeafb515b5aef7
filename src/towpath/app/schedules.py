"""The verbs of schedules, and schedules that are declared beside their tasks."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, Unpack, overload

from towpath.app.checks import Defaults, EnqueueOptions, at_least_one, new_jobs
from towpath.app.context import Context
from towpath.app.tasks import Call, Task
from towpath.errors import Conflict, Invalid
from towpath.model.cron_words import words_of
from towpath.model.ids import uuid7
from towpath.model.instants import Duration, as_datetime, instant
from towpath.model.job import Job
from towpath.model.schedule import (
    CatchUp,
    Fire,
    Preview,
    Rule,
    Schedule,
    catch_up_of,
    name_of,
    next_fires,
    rule_of,
)
from towpath.operation import Operation
from towpath.store import schedules
from towpath.store.jobs import NewJob
from towpath.store.retention import clock
from towpath.store.schedules import NewSchedule, Put

if TYPE_CHECKING:
    from towpath.app.app import App

MOST_PREVIEWED: Final = 20  # fires of a rule

P = ParamSpec("P")
R = TypeVar("R")
NeedsNothing = TypeVar(
    "NeedsNothing", bound=Task[Callable[[], Any]] | Task[Callable[[Context], Any]]
)
"""A task that can be called without arguments."""


class Declaration:
    """Declares that a task is enqueued by a rule; its arguments follow the task."""

    def __init__(self, declare: Callable[[Task[Any], Call], None]) -> None:
        self._declare = declare

    @overload
    def __call__(self, task: NeedsNothing, /) -> NeedsNothing: ...

    @overload
    def __call__(
        self,
        task: Task[Callable[Concatenate[Context, P], R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Task[Callable[Concatenate[Context, P], R]]: ...

    @overload
    def __call__(
        self, task: Task[Callable[P, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Task[Callable[P, R]]: ...

    def __call__(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Remember the schedule until it is stored, and return the task."""
        self._declare(task, (args, kwargs))
        return task


class Schedules:
    """Rules that enqueue repeatedly, while any process runs upkeep."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._defaults = Defaults.of(app.settings)
        self._declared: dict[str, NewSchedule] = {}

    async def aset(
        self,
        name: str,
        *,
        topic: str,
        payload: object = None,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        catch_up: CatchUp = "latest",
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Schedule:
        """Store a schedule, or change the one with this name.

        If the rule stays the same, so does its next fire; a paused schedule stays paused. Fires
        that are due under the old rule are enqueued first, with the old payload and options; if
        they cannot be stored now, as in a full topic, later. Options are those of `enqueue`.
        """
        job = self._job(topic, payload, options)
        new = _new(name, rule_of(cron, every, tz), catch_up, job)
        return (await self._app.arun(self._put([new]), connection))[0].schedule

    async def apause(self, name: str) -> None:
        """Stop firing until it is resumed. Fires during the pause are not caught up."""
        await self._app.arun(schedules.pause(name_of(name)))

    async def aresume(self, name: str) -> None:
        """Fire again, from now on."""
        await self._app.arun(schedules.resume(name_of(name)))

    async def arun(self, name: str) -> Job:
        """Enqueue its job now, also if it is paused; its next fire does not change."""
        return await self._app.arun(schedules.run(name_of(name), uuid7(), self._app.storing.each))

    async def adelete(self, name: str) -> None:
        """Delete a schedule, not its jobs. If it is declared in code, a worker stores it again."""
        await self._app.arun(schedules.delete(name_of(name)))

    async def aget(self, name: str) -> Schedule:
        """Read a schedule: its rule, its next fire, and the error of its last fire."""
        return await self._app.arun(schedules.get(name_of(name)))

    async def ahistory(self, name: str, most: int = 20) -> Sequence[Fire]:
        """Read the last fires of a schedule, the newest first, with the states of their jobs."""
        return await self._app.arun(schedules.history(name_of(name), at_least_one(most, "most")))

    async def apreview(
        self,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        since: datetime | None = None,
        count: int = 5,
    ) -> Preview:
        """Say when a rule would fire next, and in words; nothing is stored."""
        rule = rule_of(cron, every, tz)
        now = await self._app.arun(clock()) if since is None else instant(since, "since")
        return _preview(rule, now, at_least_one(count, "count"))

    def is_declared(self, name: str) -> bool | None:
        """Say whether the code of this process declares a schedule; None if it declares none."""
        return name in self._declared if self._declared else None

    async def adeclare(self) -> None:
        """Store the schedules that `app.schedule` has declared; a worker calls this at its start.

        A schedule that is removed from the code stays until it is deleted by name: during a deploy
        old and new code run at the same time.
        """
        unstored = self._declared.keys() - self._app.declared
        if unstored:
            stored = await self._app.arun(self._put(self._declared[name] for name in unstored))
            self._app.declared.update(put.schedule.name for put in stored)

    def declaration(
        self, name: str | None, rule: Rule, catch_up: CatchUp, options: EnqueueOptions
    ) -> Declaration:
        """Return the decorator that declares schedules of a rule."""

        def declare(task: Task[Any], call: Call) -> None:
            job = self._job(task.topic, *task.as_enqueued(call, options))
            shares = len(self._app.tasks.of(task.topic)) > 1
            new = _new(name or (task.name if shares else task.topic), rule, catch_up, job)
            known = self._declared.get(new.name)
            if known is not None and known.columns() != new.columns():
                msg = f"another schedule is named {new.name!r} already; pass `name=`"
                raise Conflict(msg)
            self._declared[new.name] = new
            self._app.declared.discard(new.name)

        return Declaration(declare)

    def _put(self, new: Iterable[NewSchedule]) -> Operation[Sequence[Put]]:
        return schedules.put_all(tuple(new), self._app.storing.each)

    def _job(self, topic: str, payload: object, options: EnqueueOptions) -> NewJob:
        own = sorted({"id", "delay", "run_at", "expires_at", "unique", "after"} & options.keys())
        if own:
            names = ", ".join(f"`{name}`" for name in own)
            msg = f"a schedule cannot have {names}: its rule decides when its jobs run"
            raise Invalid(msg)
        return new_jobs(topic, (payload,), options, self._defaults)[0]

    async def alist(self) -> list[Schedule]:
        """Read every schedule, by name."""
        return await self._app.arun(schedules.list_schedules())

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def set(
        self,
        name: str,
        *,
        topic: str,
        payload: object = None,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        catch_up: CatchUp = "latest",
        connection: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Schedule:
        """Store a schedule, or change the one with this name.

        If the rule stays the same, so does its next fire; a paused schedule stays paused. Fires
        that are due under the old rule are enqueued first, with the old payload and options; if
        they cannot be stored now, as in a full topic, later. Options are those of `enqueue`.
        """
        job = self._job(topic, payload, options)
        new = _new(name, rule_of(cron, every, tz), catch_up, job)
        return self._app.run(self._put([new]), connection)[0].schedule

    def pause(self, name: str) -> None:
        """Stop firing until it is resumed. Fires during the pause are not caught up."""
        self._app.run(schedules.pause(name_of(name)))

    def resume(self, name: str) -> None:
        """Fire again, from now on."""
        self._app.run(schedules.resume(name_of(name)))

    def run(self, name: str) -> Job:
        """Enqueue its job now, also if it is paused; its next fire does not change."""
        return self._app.run(schedules.run(name_of(name), uuid7(), self._app.storing.each))

    def delete(self, name: str) -> None:
        """Delete a schedule, not its jobs. If it is declared in code, a worker stores it again."""
        self._app.run(schedules.delete(name_of(name)))

    def get(self, name: str) -> Schedule:
        """Read a schedule: its rule, its next fire, and the error of its last fire."""
        return self._app.run(schedules.get(name_of(name)))

    def history(self, name: str, most: int = 20) -> Sequence[Fire]:
        """Read the last fires of a schedule, the newest first, with the states of their jobs."""
        return self._app.run(schedules.history(name_of(name), at_least_one(most, "most")))

    def preview(
        self,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        since: datetime | None = None,
        count: int = 5,
    ) -> Preview:
        """Say when a rule would fire next, and in words; nothing is stored."""
        rule = rule_of(cron, every, tz)
        now = self._app.run(clock()) if since is None else instant(since, "since")
        return _preview(rule, now, at_least_one(count, "count"))

    def declare(self) -> None:
        """Store the schedules that `app.schedule` has declared; a worker calls this at its start.

        A schedule that is removed from the code stays until it is deleted by name: during a deploy
        old and new code run at the same time.
        """
        unstored = self._declared.keys() - self._app.declared
        if unstored:
            stored = self._app.run(self._put(self._declared[name] for name in unstored))
            self._app.declared.update(put.schedule.name for put in stored)

    def list(self) -> list[Schedule]:
        """Read every schedule, by name."""
        return self._app.run(schedules.list_schedules())


def _preview(rule: Rule, since: int, count: int) -> Preview:
    fires = next_fires(rule, since, min(count, MOST_PREVIEWED))
    return Preview(fires=[as_datetime(at) for at in fires], words=words_of(rule))


def _new(name: str, rule: Rule, catch_up: CatchUp, job: NewJob) -> NewSchedule:
    return NewSchedule(name=name_of(name), rule=rule, catch_up=catch_up_of(catch_up), job=job)
