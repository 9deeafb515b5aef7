"""Everything that can be set. A field is its default, its environment name and its flag.

`busy_timeout` is read from TOWPATH_BUSY_TIMEOUT and given as `--busy-timeout`. Durations are in
seconds.
"""

import os
from dataclasses import dataclass, field, fields
from typing import Final, Self

from towpath.errors import Invalid

SHORTEST: Final = 0.001  # seconds
LONGEST: Final = 10.0**9
_TIMES: Final = ("dead_after", "beat_every", "poll_interval", "connect_timeout", "busy_timeout")
LEAST_SECRET: Final = 32  # bytes, as RFC 7518 asks of HS256
REDACTED: Final = "password,passwd,secret,token,api_key,secret_key,private_key,authorization,cookie"
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
    busy_timeout: float = 5.0  # how long to wait for a lock that another transaction holds
    connect_timeout: float = 30.0  # how long to try to reach a database that is gone or silent
    poll_interval: float = 1.0  # the safety net behind wakeups

    # jobs
    max_payload: int = 2**20  # bytes of JSON, or of raw bytes
    max_result: int = 2**20  # bytes of JSON
    ttr: float = 300.0  # how long a lease without a session lives, unless it is touched
    max_retries: int = 3  # failures of a job: the one that reaches it buries the job
    max_crashes: int = 3  # workers that a job may take down with it
    retention: float = 3 * 86_400.0  # how long a finished job is kept
    redact: str = REDACTED  # what the names of fields end in whose values people are not shown

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

    # accounts
    token_lifetime: float = 7 * 86_400.0  # of what a login hands out
    jwt_secret: str = field(default="", repr=False)  # of external tokens by HS256; 32 bytes or more
    jwt_jwks_url: str = ""  # where the public keys of external tokens are; http or https
    jwt_issuer: str = ""  # that external tokens must name; empty: any
    jwt_audience: str = ""  # likewise; set it where others' tokens are signed by the same keys

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
        for name in _TIMES:
            if not SHORTEST <= getattr(self, name) < LONGEST:  # refuses NaN, too
                msg = f"{name} is at least {SHORTEST} seconds"
                raise Invalid(msg)
        if not 1 <= self.token_lifetime < LONGEST:
            msg = "token_lifetime is at least a second"
            raise Invalid(msg)
        if 0 < len(self.jwt_secret.encode()) < LEAST_SECRET:
            msg = f"jwt_secret has at least {LEAST_SECRET} bytes: a shorter one can be guessed"
            raise Invalid(msg)
        if self.jwt_jwks_url and not self.jwt_jwks_url.startswith(("https://", "http://")):
            msg = "jwt_jwks_url begins with https:// or http://"
            raise Invalid(msg)
        if self.lanes < 1 or self.batch_size < 1 or self.batch_bytes < 1:
            msg = "lanes, batch_size and batch_bytes are at least 1"
            raise Invalid(msg)

    @classmethod
    def from_environment(cls, **given: object) -> Self:
        """Take what is given, then the environment, then the defaults."""
        values: dict[str, object] = {}
        for each in fields(cls):
            text = os.environ.get(f"TOWPATH_{each.name.upper()}")
            if each.name in given:
                values[each.name] = given.pop(each.name)
            elif text is not None:
                values[each.name] = _read(each.name, text, each.default)
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
