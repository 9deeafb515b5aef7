"""Each behaviour on every database, with the blocking verbs on one of them.

A blocking verb is generated from its async twin, so that a defect of the verb shows in either. The
test's name decides which database sees the blocking one: about a third of the tests for each.
"""

from zlib import crc32

import pytest

KINDS = ("memory", "sqlite", "postgres")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Pair databases and colours, unless the test or `--both-colours` asks for all pairs."""
    asked = {
        name
        for mark in metafunc.definition.iter_markers("parametrize")
        for name in str(mark.args[0]).split(",")
    }
    if (
        {"kind", "colour"} <= set(metafunc.fixturenames) - asked
        and not metafunc.definition.get_closest_marker("both_colours")
        and not metafunc.config.getoption("--both-colours")
    ):
        blocking = KINDS[crc32(metafunc.function.__name__.encode()) % len(KINDS)]
        pairs = [(kind, "blocking" if kind == blocking else "async") for kind in KINDS]
        metafunc.definition.add_marker(
            pytest.mark.parametrize(("kind", "colour"), pairs, indirect=True)
        )
