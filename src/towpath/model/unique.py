"""What an enqueue does when an unfinished job holds its key."""

from enum import StrEnum


class Unique(StrEnum):
    """What becomes of the job that holds the key."""

    SKIP = "skip"  # it stands, and nothing is stored
    REPLACE = "replace"  # it is cancelled, running or not, and the new one takes its place
    UPDATE = "update"  # it gets the new content and keeps its place; one that runs is followed
    DEBOUNCE = "debounce"  # it gets the new content and waits anew; one that runs is followed
    CLEAR = "clear"  # it stands; without one, finished jobs of the key are forgotten first
