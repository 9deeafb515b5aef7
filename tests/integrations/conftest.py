"""New databases; and Django, once in each process of pytest: each test says on which database."""

from urllib.parse import urlsplit
from uuid import uuid4

import django
import psycopg
import pytest
from django.conf import settings

if not settings.configured:
    settings.configure(
        TASKS={
            "default": {
                "BACKEND": "towpath.integrations.django.TowpathBackend",
                "QUEUES": ["default", "mail"],
            }
        },
        INSTALLED_APPS=["towpath.integrations.django"],
        USE_TZ=True,
    )
    django.setup()


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request, tmp_path):
    """The URL of an empty database, for programs that make tables of their own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/new.db"
        return
    server = request.getfixturevalue("postgres").url()
    name = f"new_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def django_database(durable_place):
    """A new database, as Django's only one; returns its URL."""
    from django.db import connections  # noqa: PLC0415 - not before the set-up

    url, needed = durable_place
    before = connections.settings
    connections.close_all()
    connections.settings = connections.configure_settings({"default": as_django_says(url)})
    for made in connections.all(initialized_only=True):
        del connections[made.alias]
    yield url, needed
    connections.close_all()
    for made in connections.all(initialized_only=True):
        del connections[made.alias]
    connections.settings = before


def as_django_says(url: str) -> dict[str, object]:
    if url.startswith("sqlite"):
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": url.removeprefix("sqlite:///"),
        }
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - only with this database

    parts = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.get("dbname", ""),
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": str(parts.get("port", "")),
    }
