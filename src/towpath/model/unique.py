"""What an enqueue does when an unfinished job holds its key."""

from enum import StrEnum


class Unique(StrEnum):
    """What becomes of the job that holds the key.

    A job that runs already lets go of the key and goes on; the new job may run beside it. A limit
    with a concurrency of 1 keeps them apart.
    """

    SKIP = "skip"  # it stands, and nothing is stored
    REPLACE = "replace"  # it is cancelled, or asked to stop if it runs; the new one is stored
    UPDATE = (
        "update"  # it gets the new content and keeps its place; if it runs, a new one is stored
    )
    DEBOUNCE = "debounce"  # it gets the new content and its delay begins again; likewise
    CLEAR = "clear"  # it stands; without one, finished jobs of the key are forgotten first
