"""The dashboard in a real Chromium, against `towpath serve`.

Every `tests/browser/dashboard/*.test.ts` runs here. A page reaches the database only through the
API, whose tests run on both databases: so a group of pages has one of them, and the list of jobs
both. `python -m tests.browser.test_dashboard FOLDER` writes pictures of all pages.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import hatch_build
from tests.browser.mounted import EMAIL, PASSWORD
from tests.clients.node import install, installed, run
from tests.clients.serving import SOURCE, serving, with_superuser

HERE = Path(__file__).parent
WITH_LINK = "setup"  # it makes the first superuser by the link
MOUNTED = "mounted"
# Files that share a server and a browser, as each of these takes seconds to start. Node runs them
# by their names.
GROUPS = [
    ("sqlite", ["activity", "flows", "keyboard"]),
    ("postgres", ["bulk", "job", "settings"]),
    ("sqlite", ["channels", "overview", "topics"]),
    ("sqlite", ["enqueue", "jobs", "session"]),
    ("postgres", ["enqueue", "jobs", "session"]),
    ("postgres", ["live", "workers"]),
    ("postgres", ["schedules", "webhooks"]),
]
EVERY_PAGE = "every_page"


def install_packages():
    """Install what pages, Chromium and axe need."""
    install()
    install(HERE)
    install(hatch_build.DASHBOARD)


def worker_of(place) -> dict[str, str]:
    """Return what a test needs to start a worker of its own on the same database."""
    database, needed = place
    given = {"TOWPATH_TEST_PYTHON": sys.executable, "TOWPATH_TEST_DATABASE": database}
    return given | {"PYTHONPATH": str(SOURCE), "TOWPATH_SCHEMA": needed.get("schema", "towpath")}


def run_tests(*names: str, **given: str) -> None:
    """Run files of tests in one process, and so in one browser."""
    files = [f"dashboard/{name}.test.ts" for name in names]
    run("--test", "--test-isolation=none", *files, cwd=HERE, **given)


@pytest.fixture(autouse=True)
def packages():
    install_packages()


def test_the_tests_of_the_dashboard_typecheck():
    run(installed("typescript", "bin/tsc"), "--project", HERE)


def test_the_parts_of_the_dashboard_that_need_no_page():
    """J2, J3: exact digits, large values; numbers and times in words."""
    run("--test", "dashboard/parts/*.test.ts", cwd=HERE)


def test_every_file_runs():
    known = [*(name for _, names in GROUPS for name in names), EVERY_PAGE, WITH_LINK, MOUNTED]
    found = {path.name.removesuffix(".test.ts") for path in (HERE / "dashboard").glob("*.test.ts")}
    assert set(found) == set(known)


@pytest.mark.parametrize(
    ("durable_place", "names"),
    GROUPS,
    ids=[f"{database} {' '.join(names)}" for database, names in GROUPS],
    indirect=["durable_place"],
)
def test_the_dashboard(durable_place, tmp_path, names):
    """US6: each file says which line."""
    with serving(durable_place, tmp_path) as started:
        run_tests(*names, **with_superuser(started), **worker_of(durable_place))


@pytest.mark.parametrize(
    ("durable_place", "half"), [("sqlite", "0"), ("postgres", "1")], indirect=["durable_place"]
)
def test_every_page_of_the_dashboard(durable_place, tmp_path, half):
    """K2, K3, M1, X1: a database does not affect how a page looks, so each has half of them."""
    with serving(durable_place, tmp_path) as started:
        run_tests(EVERY_PAGE, TOWPATH_HALF=half, **with_superuser(started))


def test_the_first_superuser_is_made_in_the_dashboard(tmp_path):
    """US6: set-up."""
    with serving((f"sqlite:///{tmp_path}/app.db", {}), tmp_path) as started:
        given = {"TOWPATH_URL": started["url"], "TOWPATH_SETUP": started["setup"]}
        run_tests(WITH_LINK, **given)


@pytest.mark.one_database
@pytest.mark.parametrize("way", ["mount", "serve"])
def test_a_dashboard_under_a_prefix(tmp_path, way):
    """S4"""
    command = [sys.executable, "-m", "tests.browser.mounted"]
    with subprocess.Popen(
        [*command, f"sqlite:///{tmp_path}/app.db", way],
        cwd=hatch_build.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            url = process.stdout.readline().strip()
            given = {"URL": url, "EMAIL": EMAIL, "PASSWORD": PASSWORD}
            environment = {f"TOWPATH_{name}": value for name, value in given.items()}
            run_tests(MOUNTED, **environment)
        finally:
            process.terminate()


def screenshots(folder: str, *names: str) -> None:
    """Write pictures of all pages, or of those that are named."""
    install_packages()
    with tempfile.TemporaryDirectory(prefix="towpath-screenshots-") as directory:
        place = f"sqlite:///{directory}/app.db", {}
        with serving(place, Path(directory)) as started:
            given = with_superuser(started) | {"TOWPATH_SCREENSHOTS": folder}
            sys.stdout.write(run("dashboard/screenshots.ts", *names, cwd=HERE, **given))


if __name__ == "__main__":
    screenshots(*sys.argv[1:])
