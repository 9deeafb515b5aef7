"""Random verbs, several workers, an advancing clock: against a small model of the promises."""

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from towpath import State
from towpath.errors import Conflict, KeyTaken, NotFound

_rounds = itertools.count(1)
PENDING = {State.READY, State.DELAYED}
UNFINISHED = {*PENDING, State.RESERVED}


@dataclass
class Modelled:
    """What we expect of one job."""

    id: object
    seq: int
    topic: str
    priority: int
    ttr: float
    max_retries: int
    key: str | None
    state: State
    run_at: float
    epoch: int = 0
    until: float = 0
    buried_no: int = 0
    counters: dict = field(
        default_factory=lambda: dict.fromkeys(("retries", "timeouts", "releases", "kicks"), 0)
    )
    cancel_requested: bool = False


class Lives(RuleBasedStateMachine):
    """The jobs of two topics, as the database has them and as they should be."""

    jobs = Bundle("jobs")
    leases = Bundle("leases")
    which = st.sampled_from([0, 1])

    def __init__(self, app, clock) -> None:
        super().__init__()
        self.app, self.clock = app, clock
        self.start = clock.us
        number = next(_rounds)
        self.topics = [f"r{number}a", f"r{number}b"]
        self.model: dict[object, Modelled] = {}
        self.paused: set[str] = set()
        self.burials = itertools.count(1)
        self.failed: set[tuple[object, int]] = set()

    @property
    def now(self) -> float:
        return (self.clock.us - self.start) / 1e6

    # ------------------------------------------------------------ rules

    @initialize(target=jobs, priorities=st.lists(st.integers(0, 3), min_size=4, max_size=8))
    def begin_with_some(self, priorities):
        for priority in priorities:
            self.enqueue(
                topic=priority % 2, priority=priority, delay=0, ttr=10, max_retries=2, key=None
            )
        return multiple(*self.model)

    @initialize(target=leases, topic=which)
    def begin_with_leases(self, topic):
        return self.reserve([topic], 3)

    @rule(
        target=jobs,
        topic=which,
        priority=st.integers(0, 3),
        delay=st.sampled_from([0, 0, 0, 5, 60]),
        ttr=st.sampled_from([10, 300]),
        max_retries=st.integers(0, 3),
        key=st.sampled_from([None, None, "k"]),
    )
    def enqueue(self, *, topic, priority, delay, ttr, max_retries, key):
        name = self.topics[topic]
        job = self.app.jobs.enqueue(
            name, {}, priority=priority, delay=delay, ttr=ttr, max_retries=max_retries, key=key
        )
        holder = self.holder(name, key)
        if holder:
            assert job.id == holder.id
            return multiple()
        self.model[job.id] = Modelled(
            job.id, job.seq, name, priority, ttr, max_retries, key,
            State.DELAYED if delay else State.READY, self.now + delay,
        )  # fmt: skip
        return job.id

    @rule(
        target=leases, topics=st.sampled_from([[0], [1], [0, 1], [1, 0]]), limit=st.integers(1, 4)
    )
    def reserve(self, topics, limit):
        names = [self.topics[topic] for topic in topics]
        leases = self.app.jobs.reserve(names, limit=limit)
        self.wake(names)
        line = sorted(
            (
                job
                for job in self.model.values()
                if job.topic in names and job.state is State.READY and job.topic not in self.paused
            ),
            key=lambda job: (job.priority, job.seq),
        )
        assert [lease.job.id for lease in leases] == [job.id for job in line[:limit]]
        for lease, job in zip(leases, line, strict=False):
            job.state, job.epoch, job.until = State.RESERVED, job.epoch + 1, self.now + job.ttr
            assert lease.epoch == job.epoch
        return multiple(*leases)

    @rule(lease=leases)
    def complete(self, lease):
        job = self.model.get(lease.job.id)
        if self.holds(lease):
            self.app.jobs.complete(lease)
            job.state = State.COMPLETED
        elif job and job.state is State.COMPLETED and job.epoch == lease.epoch:
            self.app.jobs.complete(lease)  # said again
        else:
            self.refused(lambda: self.app.jobs.complete(lease))

    @rule(lease=leases)
    def fail(self, lease):
        job = self.model.get(lease.job.id)
        if not self.holds(lease):
            if (lease.job.id, lease.epoch) not in self.failed:  # else it is said again
                self.refused(lambda: self.app.jobs.fail(lease, "no"))
            return
        self.failed.add((lease.job.id, lease.epoch))
        self.app.jobs.fail(lease, "no", delay=5)
        job.counters["retries"] += 1
        last = job.counters["retries"] >= job.max_retries
        self.leave(job, State.BURIED if last else State.DELAYED, delay=5)

    @rule(lease=leases, delay=st.sampled_from([0, 5]), priority=st.sampled_from([None, 1]))
    def release(self, lease, delay, priority):
        job = self.model.get(lease.job.id)
        goal = State.DELAYED if delay else State.READY
        if self.holds(lease):
            self.app.jobs.release(lease, delay=delay, priority=priority)
            job.counters["releases"] += 1
            job.priority = job.priority if priority is None else priority
            self.leave(job, goal, delay=delay)
        elif not (job and job.state is goal and job.epoch == lease.epoch):
            self.refused(lambda: self.app.jobs.release(lease, delay=delay))

    @rule(lease=leases)
    def bury(self, lease):
        job = self.model.get(lease.job.id)
        if self.holds(lease):
            self.app.jobs.bury(lease)
            self.leave(job, State.BURIED)
        elif not (job and job.state is State.BURIED and job.epoch == lease.epoch):
            self.refused(lambda: self.app.jobs.bury(lease))

    @rule(lease=leases)
    def touch(self, lease):
        if self.holds(lease):
            self.app.jobs.touch(lease)
            job = self.model[lease.job.id]
            job.until = self.now + job.ttr
        else:
            self.refused(lambda: self.app.jobs.touch(lease))

    @rule(lease=leases)
    def discard(self, lease):
        if self.holds(lease):
            self.app.jobs.delete(lease)
            del self.model[lease.job.id]
        elif lease.job.id in self.model:
            self.refused(lambda: self.app.jobs.delete(lease))

    @rule(id=jobs)
    def requeue(self, id):
        job = self.model.get(id)
        if self.move(job, lambda: self.app.jobs.requeue(id), {State.BURIED, State.CANCELLED}):
            job.counters["retries"] = 0

    @rule(id=jobs)
    def kick_job(self, id):
        job = self.model.get(id)
        moved = self.move(job, lambda: self.app.jobs.kick_job(id), {State.BURIED, State.DELAYED})
        if moved:
            job.counters["kicks"] += 1

    @rule(topic=which, limit=st.integers(1, 3))
    def kick(self, topic, limit):
        name = self.topics[topic]
        of_topic = [job for job in self.model.values() if job.topic == name]
        line = sorted((j for j in of_topic if j.state is State.BURIED), key=lambda j: j.buried_no)
        any_buried = bool(line)
        if not line:
            line = sorted(
                (j for j in of_topic if j.state is State.DELAYED), key=lambda j: (j.run_at, j.seq)
            )
        kicked = 0
        for job in line:
            if kicked == limit:
                break
            if any_buried and self.holder(name, job.key):
                continue
            job.state = State.READY
            job.counters["kicks"] += 1
            kicked += 1
        assert self.app.jobs.kick(name, limit) == kicked

    @rule(id=jobs)
    def cancel(self, id):
        job = self.model.get(id)
        if job and job.state is State.RESERVED:
            self.app.jobs.cancel(id)
            job.cancel_requested = True
        elif job and job.state in PENDING:
            self.app.jobs.cancel(id)
            job.state = State.CANCELLED
        else:
            self.refused(lambda: self.app.jobs.cancel(id))

    @rule(id=jobs)
    def delete(self, id):
        job = self.model.get(id)
        if job and job.state in {*PENDING, State.BURIED, State.CANCELLED}:
            self.app.jobs.delete(id)
            del self.model[id]
        else:
            self.refused(lambda: self.app.jobs.delete(id))

    @rule(seconds=st.sampled_from([5, 10, 300]))
    def advance(self, seconds):
        self.clock.advance(seconds)

    @rule(topic=which)
    def pause_or_resume(self, topic):
        name = self.topics[topic]
        if name in self.paused:
            self.app.topics.resume(name)
            self.paused.remove(name)
        else:
            self.app.topics.pause(name, create=True)  # it may have no job yet
            self.paused.add(name)

    @rule()
    def upkeep(self):
        self.app.upkeep.run()
        self.wake(self.topics)

    # ------------------------------------------------------------ what must always hold

    @invariant()
    def every_job_is_where_it_should_be(self):
        stored = {job.id: job for job in self.stored()}
        assert stored.keys() == self.model.keys()
        for id, job in self.model.items():
            found = stored[id]
            assert (found.state, found.epoch, found.priority) == (
                job.state, job.epoch, job.priority,
            )  # fmt: skip
            for name in ("retries", "timeouts", "releases", "kicks"):
                assert getattr(found, name) == job.counters[name], name

    def stored(self):
        return [job for name in self.topics for job in self.app.jobs.list(topic=name, limit=1000)]

    def teardown(self):
        for name in self.topics:
            self.app.jobs.purge(name)

    # ------------------------------------------------------------ the rules of the house

    def holds(self, lease) -> bool:
        job = self.model.get(lease.job.id)
        return bool(job) and job.state is State.RESERVED and job.epoch == lease.epoch

    def holder(self, topic, key):
        return key and next(
            (
                job
                for job in self.model.values()
                if job.topic == topic and job.key == key and job.state in UNFINISHED
            ),
            None,
        )

    def leave(self, job, goal, delay=0) -> None:
        if job.cancel_requested:
            job.state, job.cancel_requested = State.CANCELLED, False
            return
        job.state, job.run_at = goal, self.now + delay
        if goal is State.BURIED:
            job.buried_no = next(self.burials)

    def wake(self, topics) -> None:
        for job in self.model.values():
            if job.topic not in topics:
                continue
            if job.state is State.DELAYED and job.run_at <= self.now:
                job.state = State.READY
            elif job.state is State.RESERVED and job.until <= self.now:
                job.counters["timeouts"] += 1
                self.leave(job, State.READY)

    def move(self, job, act, allowed) -> bool:
        if not job or job.state not in allowed:
            self.refused(act)
            return False
        if job.state is not State.DELAYED and self.holder(job.topic, job.key):
            with pytest.raises(KeyTaken):
                act()
            return False
        act()
        job.state = State.READY
        return True

    def refused(self, act) -> None:
        with pytest.raises((Conflict, NotFound)):
            act()


@pytest.mark.parametrize(
    ("kind", "colour"), [("sqlite", "async"), ("postgres", "blocking")], indirect=True
)
def test_random_lives_end_as_promised(app, clock):
    """US2-5, DQ-5 and the transition table, in any order."""
    run_state_machine_as_test(
        lambda: Lives(app, clock),
        settings=settings(
            max_examples=30,
            stateful_step_count=50,
            suppress_health_check=list(HealthCheck),
        ),
    )
