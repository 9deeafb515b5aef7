"""The dashboard in a real Chromium, against `towpath serve` on each database.

Every `tests/browser/dashboard/*.test.ts` runs here. `python -m tests.browser.test_dashboard FOLDER`
writes pictures of all pages.
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
TESTS = sorted(path.name for path in (HERE / "dashboard").glob("*.test.ts"))
WITH_LINK = "setup.test.ts"  # it makes the first superuser by the link
MOUNTED = "mounted.test.ts"


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


@pytest.fixture(autouse=True)
def packages():
    install_packages()


def test_the_tests_of_the_dashboard_typecheck():
    run(installed("typescript", "bin/tsc"), "--project", HERE)


def test_the_parts_of_the_dashboard_that_need_no_page():
    """J2, J3: exact digits, large values; numbers and times in words."""
    run("--test", "dashboard/parts/*.test.ts", cwd=HERE)


@pytest.mark.parametrize("name", [name for name in TESTS if name not in {WITH_LINK, MOUNTED}])
def test_the_dashboard(durable_place, tmp_path, name):
    """US6: each file says which line."""
    with serving(durable_place, tmp_path) as started:
        given = with_superuser(started) | worker_of(durable_place)
        run("--test", f"dashboard/{name}", cwd=HERE, **given)


def test_the_first_superuser_is_made_in_the_dashboard(durable_place, tmp_path):
    """US6: set-up."""
    with serving(durable_place, tmp_path) as started:
        given = {"TOWPATH_URL": started["url"], "TOWPATH_SETUP": started["setup"]}
        run("--test", f"dashboard/{WITH_LINK}", cwd=HERE, **given)


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
            run("--test", f"dashboard/{MOUNTED}", cwd=HERE, **environment)
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
