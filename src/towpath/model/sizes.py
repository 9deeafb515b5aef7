"""Sizes in bytes, given as a number or as text such as "512 MiB"."""

import re
from typing import Final

from towpath.errors import Invalid

Size = int | str
"""A number of bytes, or text such as "512MiB"."""

UNITS: Final = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def size_in_bytes(size: Size, name: str) -> int:
    """Return a size in bytes."""
    parts = re.fullmatch(r"(\d+)\s*([a-z]*)", str(size).strip().lower())
    if isinstance(size, bool) or parts is None or parts[2] not in UNITS or not int(parts[1]):
        msg = f'{name} {size!r} is not a size; use a number of bytes, or text such as "512MiB"'
        raise Invalid(msg)
    return int(parts[1]) * UNITS[parts[2]]
