"""The verbs of schedules, and those that are declared beside their tasks."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from towpath.app.checks import Defaults, EnqueueOptions, new_jobs
from towpath.app.tasks import AsyncTask, BlockingTask, Call, Task
from towpath.errors import Conflict, Invalid
from towpath.model.ids import uuid7
from towpath.model.instants import Duration
from towpath.model.job import Job
from towpath.model.schedule import CatchUp, Rule, Schedule, catch_up_of, name_of, rule_of
from towpath.operation import Operation
from towpath.store import schedules
from towpath.store.jobs import NewJob
from towpath.store.schedules import NewSchedule, Put

if TYPE_CHECKING:
    from towpath.app.app import App

P = ParamSpec("P")
R = TypeVar("R")


class Declaration:
    """Says that a task is enqueued by a rule; arguments for it may follow the task."""

    def __init__(self, declare: Callable[[Task[..., Any], Call], None]) -> None:
        self._declare = declare

    @overload
    def __call__(
        self, task: AsyncTask[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncTask[P, R]: ...

    @overload
    def __call__(
        self, task: BlockingTask[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> BlockingTask[P, R]: ...

    def __call__(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Remember the schedule until it is stored, and return the task."""
        self._declare(task, (args, kwargs))
        return task


class Schedules:
    """Rules that enqueue again and again, wherever some process runs upkeep."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._defaults = Defaults.of(app.settings)
        self._declared: dict[str, NewSchedule] = {}
        self._unstored: set[str] = set()

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
        """Store a schedule, or change the one of this name.

        One whose rule stays the same keeps its next fire, and a paused one stays paused. What is
        due under the old rule is enqueued first, as it was set before; where that cannot be stored
        now, as in a full topic, it is as soon as it can be. Options are those of `enqueue`.
        """
        job = self._job(topic, payload, options)
        new = _new(name, rule_of(cron, every, tz), catch_up, job)
        return (await self._app.arun(self._put([new]), connection))[0].schedule

    async def apause(self, name: str) -> None:
        """Fire no more until it is resumed. What falls into the pause is not caught up."""
        await self._app.arun(schedules.pause(name_of(name)))

    async def aresume(self, name: str) -> None:
        """Fire again, from now on."""
        await self._app.arun(schedules.resume(name_of(name)))

    async def arun(self, name: str) -> Job:
        """Enqueue its job now, paused or not; its next fire stays where it is."""
        return await self._app.arun(schedules.run(name_of(name), uuid7(), self._app.storing.each))

    async def adelete(self, name: str) -> None:
        """Forget a schedule. Its jobs stay; one declared in code is back when a worker starts."""
        await self._app.arun(schedules.delete(name_of(name)))

    async def aget(self, name: str) -> Schedule:
        """Read a schedule: its rule, when it fires next, and why it could not."""
        return await self._app.arun(schedules.get(name_of(name)))

    async def adeclare(self) -> None:
        """Store what `app.schedule` has declared since the last time; a worker does so.

        A schedule that vanished from the code stays until it is deleted by name: during a deploy
        the old code and the new one run side by side.
        """
        if self._unstored:
            new = (self._declared[name] for name in self._unstored)
            stored = await self._app.arun(self._put(new))
            self._unstored.difference_update(put.schedule.name for put in stored)

    def declaration(
        self, name: str | None, rule: Rule, catch_up: CatchUp, options: EnqueueOptions
    ) -> Declaration:
        """Return what declares schedules of a rule."""

        def declare(task: Task[..., Any], call: Call) -> None:
            job = self._job(task.topic, *task.as_enqueued(call, options))
            new = _new(name or task.topic, rule, catch_up, job)
            known = self._declared.get(new.name)
            if known is not None and known.columns() != new.columns():
                msg = f"there is another schedule {new.name!r} already: give this one a name"
                raise Conflict(msg)
            self._declared[new.name] = new
            self._unstored.add(new.name)

        return Declaration(declare)

    def _put(self, new: Iterable[NewSchedule]) -> Operation[Sequence[Put]]:
        return schedules.put_all(tuple(new), self._app.storing.each)

    def _job(self, topic: str, payload: object, options: EnqueueOptions) -> NewJob:
        own = sorted({"id", "delay", "run_at", "expires_at", "unique", "after"} & options.keys())
        if own:
            msg = f"a schedule says itself when its jobs run: leave out {', '.join(own)}"
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
        """Store a schedule, or change the one of this name.

        One whose rule stays the same keeps its next fire, and a paused one stays paused. What is
        due under the old rule is enqueued first, as it was set before; where that cannot be stored
        now, as in a full topic, it is as soon as it can be. Options are those of `enqueue`.
        """
        job = self._job(topic, payload, options)
        new = _new(name, rule_of(cron, every, tz), catch_up, job)
        return self._app.run(self._put([new]), connection)[0].schedule

    def pause(self, name: str) -> None:
        """Fire no more until it is resumed. What falls into the pause is not caught up."""
        self._app.run(schedules.pause(name_of(name)))

    def resume(self, name: str) -> None:
        """Fire again, from now on."""
        self._app.run(schedules.resume(name_of(name)))

    def run(self, name: str) -> Job:
        """Enqueue its job now, paused or not; its next fire stays where it is."""
        return self._app.run(schedules.run(name_of(name), uuid7(), self._app.storing.each))

    def delete(self, name: str) -> None:
        """Forget a schedule. Its jobs stay; one declared in code is back when a worker starts."""
        self._app.run(schedules.delete(name_of(name)))

    def get(self, name: str) -> Schedule:
        """Read a schedule: its rule, when it fires next, and why it could not."""
        return self._app.run(schedules.get(name_of(name)))

    def declare(self) -> None:
        """Store what `app.schedule` has declared since the last time; a worker does so.

        A schedule that vanished from the code stays until it is deleted by name: during a deploy
        the old code and the new one run side by side.
        """
        if self._unstored:
            new = (self._declared[name] for name in self._unstored)
            stored = self._app.run(self._put(new))
            self._unstored.difference_update(put.schedule.name for put in stored)

    def list(self) -> list[Schedule]:
        """Read every schedule, by name."""
        return self._app.run(schedules.list_schedules())


def _new(name: str, rule: Rule, catch_up: CatchUp, job: NewJob) -> NewSchedule:
    return NewSchedule(name=name_of(name), rule=rule, catch_up=catch_up_of(catch_up), job=job)
