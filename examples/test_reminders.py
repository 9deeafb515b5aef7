"""The test kit: `pytest test_reminders.py`."""

from collections.abc import Iterator

import pytest
from reminders import app, outbox, remind, sign_up

from towpath.testing import IsolatedJobs, isolated


@pytest.fixture
def jobs() -> Iterator[IsolatedJobs]:
    """Give the app a private database, and a clock that stands still."""
    outbox.clear()
    with isolated(app) as jobs:
        yield jobs


def test_a_reminder_is_sent_after_a_while(jobs: IsolatedJobs) -> None:
    sign_up("Ada")
    jobs.assert_enqueued(remind.using(delay="15m"), who="Ada")

    assert jobs.run() == []
    jobs.clock.advance("15m")
    jobs.run()
    assert outbox == ["Dear Ada"]


def test_a_worker_that_dies_may_remind_twice(jobs: IsolatedJobs) -> None:
    remind.enqueue("Ada")
    with jobs.crashing():
        jobs.run()  # the task runs, but no mail is sent

    jobs.clock.advance("1m")
    jobs.run()
    assert outbox == ["Dear Ada", "Dear Ada"]
