from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from agent import chats, model, web
from agent.tasks import app
from towpath.testing import IsolatedJobs, isolated


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[IsolatedJobs]:
    """Give the chats and their jobs a new database, and a clock that stands still."""
    with isolated(app) as jobs:
        monkeypatch.setattr(chats, "URL", jobs.url)
        monkeypatch.setattr(model, "PAUSE", 0)
        chats.prepare()
        app.access.set(channels=web.RULES)
        yield jobs


@pytest.fixture
def client(jobs: IsolatedJobs) -> TestClient:
    assert jobs.app is app
    return TestClient(web.site)  # without `with` it runs no lifespan
