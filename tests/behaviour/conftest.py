"""Each behaviour on every database, with the blocking verbs on one of them.

A blocking verb is generated from its async twin, so that a defect of the verb shows in either. The
test's name decides which database sees the blocking one: about a third of the tests for each.
"""

from zlib import crc32

import pytest

KINDS = ("memory", "sqlite", "postgres")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Pair databases and colours, unless the test or an option asks for all pairs."""
    test = metafunc.definition
    asked = {
        name for mark in test.iter_markers("parametrize") for name in str(mark.args[0]).split(",")
    }
    free = set(metafunc.fixturenames) - asked
    if "kind" not in free or metafunc.config.getoption("--all-pairs"):
        return
    chosen = KINDS[crc32(metafunc.function.__name__.encode()) % len(KINDS)]
    if test.get_closest_marker("one_database"):
        test.add_marker(pytest.mark.parametrize("kind", [chosen], indirect=True))
    elif "colour" in free and not test.get_closest_marker("both_colours"):
        pairs = [(kind, "blocking" if kind == chosen else "async") for kind in KINDS]
        test.add_marker(pytest.mark.parametrize(("kind", "colour"), pairs, indirect=True))
