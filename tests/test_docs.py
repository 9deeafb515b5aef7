"""Documentation that runs: generated pages and verbs are fresh, the map is right."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import towpath
from towpath.server.metrics import METRICS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES = [
    ROOT / "docs" / f"{name}.md" for name in ("transactions", "events", "consumers", "webhooks")
]
SNIPPETS = [
    (page.name, snippet)
    for page in PAGES
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("page", "snippet"), SNIPPETS)
def test_the_snippets_of_a_page_run_twice_and_print_what_they_show(page, snippet, tmp_path):
    shown = re.findall(r"^# → (.*)$", snippet, re.MULTILINE)
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", snippet], cwd=tmp_path, check=True, timeout=60,
            capture_output=True, text=True,
        )  # fmt: skip
        assert not shown or run.stdout.splitlines() == shown


COMMANDS = [
    (page, command)
    for page in ("events.md", "rules.md")
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    for command in block.splitlines()
    if command
]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_the_commands_of_a_page_run(page, command, tmp_path):
    program, *arguments = shlex.split(command)
    assert program == "towpath", page
    for words in (["migrate"], arguments):
        subprocess.run([sys.executable, "-m", "towpath", *words], cwd=tmp_path, check=True)


def test_the_reference_is_fresh():
    subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], check=True)


PUBLIC = [
    *towpath.__all__,
    *("Calls", "Worker", "isolated", "IsolatedJobs", "Clock", "Crash", "towpath_jobs"),
    *("lifespan", "Api", "TowpathBackend"),
    *("verify", "job_id", "Received"),
]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_reference_has_every_public_name(name):
    pages = "\n".join(path.read_text() for path in REFERENCE.glob("*.md"))
    sections = {"Job": "`from towpath import Job`", "group": "### `group`"}
    sections |= dict.fromkeys(("State", "Status"), "`from towpath import State, Status`")
    sections |= {
        "Settings": "`App(url, settings=Settings(…))`",
        "TowpathError": "| `TowpathError` |",
    }

    assert sections.get(name, f"## `{name}`\n") in pages


def test_the_reference_has_every_group_of_verbs():
    verbs = (REFERENCE / "verbs.md").read_text()
    app = towpath.App("memory://")
    groups = {
        name
        for name, part in vars(app).items()
        if not name.startswith("_") and hasattr(part, "list") and hasattr(part, "alist")
    }

    assert {"jobs", "topics", "schedules", "limits", "accounts", "keys", "sessions"} <= groups
    for name in {*groups, "queues", "access", "upkeep"}:
        assert f"## `app.{name}`\n" in verbs
    assert "## `app.queue(topic)`\n" in verbs


def test_the_reference_has_every_field_of_a_job_and_its_meaning():
    lines = (REFERENCE / "job.md").read_text().splitlines()

    for field in towpath.Job.__struct_fields__:
        [row] = [
            line for line in lines if line.startswith(f"| `{field}` | ") and line.count(" | ") == 3
        ]
        assert row.removesuffix(" |").rpartition(" | ")[2], field


def test_the_reference_has_every_metric():
    page = (REFERENCE / "metrics.md").read_text()

    for name, metric in METRICS.items():
        assert f"| `{name}` | {metric.kind} |" in page
        assert metric.help in page


def test_the_blocking_verbs_are_fresh():
    subprocess.run([sys.executable, ROOT / "tools" / "blocking.py", "--check"], check=True)


PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("clients/*/README.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)

    assert not [link for link in links if not (page.parent / link).exists()]


def test_every_file_that_the_map_names_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"\b(?:\w+/)*\w+\.(?:py|sql)\b", text))
    folders = [ROOT / name for name in ("src", "tests", "tools", "docs", "examples")]
    found = [*ROOT.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.*"))]
    files = [path.as_posix() for path in found]

    assert [name for name in named if not any(each.endswith(f"/{name}") for each in files)] == []


def test_the_map_names_every_module():
    source = ROOT / "src" / "towpath"
    named = set(re.findall(r"[\w.]+", (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]))
    for path in source.rglob("*.py"):
        part = path.relative_to(source).parts[0]
        if path.stem.startswith("__") or path.is_relative_to(source / "integrations" / "django"):
            continue
        assert (path.stem if part == "store" else path.name) in named, path


def test_the_functions_of_the_walk_exist():
    walk = (ROOT / "ARCHITECTURE.md").read_text().split("## The life of a job")[1]
    named = re.findall(r"`(store\.\w+)\.(\w+)`", walk)

    assert named
    for module, function in named:
        assert callable(getattr(importlib.import_module(f"towpath.{module}"), function))
