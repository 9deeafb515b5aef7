"""Chance that can be had again: each test has its own seed."""

import random


def dice(seed: float) -> random.Random:
    """Return dice that fall the same way for the same seed."""
    return random.Random(seed)  # noqa: S311 - chance, not secrets
