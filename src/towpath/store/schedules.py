"""Schedules: stored rules, and their fires. No leader: any process makes a fire, and each once.

What is due is read and planned outside of any transaction. Then one transaction stores the jobs and
moves the schedule on to its next fire, unless the schedule was changed or fired meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from towpath.errors import Conflict, JobExists, LimitReached, NotFound, TowpathError
from towpath.model.instants import as_datetime, as_timedelta
from towpath.model.job import Job, Options
from towpath.model.schedule import (
    Cron,
    Due,
    Every,
    Fire,
    Rule,
    Schedule,
    catch_up_of,
    due,
    fire_id,
    last_fires,
    next_fire,
    rule_of,
)
from towpath.model.states import State
from towpath.operation import Answer, Changed, Mode, Operation, Steps, answered
from towpath.statement import Statements, no_rows, rows
from towpath.store import lifecycle
from towpath.store.jobs import NewJob, are_keyed
from towpath.store.lifecycle import LifecycleEvent
from towpath.store.rows import uuid_from

FIRE_AT_ONCE: Final = 100  # schedules
CHANGES: Final = 20  # of a schedule, behind which the jobs of its fires are still found
TRIES: Final = 5  # to change a schedule while others delete it
_ITS_OWN: Final = frozenset({"id", "run_at", "delay"})  # of each fire

Store: TypeAlias = Callable[[list[NewJob]], Operation[list[Answer[Job]]]]
"""How jobs are stored, within the limits of the settings."""


class NewSchedule(Struct, frozen=True, kw_only=True):
    """A schedule to store."""

    name: str
    rule: Rule
    catch_up: str
    job: NewJob  # what is enqueued, but for its id and its time

    def columns(self) -> dict[str, Any]:
        """Return the parameters of its statement."""
        common = {key: value for key, value in asdict(self.job).items() if key not in _ITS_OWN}
        return {
            "name": self.name,
            "topic": self.job.topic,
            "cron": self.rule.text if isinstance(self.rule, Cron) else None,
            "tz": self.rule.tz if isinstance(self.rule, Cron) else None,
            "every": self.rule.us if isinstance(self.rule, Every) else None,
            "catch_up": self.catch_up,
            "job": msgspec.json.encode(common).decode(),
        }


class ScheduleRow(NamedTuple):
    """A schedule as it is stored."""

    name: str
    topic: str
    cron: str | None
    tz: str | None
    every: int | None
    catch_up: str
    job: str
    paused: bool | int
    next_at: int | None
    last_at: int | None
    error: str | None
    epoch: int
    now: int  # when it was read

    def rule(self) -> Rule:
        """Return its rule, or say why it cannot be read here."""
        every = None if self.every is None else as_timedelta(self.every)
        return rule_of(self.cron, every, self.tz)

    def new_job(self, id: UUID, run_at: int | None) -> NewJob:
        """Return a job of it."""
        return _new_job(self.job, id, run_at)

    @property
    def is_due(self) -> bool:
        """Whether a fire of it has not been made yet."""
        return self.next_at is not None and self.next_at <= self.now

    def next_after_now(self, rule: Rule) -> int | None:
        """Return its next fire."""
        return None if self.paused else next_fire(rule, self.now, self.last_at)

    def schedule(self) -> Schedule:
        """Return it as callers see it."""
        stored = msgspec.json.decode(self.job)
        return Schedule(
            name=self.name,
            topic=self.topic,
            cron=self.cron,
            tz=self.tz,
            every=None if self.every is None else as_timedelta(self.every),
            catch_up=self.catch_up,
            body=stored["body"],
            encoding=stored["encoding"],
            paused=bool(self.paused),
            next_at=None if self.next_at is None else as_datetime(self.next_at),
            last_at=None if self.last_at is None else as_datetime(self.last_at),
            error=self.error,
            priority=stored.get("priority", 0),
            ttr=as_timedelta(stored.get("ttr", 0)),
            key=stored.get("key"),
            options=_options_of(stored.get("options")),
        )


def _options_of(stored: object) -> Options:
    try:
        return Options() if stored is None else msgspec.convert(stored, Options)
    except msgspec.ValidationError:  # of a newer version
        return Options()


def _new_job(text: str, id: UUID, run_at: int | None) -> NewJob:
    stored = msgspec.json.decode(text)
    return msgspec.convert({**stored, "id": id, "run_at": run_at}, NewJob)


class Owed(NamedTuple):
    """A fire that was due when the rule of its schedule changed, and could not be stored then."""

    schedule: str
    fire_at: int
    epoch: int  # of the schedule before the change
    topic: str
    job: str

    def new_job(self) -> NewJob:
        """Return its job, as the schedule said before the change."""
        return _new_job(self.job, fire_id(self.schedule, self.epoch, self.fire_at), self.fire_at)


class NextFire(NamedTuple):
    """The microseconds until a schedule fires."""

    wait: int | None


class JobState(NamedTuple):
    """Where the ticket of a job lies."""

    id: UUID | bytes | str
    state: str


class sql(Statements):
    """The statements of schedules.sql."""

    add = rows(str)
    change = no_rows()
    pause = no_rows()
    resume = no_rows()
    delete = rows(str)
    report = rows(str)
    move_near = rows(str)
    get = rows(ScheduleRow)
    lock = rows(ScheduleRow)
    list = rows(ScheduleRow)
    due = rows(ScheduleRow)
    next_due = rows(NextFire)
    claim = rows(str)
    advance = no_rows()
    owe = no_rows()
    owed = rows(Owed)
    claim_owed = rows(int)
    states_by_id = rows(JobState)
    forget_owed = no_rows()


class FirePlan(Struct, frozen=True):
    """What is to become of a schedule that is due."""

    found: ScheduleRow
    due: Due
    jobs: list[NewJob]

    @property
    def first_at(self) -> int:
        """When it was to fire: a fire from then on that becomes no job is missed."""
        return self.found.next_at or 0

    @property
    def last_at(self) -> int | None:
        """When it has fired last, once this is done."""
        return self.due.fires[-1] if self.due.fires else self.found.last_at

    def as_item(self) -> dict[str, Any]:
        """Return the parameters of its statements."""
        found = self.found
        return {
            "name": found.name,
            "epoch": found.epoch,
            "was": found.next_at,
            "next_at": self.due.next_at,
            "last_at": self.last_at,
        }


class Fired(Struct, frozen=True):
    """What has become of a plan."""

    plan: FirePlan
    topics: set[str] = set()
    error: TowpathError | None = None  # why its jobs were not stored; it remains due
    left: Sequence[NewJob] = ()  # the jobs that were not


def planned(found: ScheduleRow) -> FirePlan:
    """Plan the fires of a schedule that is due. What this raises is an error of that schedule."""
    if found.next_at is None:
        msg = f"schedule {found.name!r} is not due"
        raise Conflict(msg)
    fires = due(found.rule(), catch_up_of(found.catch_up), found.next_at, found.now)
    jobs = [found.new_job(fire_id(found.name, found.epoch, at), at) for at in fires.fires]
    return FirePlan(found, fires, jobs)


def look(after: ScheduleRow | None) -> Operation[list[ScheduleRow]]:
    """Read some of the schedules that are due, beginning after one of them."""

    def steps() -> Steps[list[ScheduleRow]]:
        at, name = (after.next_at, after.name) if after else (0, "")
        return (yield from sql.due(at=at, name=name, limit=FIRE_AT_ONCE))

    return Operation("look_for_schedules", steps, Mode.READ, autocommit=True)


def next_due() -> Operation[int | None]:
    """Return the microseconds until something fires that is not due yet."""

    def steps() -> Steps[int | None]:
        [found] = yield from sql.next_due()
        return found.wait

    return Operation("next_fire", steps, Mode.READ, autocommit=True)


def fire(plans: Sequence[FirePlan], store: Store) -> Operation[list[Fired]]:
    """Store the jobs of these fires and move on to the next ones: both, or neither.

    A schedule that another process has fired or changed meanwhile is left to it.
    """

    def steps() -> Steps[Changed[list[Fired]]]:
        claimed = set((yield from sql.claim([plan.as_item() for plan in plans])))
        fired = yield from _stored([p for p in plans if p.found.name in claimed], store)
        moved = [each.plan.as_item() for each in fired if each.error is None]
        if moved:
            yield sql.advance(moved)
        yield from _post_missed([each.plan for each in fired if each.error is None])
        return Changed(fired, {topic for each in fired for topic in each.topics}, appends=True)

    locks = are_keyed(job for plan in plans for job in plan.jobs)
    return Operation("fire", steps, locks=locks)


def _post_missed(plans: Sequence[FirePlan]) -> Steps[None]:
    yield from lifecycle.post(
        [
            _event("missed", each.found.name, each.found.topic, since=as_datetime(each.first_at))
            for each in plans
            if each.first_at not in each.due.fires
        ]
    )


def _event(what: str, name: str, topic: str, **more: Any) -> LifecycleEvent:
    return LifecycleEvent(f"schedule.{what}", {"schedule": name, "topic": topic, **more})


def _stored(plans: Sequence[FirePlan], store: Store) -> Steps[list[Fired]]:
    """Store the jobs of all plans together, or where a limit forbids that, of each by itself."""
    new = [job for plan in plans for job in plan.jobs]
    answers: list[Answer[Job]] = []
    try:
        if new:
            answers = yield from store(new).inside()
    except LimitReached as error:  # before anything was stored
        if len(plans) == 1:
            return [Fired(plans[0], error=error, left=plans[0].jobs)]
        alone: list[Fired] = []
        for plan in plans:
            alone += yield from _stored([plan], store)
        return alone
    lost = {job.id: each for job, each in zip(new, answers, strict=True) if _is_lost(each)}
    fired: list[Fired] = []
    for plan in plans:
        left = [job for job in plan.jobs if job.id in lost]
        why = lost[left[0].id] if left else None
        fired.append(Fired(plan, {job.topic for job in plan.jobs}, why, left))
    return fired


def _is_lost(answer: Answer[Job]) -> TypeGuard[Conflict]:
    """Say whether a job was not stored; one that stands already with other content was."""
    return isinstance(answer, Conflict) and not isinstance(answer, JobExists)


def owed(after: Owed | None) -> Operation[list[Owed]]:
    """Read some of the fires that are owed, beginning after one of them."""

    def steps() -> Steps[list[Owed]]:
        name, at = (after.schedule, after.fire_at) if after else ("", 0)
        return (yield from sql.owed(schedule=name, fire_at=at, limit=FIRE_AT_ONCE))

    return Operation("look_for_owed_fires", steps, Mode.READ, autocommit=True)


def fire_owed(fires: Sequence[Owed], store: Store) -> Operation[set[str]]:
    """Store the jobs of fires that are owed, as far as limits allow; return their topics.

    One at a time: of several, a topic that is almost full takes the first.
    """

    def steps() -> Steps[Changed[set[str]]]:
        topics: set[str] = set()
        full: set[str] = set()
        for each in fires:
            place = {"schedule": each.schedule, "fire_at": each.fire_at}
            if each.topic in full or not (yield from sql.claim_owed(**place)):
                continue
            try:
                [answer] = yield from store([each.new_job()]).inside()
            except LimitReached:  # before anything was stored
                full.add(each.topic)
                continue
            if not _is_lost(answer):
                yield sql.forget_owed(**place)
                topics.add(each.topic)
        return Changed(topics, topics, appends=True)

    return Operation("fire_owed", steps, locks=True)


class Move(Struct, frozen=True):
    """A schedule whose next fire comes nearer."""

    found: ScheduleRow
    next_at: int


def moved_near(found: ScheduleRow) -> Move | None:
    """Say when it fires next, if it lies too far ahead since the clock was set back."""
    if found.next_at is None:
        return None
    next_at = found.next_after_now(found.rule())
    return None if next_at is None or next_at >= found.next_at else Move(found, next_at)


def find_all() -> Operation[list[ScheduleRow]]:
    """Read every schedule as it is stored."""
    return Operation("find_schedules", lambda: iter(sql.list()), Mode.SCAN, autocommit=True)


def move_near(moves: Sequence[Move]) -> Operation[int]:
    """Bring next fires nearer, unless a schedule has fired or changed meanwhile."""

    def steps() -> Steps[int]:
        moved = 0
        for move in moves:
            name, epoch, was = move.found.name, move.found.epoch, move.found.next_at
            found = sql.move_near(name=name, epoch=epoch, was=was, next_at=move.next_at)
            moved += len((yield from found))
        return moved

    return Operation("move_schedules", steps)


def report(found: ScheduleRow, error: str) -> Operation[None]:
    """Remember why a schedule could not fire."""

    def steps() -> Steps[None]:
        if (yield from sql.report(name=found.name, epoch=found.epoch, error=error)):
            yield from lifecycle.post([_event("failed", found.name, found.topic, error=error)])

    return Operation("report", steps)


class Put(Struct, frozen=True):
    """A schedule as it stands now, and the topics in which it has just fired."""

    schedule: Schedule
    topics: set[str]


def put_all(new: Sequence[NewSchedule], store: Store) -> Operation[Sequence[Put]]:
    """Store schedules, or change those that stand under their names.

    One whose rule stays the same keeps its next fire, and a paused one stays paused. What is due
    under an old rule fires before the new one takes its place, as the schedule said before; what
    cannot be stored then is owed, and upkeep makes it as soon as that can be.
    """

    def steps() -> Steps[Changed[Sequence[Put]]]:
        done: list[Put] = []
        for each in sorted(new, key=lambda new: new.name):  # in one order, against deadlocks
            done += [(yield from _put(each, store))]
        return Changed(done, {topic for put in done for topic in put.topics})

    return Operation("set_schedules", steps, locks=True)


def _put(new: NewSchedule, store: Store) -> Steps[Put]:
    columns = new.columns()
    added, found = yield from _added(columns)
    topics: set[str] = set()
    same_rule = not added and all(columns[c] == getattr(found, c) for c in ("cron", "tz", "every"))
    if added or any(value != getattr(found, column) for column, value in columns.items()):
        last_at, next_at, error = found.last_at, found.next_at, None
        if not same_rule:
            plan = _due_before(found)
            if plan is not None:
                topics, error = yield from _fired_before(plan, store)
                last_at = plan.last_at
            if plan is not None or not found.is_due:
                next_at = found._replace(last_at=last_at).next_after_now(new.rule)
        yield sql.change(**columns, next_at=next_at, last_at=last_at, error=error)
        what = "added" if added else "changed"
        yield from lifecycle.post([_event(what, new.name, new.job.topic)])
        [found] = yield from sql.get(name=new.name)
    return Put(found.schedule(), topics)


def _added(columns: dict[str, Any]) -> Steps[tuple[bool, ScheduleRow]]:
    for _ in range(TRIES):
        added = yield from sql.add(**columns)
        found = yield from sql.lock(name=columns["name"])
        if found:
            return bool(added), found[0]
    msg = f"schedule {columns['name']!r} is deleted again and again; try again"
    raise Conflict(msg)


def _due_before(found: ScheduleRow) -> FirePlan | None:
    """Return what is due of a schedule that is about to change; None if it cannot be read here.

    Then it remains due, and its fire is the first one of the new rule.
    """
    try:
        return planned(found) if found.is_due else None
    except Exception:  # noqa: BLE001 - its rule is about to be replaced
        return None


def _fired_before(plan: FirePlan, store: Store) -> Steps[tuple[set[str], str | None]]:
    """Fire what is due of a schedule that is about to change, or owe it and say why."""
    [fired] = yield from _stored([plan], store)
    yield from _post_missed([plan])
    if fired.error is None:
        return fired.topics, None
    found = plan.found
    owed = {"schedule": found.name, "epoch": found.epoch, "job": found.job}
    yield sql.owe([{**owed, "fire_at": job.run_at, "topic": job.topic} for job in fired.left])
    return fired.topics, f"{type(fired.error).__name__}: {fired.error}"


def pause(name: str) -> Operation[None]:
    """Fire no more until it is resumed; what is due or owed is forgotten."""

    def steps() -> Steps[None]:
        found = _one(name, (yield from sql.lock(name=name)))
        if not found.paused:
            yield sql.pause(name=name)
            yield from lifecycle.post([_event("paused", name, found.topic)])

    return Operation("pause_schedule", steps)


def resume(name: str) -> Operation[None]:
    """Fire again, from now on."""

    def steps() -> Steps[None]:
        found = _one(name, (yield from sql.lock(name=name)))
        if found.paused:
            next_at = found._replace(paused=False).next_after_now(found.rule())
            yield sql.resume(name=name, next_at=next_at)
            yield from lifecycle.post([_event("resumed", name, found.topic)])

    return Operation("resume_schedule", steps)


def run(name: str, id: UUID, store: Store) -> Operation[Job]:
    """Enqueue its job now; its next fire stays where it is."""

    def steps() -> Steps[Changed[Job]]:
        found = _one(name, (yield from sql.get(name=name)))
        [answer] = yield from store([found.new_job(id, None)]).inside()
        job = answered(answer)
        return Changed(job, [job.topic])

    return Operation("run_schedule", steps, locks=True)


def delete(name: str) -> Operation[None]:
    """Forget a schedule; the jobs that it has enqueued stay."""

    def steps() -> Steps[None]:
        if not (yield from _deleted(name)):
            raise _missing(name)

    def again() -> Steps[None]:
        yield from _deleted(name)

    return Operation("delete_schedule", steps, retry=again)


def _deleted(name: str) -> Steps[bool]:
    topics = yield from sql.delete(name=name)
    yield from lifecycle.post([_event("deleted", name, topic) for topic in topics])
    return bool(topics)


def get(name: str) -> Operation[Schedule]:
    """Read one schedule."""

    def steps() -> Steps[Schedule]:
        return _one(name, (yield from sql.get(name=name))).schedule()

    return Operation("get_schedule", steps, Mode.READ, autocommit=True)


def history(name: str, most: int) -> Operation[list[Fire]]:
    """Read the last fires of a schedule, the newest first, with the states of their jobs.

    The id of a fire's job depends on the epoch that the schedule had: each fire and each change
    raised it by one. So some epochs are tried; after many changes a fire may not be found.
    """

    def steps() -> Steps[list[Fire]]:
        found = _one(name, (yield from sql.get(name=name)))
        if found.last_at is None:
            return []
        fires = last_fires(found.rule(), found.last_at, most)
        ids = {
            fire_id(name, epoch, at): at
            for nth, at in enumerate(fires)
            for epoch in range(max(0, found.epoch - 1 - nth - CHANGES), found.epoch)
        }
        jobs = yield from sql.states_by_id([{"id": id} for id in ids])
        known = {ids[uuid_from(row.id)]: row for row in jobs}
        while len(fires) >= found.epoch and fires[-1] not in known:
            fires.pop()  # from before it was made, which raised its epoch as each fire does
        return [
            Fire(
                at=as_datetime(at),
                job=uuid_from(known[at].id) if at in known else None,
                state=State(known[at].state) if at in known else None,
            )
            for at in fires
        ]

    return Operation("schedule_history", steps, Mode.SCAN, autocommit=True)


def list_schedules() -> Operation[list[Schedule]]:
    """Read every schedule, by name."""

    def steps() -> Steps[list[Schedule]]:
        return [found.schedule() for found in (yield from sql.list())]

    return Operation("list_schedules", steps, Mode.SCAN, autocommit=True)


def _one(name: str, found: Sequence[ScheduleRow]) -> ScheduleRow:
    if not found:
        raise _missing(name)
    return found[0]


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r}")
