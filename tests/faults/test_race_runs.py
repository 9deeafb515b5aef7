"""Jobs that choose their workers, when the process that ends one dies or others come between."""

import pytest

from tests.faults.gates import Gate
from towpath import State
from towpath.operation import Operation
from towpath.store import retention, runs


class Died(Exception):
    """The process that was about to do it is gone."""


def dies(*_):
    raise Died
    yield


@pytest.mark.parametrize("kind", ["postgres"])  # elsewhere all of it is one transaction
def test_those_behind_a_job_whose_workers_failed_are_told_even_if_the_teller_dies(
    make_app, monkeypatch
):
    app = make_app()
    first = app.jobs.enqueue("mail", workers=1)
    second = app.jobs.enqueue("report", after=[first])
    [lease] = app.jobs.reserve("mail", worker="w")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "withdraw", dies)
        with pytest.raises(Died):
            app.jobs.bury(lease, error="no")
    app.upkeep.run()

    assert app.jobs.get(first).state is State.BURIED
    assert app.jobs.get(second).state is State.BURIED


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("statement", ["ended_runs", "hold_offer", "results_of"])
def test_a_run_is_not_forgotten_before_its_job_knows_of_it(make_app, threads, statement):
    """Nothing is to be kept; upkeep elsewhere comes right after the end of the run."""
    app, other = make_app(), make_app()
    job = app.jobs.enqueue("mail", workers=1, retention=0)
    [lease] = app.jobs.reserve("mail", worker="w")

    with Gate(app, threads).before(statement, app.jobs.complete, lease, "done"):
        other.run(retention.prune())

    assert app.jobs.get(job).state is State.COMPLETED
    assert app.jobs.get(job).result_body == '"done"'


def test_the_results_of_all_runs_are_kept_until_the_last_one(make_app):
    app = make_app()
    job = app.jobs.enqueue("mail", workers=2, retention=0)
    for worker in ("one", "two"):
        [lease] = app.jobs.reserve("mail", worker=worker)
        app.jobs.complete(lease, worker)
        if worker == "one":
            app.run(retention.prune())

    assert app.jobs.get(job).result_body == '["one","two"]'
    assert app.run(retention.prune()) == 3


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_worker_that_asks_twice_at_once_gets_one_run(make_app):
    """An offer that was found, and was held by the same worker's other call until just now."""
    app = make_app()
    app.jobs.enqueue("mail", workers=2)

    def find():
        return (yield from runs.sql.find_offers(topics=("mail",), worker="w", limit=1))

    found = app.run(Operation("find", find))

    def start_what_was_found():
        steps = runs.start_runs(("mail",), "w", 1, 7, None)
        next(steps)
        answer = found
        try:
            while True:
                answer = yield steps.send(answer)
        except StopIteration as end:
            return end.value

    assert len(app.jobs.reserve("mail", worker="w")) == 1
    assert app.run(Operation("start", start_what_was_found)) == 0


@pytest.mark.parametrize("kind", ["postgres"])  # elsewhere all of it is one transaction
@pytest.mark.parametrize("statement", ["ended_runs", "note_run", "hand_in", "hold_offer"])
def test_a_run_that_fails_while_its_job_is_deleted_leaves_nothing(
    make_app, threads, books, statement
):
    app, other = make_app(), make_app()
    job = app.jobs.enqueue("mail", workers=2)
    [lease] = app.jobs.reserve("mail", worker="w")

    with Gate(app, threads).before(statement, app.jobs.fail, lease, "no"):
        other.jobs.delete(job)

    left = {name: books.count(name) for name in ("job", "buried", "failure", "run", "offer")}
    assert not any(left.values()), left


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("gone", ["deleted", "pruned"])
def test_no_offer_outlives_its_job(make_app, monkeypatch, books, gone):
    """The job has ended, and the one that ended it died before the offer was withdrawn."""
    app = make_app()
    job = app.jobs.enqueue("mail", workers=1, retention=0)
    [lease] = app.jobs.reserve("mail", worker="w")
    with monkeypatch.context() as patch:
        patch.setattr(runs, "withdraw", dies)
        with pytest.raises(Died):
            app.jobs.fail(lease, "no") if gone == "deleted" else app.jobs.complete(lease)
    assert books.count("offer") == 1

    if gone == "deleted":
        app.jobs.delete(job)
    else:
        app.run(retention.prune())
    app.upkeep.run()

    assert books.count("offer") == books.count("job") == books.count("run") == 0
