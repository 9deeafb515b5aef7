"""Everything that can be set. A field is its default, its environment name and its flag.

`busy_timeout` is read from TOWPATH_BUSY_TIMEOUT and given as `--busy-timeout`. Durations are in
seconds.
"""

import os
from dataclasses import dataclass, fields
from typing import Final, Self

from towpath.errors import Invalid

SHORTEST: Final = 0.001
_TIMES: Final = ("dead_after", "beat_every", "poll_interval", "connect_timeout", "busy_timeout")
MOST_SCHEMA: Final = 50  # leaves room for the names that are made from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an app behaves. The defaults are meant to be kept."""

    # storage
    schema: str = "towpath"  # PostgreSQL schema; on SQLite the prefix is always towpath_
    migrate: bool = True  # create and upgrade our tables on first use
    durability: str = "full"  # SQLite: full survives power loss, normal a process crash
    lanes: int = 2  # PostgreSQL connections per event loop, and for all threads; as many for lists
    batch_size: int = 1_000  # operations, or rows of one statement, that share a commit
    batch_bytes: int = 16 * 2**20  # payload bytes in one statement
    busy_timeout: float = 5.0  # how long to wait for a lock that somebody else holds
    connect_timeout: float = 30.0  # how long to try to reach a database that is gone
    poll_interval: float = 1.0  # the safety net behind wakeups

    # jobs
    max_payload: int = 2**20  # bytes of JSON, or of raw bytes
    max_result: int = 2**20  # bytes of JSON
    ttr: float = 300.0  # how long a lease without a session lives, unless it is touched
    max_retries: int = 3  # failures of a job: the one that reaches it buries the job
    max_crashes: int = 3  # workers that a job may take down with it
    retention: float = 3 * 86_400.0  # how long a finished job is kept

    # limits; 0 means none
    max_topics: int = 0  # that may exist at once
    max_jobs_per_topic: int = 0  # unfinished or buried
    max_waiters_per_topic: int = 1_000  # callers of one process that wait in reserve
    topic_cleanup: bool = False  # forget topics that are empty, about once an hour

    # the delay-queue door
    queue_ttr: float = 60.0  # of jobs that are put without one
    max_touches: int = 10  # of one lease
    max_touch_duration: float = 600.0  # since it was reserved
    min_touch_interval: float = 5.0  # between two touches

    # sessions
    beat_every: float = 5.0  # how often a session shows that it lives
    dead_after: float = 30.0  # the silence after which its leases are taken back

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.durability not in {"full", "normal"}:
            msg = f"durability is full or normal, not {self.durability!r}"
            raise Invalid(msg)
        if not self.schema.isidentifier() or not self.schema.isascii():
            msg = f"schema {self.schema!r} is not a plain SQL name"
            raise Invalid(msg)
        if len(self.schema) > MOST_SCHEMA:
            msg = f"schema {self.schema!r} is longer than {MOST_SCHEMA} characters"
            raise Invalid(msg)
        for name in (
            "dead_after",
            "beat_every",
            "poll_interval",
            "connect_timeout",
            "busy_timeout",
        ):
            if not 0.001 <= getattr(self, name) < 10**9:  # noqa: PLR2004 - a millisecond; refuses NaN
                msg = f"{name} is at least 0.001 seconds"
                raise Invalid(msg)
        if self.lanes < 1 or self.batch_size < 1 or self.batch_bytes < 1:
            msg = "lanes, batch_size and batch_bytes are at least 1"
            raise Invalid(msg)

    @classmethod
    def from_environment(cls, **given: object) -> Self:
        """Take what is given, then the environment, then the defaults."""
        values: dict[str, object] = {}
        for field in fields(cls):
            text = os.environ.get(f"TOWPATH_{field.name.upper()}")
            if field.name in given:
                values[field.name] = given.pop(field.name)
            elif text is not None:
                values[field.name] = _read(field.name, text, field.default)
        if given:
            msg = f"unknown settings: {', '.join(sorted(given))}"
            raise Invalid(msg)
        return cls(**values)  # type: ignore[arg-type] # _read gives each field its own type


def _read(name: str, text: str, default: object) -> object:
    try:
        match default:
            case bool():
                return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
            case int():
                return int(text)
            case float():
                return float(text)
            case _:
                return text
    except (KeyError, ValueError) as error:
        msg = f"TOWPATH_{name.upper()}={text!r} is not a {type(default).__name__}"
        raise Invalid(msg) from error
