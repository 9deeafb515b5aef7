"""A live server."""

import pytest

from tests.clients.serving import serving, with_superuser


@pytest.fixture
def server(durable_place, tmp_path):
    """A server on every database, and its superuser, as environment variables name them."""
    with serving(durable_place, tmp_path) as started:
        yield with_superuser(started)
