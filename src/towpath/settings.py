"""All settings. A field defines the default, the environment variable and the flag.

`busy_timeout` is read from TOWPATH_BUSY_TIMEOUT or `--busy-timeout`. Durations are in seconds.
"""

import contextlib
import inspect
import os
import re
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Final, Literal, Self

from towpath.errors import Invalid
from towpath.names import about_unknown

HIDDEN: Final = "•••"
SHORTEST: Final = 0.001  # seconds
LONGEST: Final = 10.0**9
MOST_LIMIT: Final = 2**50
_TIMES: Final = (
    "dead_after",
    "beat_every",
    "poll_interval",
    "connect_timeout",
    "busy_timeout",
    "consumer_ttl",
    "stream_wait",
    "stream_lifetime",
    "webhook_retention",
    "dead_letter_retention",
)
_LIMITS: Final = {
    "event_max_age": LONGEST,
    "event_max_bytes": MOST_LIMIT,
    "event_max_count": MOST_LIMIT,
    "max_channels": MOST_LIMIT,
    "max_consumers": MOST_LIMIT,
}
LIFECYCLE: Final = ("none", "failures", "all")  # each posts what those before it do, and more
LEAST_SECRET: Final = 32  # bytes, as RFC 7518 requires for HS256
REDACTED: Final = "password,passwd,secret,token,api_key,secret_key,private_key,authorization,cookie"
MOST_SCHEMA: Final = 50  # characters, as longer names are derived from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an app. The defaults are right for most apps."""

    # storage
    schema: str = "towpath"  # PostgreSQL schema; on SQLite the prefix is always towpath_
    migrate: bool = True  # create and upgrade the tables on first use
    durability: str = "full"  # SQLite: full survives power loss, normal a process crash
    lanes: int = 2  # PostgreSQL connections per event loop, and for all threads; as many for lists
    batch_size: int = 1_000  # operations, or rows of one statement, that share a commit
    batch_bytes: int = 16 * 2**20  # payload bytes in one statement
    busy_timeout: float = 5.0  # how long to wait for a lock that another transaction holds
    connect_timeout: float = 10.0  # an unreachable or silent database is an error after this time
    poll_interval: float = 1.0  # how often waiting callers check for jobs if a wakeup is lost

    # jobs
    max_payload: int = 2**20  # bytes of JSON, or of raw bytes
    max_result: int = 2**20  # bytes of JSON
    ttr: float = 300.0  # how long a lease without a session lives, unless it is touched
    max_retries: int = 3  # a job is buried when its failures reach this number
    max_crashes: int = 3  # a job is buried when the crashes of its workers reach this number
    retention: float = 3 * 86_400.0  # how long a finished job is kept
    redact: str = REDACTED  # the values of fields whose names end in one of these are not shown

    # limits; 0 means no limit
    max_topics: int = 0  # topics that may exist
    max_jobs_per_topic: int = 0  # unfinished or buried jobs of one topic
    max_waiters_per_topic: int = 1_000  # callers of one process that wait in reserve
    topic_cleanup: bool = False  # delete empty topics, about once an hour

    # delay queues
    queue_ttr: float = 60.0  # the ttr of jobs that are put without one
    max_touches: int = 10  # of one lease
    max_touch_duration: float = 600.0  # from the reservation to the last touch
    min_touch_interval: float = 5.0  # between two touches

    # streams
    stream_wait: float = 30.0  # how long a long poll waits for events
    stream_lifetime: float = 60.0  # after which server-sent events end, for the client to reconnect

    # sessions
    beat_every: float = 5.0  # the time between two heartbeats of a session
    dead_after: float = 30.0  # the time without a heartbeat after which its leases are taken back

    # events; a limit of 0 is none
    event_max_age: float = 7 * 86_400.0  # how long a channel keeps an event
    event_max_bytes: int = 2**30  # bytes of payloads and headers that a channel keeps
    event_max_count: int = 1_000_000  # events that a channel keeps
    consumer_ttl: float = 7 * 86_400.0  # how long a silent consumer may hold events back
    max_channels: int = 0  # channels that may exist; `system` and the streams of jobs do not count
    max_consumers: int = 1_000  # durable consumers of one channel
    lifecycle: str = "failures"  # which changes are posted in channel `system`: none, failures, all

    # webhooks
    webhook_key: str = field(default="", repr=False)  # seals secrets; of several the first one does
    webhook_allow: str = ""  # networks that may be called, public or not, such as 10.1.0.0/16
    webhook_http: bool = False  # also call http://, which any machine on the way can read
    webhook_retention: float = 7 * 86_400.0  # how long a delivery is kept that has ended
    dead_letter_retention: float = 30 * 86_400.0  # how long a dead letter is kept

    # accounts
    token_lifetime: float = 7 * 86_400.0  # of a token that a login returns
    jwt_secret: str = field(default="", repr=False)  # of external tokens by HS256; 32 bytes or more
    jwt_jwks_url: str = ""  # where the public keys of external tokens are; http or https
    jwt_issuer: str = ""  # the issuer that external tokens must have; empty: any
    jwt_audience: str = ""  # their audience; set it if the same keys sign tokens for other services

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if self.durability not in {"full", "normal"}:
            msg = f"durability must be full or normal, not {self.durability!r}"
            raise Invalid(msg)
        if self.lifecycle not in LIFECYCLE:
            msg = f"lifecycle must be none, failures or all, not {self.lifecycle!r}"
            raise Invalid(msg)
        if not self.schema.isidentifier() or not self.schema.isascii():
            msg = (
                f"schema {self.schema!r} is not a plain SQL name; use letters, digits, underscores"
            )
            raise Invalid(msg)
        if len(self.schema) > MOST_SCHEMA:
            msg = f"schema {self.schema!r} is longer than {MOST_SCHEMA} characters"
            raise Invalid(msg)
        self._check_ranges()
        if not 1 <= self.token_lifetime < LONGEST:
            msg = f"token_lifetime must be at least 1 second, not {self.token_lifetime!r}"
            raise Invalid(msg)
        if 0 < len(self.jwt_secret.encode()) < LEAST_SECRET:
            msg = (
                f"jwt_secret must have at least {LEAST_SECRET} bytes; a shorter one can be guessed"
            )
            raise Invalid(msg)
        if self.jwt_jwks_url and not self.jwt_jwks_url.startswith(("https://", "http://")):
            msg = "jwt_jwks_url must begin with https:// or http://"
            raise Invalid(msg)
        if self.lanes < 1 or self.batch_size < 1 or self.batch_bytes < 1:
            msg = "lanes, batch_size and batch_bytes must be at least 1"
            raise Invalid(msg)

    def _check_ranges(self) -> None:
        for name in _TIMES:
            if not SHORTEST <= getattr(self, name) < LONGEST:  # refuses NaN, too
                msg = f"{name} must be at least {SHORTEST} seconds, not {getattr(self, name)!r}"
                raise Invalid(msg)
        for name, most in _LIMITS.items():
            if not 0 <= getattr(self, name) < most:
                msg = f"{name} must be 0 (no limit) or more, not {getattr(self, name)!r}"
                raise Invalid(msg)

    @classmethod
    def from_environment(cls, **given: object) -> Self:
        """Use the given values, then the environment, then the defaults."""
        values: dict[str, object] = {}
        for each in fields(cls):
            text = os.environ.get(f"TOWPATH_{each.name.upper()}")
            if each.name in given:
                values[each.name] = given.pop(each.name)
            elif text is not None:
                values[each.name] = _read(each.name, text, each.default)
        if given:
            known = {each.name for each in fields(cls)}
            raise Invalid(about_unknown(given.keys(), known, "setting"))
        return cls(**values)  # type: ignore[arg-type] # _read gives each field its own type


@dataclass(frozen=True, slots=True)
class SettingNow:
    """A setting as a process has it."""

    name: str
    value: object  # HIDDEN if it is a secret
    default: object
    source: Literal["default", "environment", "given"]
    about: str


def settings_now(settings: Settings) -> list[SettingNow]:
    """Return all settings of a process, without secrets, and where each comes from."""
    return [
        SettingNow(
            each.name,
            value if each.repr or not value else HIDDEN,
            each.default,
            _source(each.name, value, each.default),
            _remarks().get(each.name, ""),
        )
        for each in fields(Settings)
        for value in [getattr(settings, each.name)]
    ]


def _source(
    name: str, value: object, default: object
) -> Literal["default", "environment", "given"]:
    text = os.environ.get(f"TOWPATH_{name.upper()}")
    with contextlib.suppress(Invalid):
        if text is not None and _read(name, text, default) == value:
            return "environment"
    return "default" if value == default else "given"


@cache
def _remarks() -> dict[str, str]:
    """Return the remark behind each field in this file, if the source is there."""
    with contextlib.suppress(OSError):
        return dict(_REMARK.findall(inspect.getsource(Settings)))
    return {}


_REMARK: Final = re.compile(r"^    (\w+): [^#\n]*  # (.+)$", re.MULTILINE)


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
