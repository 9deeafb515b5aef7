"""The dashboard in a real Chromium, against `towpath serve` on each database.

Every `tests/browser/dashboard/*.test.ts` runs here. `python -m tests.browser.test_dashboard FOLDER`
writes pictures of all pages.
"""

import sys
import tempfile
from pathlib import Path

import pytest

import hatch_build
from tests.clients.node import install, installed, run
from tests.clients.serving import serving, with_superuser

HERE = Path(__file__).parent
TESTS = sorted(path.name for path in (HERE / "dashboard").glob("*.test.ts"))
WITH_LINK = "setup.test.ts"  # it makes the first superuser by the link


def install_packages():
    """Install what pages, Chromium and axe need."""
    install()
    install(HERE)
    install(hatch_build.DASHBOARD)


@pytest.fixture(autouse=True)
def packages():
    install_packages()


def test_the_tests_of_the_dashboard_typecheck():
    run(installed("typescript", "bin/tsc"), "--project", HERE)


@pytest.mark.parametrize("name", [name for name in TESTS if name != WITH_LINK])
def test_the_dashboard(durable_place, tmp_path, name):
    """US6: each file says which line."""
    with serving(durable_place, tmp_path) as started:
        run("--test", f"dashboard/{name}", cwd=HERE, **with_superuser(started))


def test_the_first_superuser_is_made_in_the_dashboard(durable_place, tmp_path):
    """US6: set-up."""
    with serving(durable_place, tmp_path) as started:
        given = {"TOWPATH_URL": started["url"], "TOWPATH_SETUP": started["setup"]}
        run("--test", f"dashboard/{WITH_LINK}", cwd=HERE, **given)


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
