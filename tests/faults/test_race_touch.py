"""A lease that its holder extends at the moment at which others would take it back."""

import pytest

from tests.faults.gates import Gate
from towpath import State
from towpath.database.clock import machine_clock

HOUR = 3_600_000_000


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize(
    ("options", "worker"), [({"ttr": 60}, None), ({"worker_timeout": 60, "ping_interval": 5}, "w")]
)
def test_a_lease_that_was_extended_is_not_taken_back(make_app, threads, options, worker):
    """It had expired when it was looked at; a holder who is told that it lives may rely on it."""
    app, rescuer = make_app(), make_app()
    before = make_app(clock=lambda: machine_clock() - HOUR)
    job = before.jobs.enqueue("mail", **options)
    [lease] = before.jobs.reserve("mail", worker=worker)

    with Gate(rescuer, threads).before("settle", rescuer.jobs.reserve, "mail") as reserved:
        app.jobs.touch(lease)

    assert reserved.result() == []
    assert app.jobs.numbered(lease.job.seq).state is State.RESERVED
    app.jobs.complete(lease)
    assert app.jobs.get(job).state is State.COMPLETED
