"""The pytest plugin: `towpath_jobs`, for the app that `towpath_app = module:app` names.

It is outside of the package and does not import it, as pytest loads this module in every run.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from towpath.testing import IsolatedJobs


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the app."""
    parser.addini("towpath_app", "the app that towpath_jobs isolates, as module:app")


@pytest.fixture
def towpath_jobs(request: pytest.FixtureRequest) -> "Iterator[IsolatedJobs]":
    """Give a test the app as `isolated` does: on a private database, with a frozen clock.

    pytest knows this fixture by its name. `towpath_app = module:app` in pytest's configuration
    names the app.
    """
    from towpath.testing import isolated, named_app  # noqa: PLC0415 - only in tests that use it

    name: str = request.config.getini("towpath_app")
    if not name:
        pytest.fail("towpath_jobs needs `towpath_app = module:app` in pytest's configuration")
    with isolated(named_app(name)) as jobs:
        yield jobs
