"""One flow, enqueued twice at once: by a caller that did not wait for the first answer."""

import pytest

from tests.faults.gates import Gate
from towpath import PartOutcome, State, group
from towpath.model.ids import uuid7


def pong() -> str:
    return "pong"


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_job_is_not_made_to_wait_again_for_what_has_completed(make_app, threads):
    """The second finds the jobs of the first, which were not there when it began."""
    app, other = make_app(), make_app()
    ids = [uuid7(), uuid7()]

    def flow(app):
        ping = app.task(topic="ping")(pong)
        return ping.using(id=ids[0]).s() | ping.using(id=ids[1]).s()

    first, second = flow(other), flow(app)
    looking, linking = Gate(app, threads), Gate(app, threads)

    def enqueue_both():
        with looking.before("enqueue", second.enqueue):
            first.enqueue()

    with linking.before("await_ready", enqueue_both):
        [lease] = other.jobs.reserve("ping")
        other.jobs.complete(lease)

    assert other.jobs.get(ids[1]).state is State.READY


def first() -> int:
    return 1


def second(x: int, y: int) -> int:
    return x + y


@pytest.mark.parametrize("kind", ["postgres"])
def test_what_a_job_was_rewritten_to_is_not_undone_by_the_end_of_its_parent(make_app, threads):
    app, other = make_app(), make_app()
    one, two = app.task(topic="one")(first), app.task(topic="two")(second)
    (one.s() | two.using(key="k").s(y=5)).enqueue()
    [lease] = other.jobs.reserve("one")

    with Gate(app, threads).before("fill_in", app.jobs.complete, lease, 1):
        other.jobs.enqueue("two", {"x": 7, "y": 8}, key="k", unique="update")

    assert other.jobs.reserve("two")[0].job.payload == {"x": 7, "y": 8}


def pack(parts: list[PartOutcome[int]]) -> None: ...


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("statement", ["hold_children", "with_all_parents", "fill_in", "let_in"])
def test_a_group_does_not_go_on_without_a_part_that_is_just_requeued(make_app, threads, statement):
    app, other = make_app(), make_app()
    one, last = app.task(topic="one", max_retries=1)(first), app.task(topic="last")(pack)
    job = group(one.s(), one.s()).outcomes().then(last.s()).enqueue()
    [failing, completing] = other.jobs.reserve("one", limit=2)
    other.jobs.fail(failing, "no")

    with Gate(app, threads).before(statement, app.jobs.complete, completing, 2):
        other.jobs.requeue(failing.job)

    assert other.jobs.get(job).state is State.BLOCKED
    [lease] = other.jobs.reserve("one")
    other.jobs.complete(lease, 1)
    [lease] = other.jobs.reserve("last")
    assert lease.job.payload == {"parts": [{"result": 1}, {"result": 2}]}
