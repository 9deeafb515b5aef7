"""How much is done: little in every run of the tests, ten times as much in a soak."""

import os


def many(number: int) -> int:
    """Return a number for this run: as it is, or ten times as much under TOWPATH_SOAK."""
    return number * 10 if os.environ.get("TOWPATH_SOAK") == "1" else number
