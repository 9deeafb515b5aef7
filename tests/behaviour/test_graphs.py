"""Flows as graphs: which jobs wait or waited for which."""

from collections import Counter

import pytest

from towpath.store import graphs


def work(app, topic):
    [lease] = app.jobs.reserve(topic)
    app.jobs.complete(lease)


def states(flow):
    return dict(Counter(str(node.state) for node in flow.nodes))


def test_a_chain_and_a_group_are_one_graph(app):
    """P5 of the dashboard"""
    first = app.jobs.enqueue("fetch")
    parts = [app.jobs.enqueue("resize", nth, after=[first]) for nth in range(28)]
    last = app.jobs.enqueue("pack", after=parts)
    app.jobs.enqueue("other")
    wanted = {(first.id, part.id) for part in parts} | {(part.id, last.id) for part in parts}

    for job in (first, parts[5], last):
        found = app.jobs.flow(job)
        assert found.nodes[0].id == job.id
        assert len(found.nodes) == 30
        assert set(found.edges) == wanted
        assert (found.whole, found.gone) == (True, 0)
    work(app, "fetch")
    assert states(app.jobs.flow(last)) == {"completed": 1, "ready": 28, "blocked": 1}


def test_a_failed_parent_that_is_requeued_lets_its_children_wait_again(app):
    """P5 of the dashboard"""
    parent = app.jobs.enqueue("fetch", max_retries=1)
    job = app.jobs.enqueue("pack", after=[parent])
    [lease] = app.jobs.reserve("fetch")
    app.jobs.fail(lease, "no")
    assert states(app.jobs.flow(job)) == {"buried": 2}

    app.jobs.requeue(parent)

    assert states(app.jobs.flow(job)) == {"ready": 1, "blocked": 1}


def test_a_job_alone_is_a_graph_of_one(app):
    job = app.jobs.enqueue("fetch")

    found = app.jobs.flow(job)

    assert ([node.id for node in found.nodes], found.edges, found.whole) == ([job.id], [], True)


def test_a_large_flow_is_cut(app, monkeypatch):
    monkeypatch.setattr(graphs, "MOST_NODES", 5)
    job = app.jobs.enqueue("fetch")
    for _ in range(9):
        job = app.jobs.enqueue("fetch", after=[job])

    found = app.jobs.flow(job)

    assert (len(found.nodes), len(found.edges), found.whole) == (5, 4, False)


def test_a_job_that_was_forgotten_is_counted_as_gone(app, clock):
    parent = app.jobs.enqueue("fetch", retention=1)
    job = app.jobs.enqueue("pack", after=[parent])
    work(app, "fetch")
    clock.advance(5)
    app.upkeep.run()

    found = app.jobs.flow(job)

    assert ([node.id for node in found.nodes], found.gone) == ([job.id], 1)
    [summary], _ = app.jobs.flows()
    assert summary.jobs == {"ready": 1, "gone": 1}


@pytest.mark.parametrize("window", [2, 1_000])
def test_flows_are_listed_by_their_last_jobs_newest_first(app, monkeypatch, window):
    monkeypatch.setattr(graphs, "WINDOW", window)
    lasts = []
    for _ in range(5):
        first, second = app.jobs.enqueue_many("fetch", range(2))
        middle = app.jobs.enqueue("pack", after=[first, second])
        lasts.append(app.jobs.enqueue("publish", after=[middle]).id)
    app.jobs.enqueue("other")

    found, before = [], None
    while True:
        page, before = app.jobs.flows(before=before, limit=2)
        assert len(page) <= 2
        found += page
        if before is None:
            break

    assert [each.job.id for each in found] == lasts[::-1]
    assert {tuple(sorted(each.jobs.items())) for each in found} == {(("blocked", 2), ("ready", 2))}
    assert all(each.whole for each in found)
