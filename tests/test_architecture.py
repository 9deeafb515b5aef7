"""Imports point down the layers; no module has a name that says nothing."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "towpath"
LAYERS = [  # each imports only from those below; those of one line do not know each other
    {"__main__"},
    {"cli", "demo", "integrations", "testing"},
    {"server"},
    {"worker", "webhooks"},
    {"app"},
    {"store", "database"},
    {"model"},
    {"operation"},
    {"statement", "settings"},
    {"errors", "names"},
]
ABOVE_APP = ("cli", "demo", "integrations", "server", "testing")  # these call the app
BELOW_APP = ("database", "store")
BESIDE_APP = {  # the files that reach below the app all the same
    # It ends runs one at a time, writes their output, and buries sessions by the test's clock.
    "testing.py": {"store.job_output", "store.leases", "store.sessions", "store.streams"},
    # The reservations of its connections gather as the calls of operations do.
    "server/beanstalkd/server.py": {"database.group_commit", "database.task_lanes"},
}
EMPTY_NAMES = {"utils", "util", "common", "helpers", "base", "core", "misc"}
FILES = sorted(SOURCE.rglob("*.py"))


def layer_of(name):
    return next(depth for depth, names in enumerate(LAYERS) if name in names)


def imported_modules(path):
    """The modules of our package that a file imports, such as `store.leases`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            is_package = (SOURCE.parent / node.module.replace(".", "/")).is_dir()
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = names if is_package else [node.module]
        else:
            continue
        yield from (name.removeprefix("towpath.") for name in names if name.startswith("towpath."))


def imports(path):
    """The parts of our package that a file imports."""
    return (module.split(".")[0] for module in imported_modules(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_imports_point_down(path):
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if here == "__init__":
        return
    for there in imports(path):
        if there != here and not there[0].isupper():
            assert layer_of(here) < layer_of(there), f"{here} may not import {there}"


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.relative_to(SOURCE).parts[0].removesuffix(".py") in ABOVE_APP],
    ids=lambda path: path.relative_to(SOURCE).as_posix(),
)
def test_what_stands_above_the_app_calls_the_app(path):
    """Its verbs check, retry and wake; an operation of the store alone does not."""
    below = {name for name in imported_modules(path) if name.split(".")[0] in BELOW_APP}

    assert below == BESIDE_APP.get(path.relative_to(SOURCE).as_posix(), set())


def test_a_class_name_is_used_once():
    """Two classes of one name make every search and every import a guess."""
    homes = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name != "sql":  # of each module of store
                homes.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())

    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_module_has_an_empty_name():
    assert not [path for path in FILES if path.stem in EMPTY_NAMES]


@pytest.mark.parametrize(
    "path", sorted((SOURCE / "store").glob("*.py")), ids=lambda path: path.stem
)
def test_the_annotations_of_steps_are_not_evaluated_for_each_operation(path):
    """That would take several microseconds, a tenth of a reservation."""
    text = path.read_text()

    assert "def steps()" not in text or "from __future__ import annotations" in text


def test_a_statement_is_used_in_its_own_module_alone():
    """Other modules call a step of that one, which says what has to hold before."""
    used = [
        f"{path.relative_to(SOURCE).as_posix()}: {ast.unparse(node)}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr == "sql")
        or (isinstance(node, ast.ImportFrom) and "sql" in {each.name for each in node.names})
    ]

    assert used == []


def test_only_the_database_layer_talks_to_drivers():
    drivers = {"sqlite3", "psycopg", "asyncpg", "sqlalchemy"}
    talking = {
        path.relative_to(SOURCE).parts[0]
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import) and {alias.name for alias in node.names} & drivers
    }

    # app/connect.py only asks psycopg whether a URL can be read.
    assert talking <= {"database", "app"}


@pytest.mark.parametrize("name", ["aiohttp", "psycopg", "uvicorn"])
def test_a_package_whose_inner_parts_are_used_has_an_upper_bound(name):
    """Any version of it may change them; the lock is of a version that was tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    wanted = [each for group in (*extras.values(), *groups.values()) for each in group]
    found = [each for each in map(Requirement, wanted) if each.name == name]
    locked = re.search(
        rf"^{name}==(\S+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE
    )

    assert found
    for each in found:
        assert any(bound.operator == "<" for bound in each.specifier), each
        assert locked
        assert locked[1] in each.specifier


# Alone on PostgreSQL, each statement of these commits by itself. Whatever such an operation has
# done when it stops half-way is right as it is: each says why.
MAY_COMMIT_MORE_THAN_ONCE = {
    "enqueue",  # each statement stores whole jobs; what is left over is asked for again
    "enqueue_keyed",  # likewise
    "complete",  # the first statement ends the leases; upkeep tells the jobs that wait, if need be
    "settle",  # likewise
    "touch",  # the first statement extends the leases; the others only read
    "fold",  # each statement moves whole counts
    "drop_deleted",  # each statement deletes some events that no reader can see
    "report_deliveries",  # the first statement notes the outcomes; the other only reads
    "ack",  # the first statement moves the consumers; the other only reads
    "forget_consumer",  # the first statement forgets the consumer; the other only reads
    "reserve",  # returns at once what a statement has leased; brings due jobs into line before
}


def writing_operations(path):
    """Name the operations of a module that may commit each statement, and how many they yield."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            text = ast.unparse(decorator)
            if text.startswith("plural(") and "autocommit=lambda _: False" not in text:
                yield node.name, statements_of(node)
        steps = {each.name: each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)}
        for call in ast.walk(node):
            if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Operation":
                continue
            words = [ast.unparse(each) for each in (*call.args, *call.keywords)]
            if not any(each.startswith("autocommit=") for each in words) or any(
                each.startswith(("Mode.READ", "Mode.SCAN")) for each in words
            ):
                continue
            name, start = call.args[:2]
            found = [each for each in ast.walk(start) if isinstance(each, ast.Name)]
            body = next((steps[each.id] for each in found if each.id in steps), start)
            yield ast.literal_eval(name), statements_of(body)


def statements_of(node):
    """Count what a function yields; steps of another function may be many."""
    yielded = [each for each in ast.walk(node) if isinstance(each, ast.Yield | ast.YieldFrom)]
    texts = [ast.unparse(each.value) for each in yielded if each.value]
    return sum(1 if text.startswith("sql.") else 2 for text in texts)


def test_only_these_operations_may_commit_more_than_once():
    found = [
        each
        for path in sorted((SOURCE / "store").glob("*.py"))
        for each in writing_operations(path)
    ]

    assert len(found) > len(MAY_COMMIT_MORE_THAN_ONCE)
    assert {name for name, count in found if count > 1} == MAY_COMMIT_MORE_THAN_ONCE
