"""What an enqueue does if an unfinished job already has its key."""

from enum import StrEnum


class Unique(StrEnum):
    """What becomes of the existing job with the key.

    A job that is running loses the key and continues; the new job may run at the same time. A limit
    with a concurrency of 1 prevents that.
    """

    SKIP = "skip"  # the existing job is kept, and nothing is stored
    REPLACE = "replace"  # it is cancelled, or asked to stop if it runs; the new job is stored
    UPDATE = "update"  # it gets the new content; if it runs, the new job is stored instead
    DEBOUNCE = "debounce"  # as `update`, and its delay begins again
    CLEAR = "clear"  # as `skip`; if there is none, finished jobs of the key are deleted first
