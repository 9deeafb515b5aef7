"""What runs in a page: the TypeScript client, and the server's own pages, in a real Chromium."""

from pathlib import Path

import pytest

from tests.agents import AGENT, Agent
from tests.clients.node import install, installed, run
from tests.clients.serving import free_port, serving, with_superuser

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def packages():
    install()
    install(HERE)


def tsc(*words):
    return run(installed("typescript", "bin/tsc"), *words)


def test_the_tests_and_the_page_of_the_agent_typecheck():
    tsc("--project", HERE)
    tsc("--project", AGENT / "jsconfig.json")


@pytest.mark.one_database
def test_the_client_runs_in_a_page(durable_place, tmp_path):
    """US8: of the server's own origin, by token and cookie, and of one that it was told of."""
    tsc("--project", "tsconfig.build.json", "--outDir", tmp_path / "sdk")
    port = free_port()
    origin = f"http://127.0.0.1:{port}"

    with serving(durable_place, tmp_path, "--origin", origin) as started:
        named = {"URL": started["url"], "SETUP": started["setup"], "OTHER_PORT": str(port)}
        given = {f"TOWPATH_{name}": value for name, value in named.items()}
        run("--test", "sdk.test.ts", cwd=HERE, TOWPATH_SDK=str(tmp_path / "sdk"), **given)


@pytest.mark.one_database
def test_a_page_follows_events(durable_place, tmp_path):
    """EV-8"""
    tsc("--project", "tsconfig.build.json", "--outDir", tmp_path / "sdk")
    with serving(durable_place, tmp_path) as started:
        given = with_superuser(started) | {"TOWPATH_SDK": str(tmp_path / "sdk")}
        run("--test", "events.test.ts", cwd=HERE, **given)


@pytest.mark.one_database
def test_an_event_source_reads_a_stream_to_its_end(durable_place, tmp_path, monkeypatch):
    """With the cookie of its own origin, and from another one with a pass."""
    monkeypatch.setenv("TOWPATH_STREAM_LIFETIME", "1")
    origin = f"http://127.0.0.1:{free_port()}"
    with serving(durable_place, tmp_path, "--origin", origin) as started:
        given = with_superuser(started) | {"TOWPATH_OTHER_ORIGIN": origin}
        run("--test", "streams.test.ts", cwd=HERE, **given)


@pytest.mark.one_database
def test_the_pages_of_the_server_are_for_people(durable_place, tmp_path):
    with serving(durable_place, tmp_path) as started:
        run("--test", "pages.test.ts", cwd=HERE, TOWPATH_URL=started["url"])


@pytest.mark.one_database
def test_the_page_of_the_agent(tmp_path):
    """EV-8: a reload in mid-answer, a second tab, another device, stop."""
    with Agent(f"sqlite:///{tmp_path}/agent.db", tmp_path) as agent:
        agent.serve()
        agent.work()
        run("--test", "agent.test.ts", cwd=HERE, TOWPATH_AGENT=agent.url)
