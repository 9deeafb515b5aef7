import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from shop.models import Base, Database
from shop.tasks import app
from towpath.testing import IsolatedJobs, isolated


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IsolatedJobs]:
    """Give the shop and its jobs a new database, and a clock that stands still."""
    monkeypatch.chdir(tmp_path)  # for the files of the shop
    url = os.environ.get("TEST_DATABASE_URL")
    with isolated(app, url) as jobs:
        engine = create_engine(url or jobs.url)
        Base.metadata.create_all(engine)
        monkeypatch.setitem(Database.kw, "bind", engine)
        yield jobs
        Base.metadata.drop_all(engine)
        engine.dispose()
