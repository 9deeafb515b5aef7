"""Each behaviour on SQLite and PostgreSQL, with the blocking verbs on one of the two.

A blocking verb is generated from its async twin, so that a defect of the verb shows in either. The
test's name decides which database sees the blocking one, and whether a database in memory, which
shares nearly all of its code with SQLite, sees the test too.
"""

from zlib import crc32

import pytest

KINDS = ("memory", "sqlite", "postgres")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Pair databases and colours, unless the test or an option asks for all pairs."""
    test = metafunc.definition
    asked = {name for mark in test.iter_markers("parametrize") for name in _names(mark)}
    free = set(metafunc.fixturenames) - asked
    if "kind" not in free or metafunc.config.getoption("--all-pairs"):
        return
    number = crc32(metafunc.function.__name__.encode())
    kinds = KINDS if number % 3 == 0 else ("sqlite", "postgres")
    blocking = kinds[number // 3 % len(kinds)]
    pairs = [(kind, "blocking" if kind == blocking else "async") for kind in kinds]
    if test.get_closest_marker("one_database"):
        pairs = [(KINDS[number % 3], ("blocking", "async")[number // 3 % 2])]
    elif test.get_closest_marker("both_colours"):
        return
    # A module with databases of its own would run each of them once for each pair.
    assert not hasattr(metafunc.module, "kind"), f"{test.nodeid} must be marked both_colours"
    if "colour" in free:
        test.add_marker(pytest.mark.parametrize(("kind", "colour"), pairs, indirect=True))
    else:
        alone = [kind for kind, _ in pairs]
        test.add_marker(pytest.mark.parametrize("kind", alone, indirect=True))


def _names(mark: pytest.Mark) -> list[str]:
    """Return what a test parametrizes itself."""
    [names, *_] = mark.args
    return names.split(",") if isinstance(names, str) else list(names)
