"""What time it is, in microseconds since 1970.

The clock is the database's. SQLite has none of its own, so there it is the machine's; PostgreSQL's
is inside the statements and used wherever no other is given. Tests give their own.
"""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def machine_clock() -> int:
    """Return the time of this machine."""
    return time.time_ns() // 1_000
