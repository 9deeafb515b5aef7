"""What is uploaded to a registry: the page is not empty, and no file is missing."""

import importlib.metadata
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "towpath"


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
