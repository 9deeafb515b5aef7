"""The TypeScript client: its types, its package, its own tests against a live server."""

import asyncio
import json
import re
import tarfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from signal import SIGKILL, SIGTERM

import pytest

from tests.clients.node import CLIENT, install, installed, npm, run
from tests.clients.serving import free_port, serving, with_superuser
from tests.conftest import eventually
from tests.webhooks.receivers import SECRET, arrived
from towpath import App

SNIPPETS = re.findall(r"```ts\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
LIVE = CLIENT / "test" / "live"
PROLOGUE = 'import { Towpath } from "towpath"; const towpath = new Towpath("http://localhost");\n'


@pytest.fixture(autouse=True)
def packages():
    install()


def tsc(*words, **options):
    return run(installed("typescript", "bin/tsc"), *words, **options)


def test_the_source_typechecks_without_node():
    """It runs in browsers: nothing in src may know of Node."""
    tsc("--project", "tsconfig.json")


def test_the_tests_typecheck():
    tsc("--project", "test/tsconfig.json")


def test_the_types_are_those_of_the_openapi_document(tmp_path):
    for name in ("package.json", "openapi.json", "node_modules"):
        (tmp_path / name).symlink_to(CLIENT / name)
    npm("run", "generate", cwd=tmp_path)

    generated = (tmp_path / "src" / "schema.ts").read_text()
    assert generated == (CLIENT / "src" / "schema.ts").read_text(), "see CONTRIBUTING.md"


def test_calls_are_repeated_ended_and_refused_as_promised():
    run("--test", "--test-concurrency=4", "test/*.test.ts")  # they mostly wait


# Files that share a server and a process, as each of these takes seconds to start.
GROUPS = [
    ("sqlite", ["consumers", "events", "overview"]),
    ("sqlite", ["jobs", "pocketbase", "webhooks"]),
    ("postgres", ["accounts", "dashboard", "events"]),
    ("postgres", ["jobs", "stream", "worker"]),
]
RESTART = "restart"  # against a server that comes and goes


@pytest.mark.parametrize(
    ("durable_place", "names"),
    GROUPS,
    ids=[f"{database} {' '.join(names)}" for database, names in GROUPS],
    indirect=["durable_place"],
)
def test_against_a_live_server(durable_place, names, server):
    """US8-1 to US8-5, EV-8: the API is tested on both databases, jobs and events here as well."""
    files = [f"test/live/{name}.test.ts" for name in names]
    run("--test", "--test-isolation=none", *files, **server)


def test_every_live_suite_runs():
    known = {*(name for _, names in GROUPS for name in names), RESTART}
    assert {path.name.removesuffix(".test.ts") for path in LIVE.glob("*.test.ts")} == known


def test_the_official_verifier_accepts_what_we_send():
    """The same as in Python, by `standardwebhooks` of npm, and by our own `verify`."""
    request = asyncio.run(arrived(headers={"x-own": "1"}))
    given = {"headers": request.headers, "body": request.body.decode(), "secret": SECRET}

    told = run("--test", "test/verify.test.ts", TOWPATH_REQUEST=json.dumps(given))

    assert "skipped 0" in told


def test_events_while_the_server_is_restarted(durable_place, tmp_path):
    """SIGTERM lets the server say when to come back; SIGKILL does not."""
    url, needed = durable_place
    start = partial(serving, durable_place, tmp_path, port=free_port())
    last = tmp_path / "last"
    with ThreadPoolExecutor() as threads, App(url, **needed) as app:
        with start() as started:
            named = with_superuser(started) | {"TOWPATH_LAST": str(last)}
            reading = threads.submit(run, "--test", f"test/live/{RESTART}.test.ts", **named)
            until_published(app, reading)
        for ending in (SIGKILL, SIGTERM, SIGKILL):
            with start(ending=ending):
                until_published(app, reading)
        with start():
            last.touch()
            reading.result()


def until_published(app, reading):
    before = app.events.position("restarted")
    eventually(lambda: reading.done() or app.events.position("restarted") > before)


def test_the_package_as_published_typechecks_and_runs(tmp_path):
    """Every snippet of its README is checked against it."""
    package = tmp_path / "node_modules" / "towpath"
    publish(package)
    files = {path.name for path in package.iterdir()}
    assert files == {"LICENSE", "README.md", "dist", "package.json"}
    for other in ("@types", "undici-types", "pocketbase"):
        (tmp_path / "node_modules" / other).symlink_to(CLIENT / "node_modules" / other)
    assert len(SNIPPETS) > 5
    names = [f"snippet{number}.mts" for number in range(len(SNIPPETS))]
    for name, snippet in zip(names, SNIPPETS, strict=True):
        (tmp_path / name).write_text(standalone(snippet))

    typecheck(tmp_path, names, lib=["es2022", "dom", "esnext.disposable"], types=["node"])
    typecheck(tmp_path, names[:1], lib=["es2022", "dom"], types=[])  # as for a page
    typecheck(tmp_path, names[:1], lib=["es2022"], types=["node"])  # as for a program
    program = "import { Towpath } from 'towpath'; new Towpath('http://127.0.0.1')"
    run("--input-type=module", "--eval", program, cwd=tmp_path)


def typecheck(directory, files, **options):
    """Check files as a strict user of the package would."""
    strict = {"strict": True, "exactOptionalPropertyTypes": True, "noUncheckedIndexedAccess": True}
    module = {"module": "nodenext", "target": "es2022", "noEmit": True, "skipDefaultLibCheck": True}
    config = {"compilerOptions": strict | module | options, "files": files}
    (directory / "tsconfig.json").write_text(json.dumps(config))
    tsc("--project", directory)


def standalone(snippet):
    """Return a snippet with what the first one has made, unless it imports what it needs."""
    return snippet if snippet.startswith("import") else PROLOGUE + snippet


def publish(directory):
    """Unpack what npm would upload."""
    directory.mkdir(parents=True)
    packed = npm("pack", "--json", "--silent", "--pack-destination", directory.parent.parent)
    [archive] = json.loads(packed[packed.index("[") :])
    with tarfile.open(directory.parent.parent / archive["filename"]) as tar:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
        tar.extractall(directory.parent, **safely)  # noqa: S202 - we have just made it ourselves
    (directory.parent / "package").rename(directory)
