"""Every error that this package raises on purpose.

    TowpathError
    ├── Invalid                    the request makes no sense, whatever the state
    │   ├── InvalidTopic           a topic name outside [A-Za-z0-9_-]{1,200}
    │   │   └── TopicRequired      no topic at all
    │   ├── InvalidPayload         not JSON: NaN, lone surrogates, unknown types
    │   ├── InvalidArguments       they do not fit the task
    │   ├── PayloadTooLarge        over `max_payload`
    │   ├── InvalidTouchTime       touched again before `min_touch_interval`
    │   ├── InvalidRule            an access rule that cannot be read
    │   └── InvalidUrl             a database URL that we cannot read
    ├── LoginRefused               no such account, or another password
    ├── InvalidToken               a token or API key that does not hold, or no longer
    ├── NotFound                   no such job or topic
    ├── Conflict                   it exists, but its state does not allow this
    │   ├── InvalidState           the job is in another state
    │   ├── NotReserved            the job is not reserved
    │   │   └── LeaseLost          it was yours and no longer is
    │   ├── NotBuried              the job is not buried
    │   ├── JobFailed              its result was waited for, and there is none
    │   ├── JobCancelled           likewise
    │   ├── JobExists              the same id with other content
    │   ├── AccountExists          the same e-mail address
    │   └── KeyTaken               another unfinished job holds this key
    ├── LimitReached               a limit of the settings
    │   ├── MaxTopicsReached       one topic more than `max_topics`
    │   ├── MaxJobsReached         one job more than `max_jobs_per_topic`
    │   ├── TooManyWaiters         one waiting `reserve` more than `max_waiters_per_topic`
    │   ├── TooManyLogins          failed logins of one e-mail address or client
    │   └── TouchLimitExceeded     touched too often or for too long
    ├── Timeout                    it did not happen in time
    │   ├── ReserveTimeout         no job became ready in time
    │   ├── TimeLimitExceeded      a job ran longer than its `timeout`
    │   └── ResultTimeout          a job whose result was waited for goes on
    ├── SandboxFailed              the process of a sandboxed task died or did not begin
    ├── ExtraMissing               a package that is not installed
    ├── AppClosed                  the app was closed
    └── DatabaseError              the database refused or did not answer
        ├── DatabaseUnavailable    not reachable; what was acknowledged is safe
        ├── DatabaseBusy           locked by somebody else for too long
        ├── DatabaseFull           no space left
        ├── DatabaseReadOnly       it may not be written
        ├── DatabaseDenied         wrong password, or a role without the right
        ├── NotADatabase           the file is something else
        ├── IncompatibleData       a stored job that this version cannot read
        ├── SchemaMissing          our tables are not there and may not be created
        └── SchemaTooNew           written by a newer Towpath

The `code` is part of the HTTP API and of the SDKs: never rename one.
"""

from typing import ClassVar


class TowpathError(Exception):
    """The root of the tree; catch it to catch them all."""

    code: ClassVar[str] = "error"


class Invalid(TowpathError):
    """The request makes no sense, whatever the state. Nothing was stored."""

    code = "invalid"


class InvalidTopic(Invalid):
    """A topic is 1 to 200 letters, digits, underscores or hyphens."""

    code = "invalid_topic"


class TopicRequired(InvalidTopic):
    """Name at least one topic."""

    code = "topic_required"


class InvalidPayload(Invalid):
    """A payload is JSON: no NaN or Infinity, no lone surrogates, no unknown types."""

    code = "invalid_payload"


class InvalidArguments(Invalid):
    """The arguments do not fit the task: correct the call, or the task if the job is older."""

    code = "invalid_arguments"


class PayloadTooLarge(Invalid):
    """Store the data elsewhere and enqueue a reference, or raise `max_payload`."""

    code = "payload_too_large"


class InvalidTouchTime(Invalid):
    """Touched again too soon; wait for `min_touch_interval`."""

    code = "invalid_touch_time"


class InvalidRule(Invalid):
    """An access rule that cannot be read; `position` is the character at which it goes wrong.

    Where it was to be stored, `rule` is its name.
    """

    code = "invalid_rule"

    def __init__(self, message: str, position: int = 0, rule: str = "") -> None:
        super().__init__(message)
        self.position = position
        self.rule = rule


class InvalidUrl(Invalid):
    """Use `sqlite:///path`, `memory://` or `postgresql://…`."""

    code = "invalid_url"


class LoginRefused(TowpathError):
    """There is no such account, or its password is another one; which of them is not said."""

    code = "login_refused"


class InvalidToken(TowpathError):
    """Log in again, or use another key: this one is wrong, expired or revoked."""

    code = "invalid_token"


class NotFound(TowpathError):
    """There is no such job or topic, or no longer."""

    code = "not_found"


class Conflict(TowpathError):
    """The current state does not allow this."""

    code = "conflict"


class InvalidState(Conflict):
    """The job is in a state that does not allow this; look at it and decide again."""

    code = "invalid_state"


class NotReserved(Conflict):
    """The job is not reserved, so nobody can settle it."""

    code = "not_reserved"


class LeaseLost(NotReserved):
    """The lease ended and the job may be someone else's.

    Stop working on it: whatever you write for it now is refused.
    """

    code = "lease_lost"


class NotBuried(Conflict):
    """Only a buried or delayed job can be kicked."""

    code = "not_buried"


class JobFailed(Conflict):
    """The job whose result was waited for is buried: its `failures` say why."""

    code = "job_failed"


class JobCancelled(Conflict):
    """The job whose result was waited for was cancelled."""

    code = "job_cancelled"


class JobExists(Conflict):
    """A job with this id and other content is stored already; choose a new id."""

    code = "job_exists"


class AccountExists(Conflict):
    """Another account of the collection has this e-mail address."""

    code = "account_exists"


class KeyTaken(Conflict):
    """Another unfinished job of the topic holds this key; finish or cancel that one first."""

    code = "key_taken"


class LimitReached(TowpathError):
    """A limit of the settings was reached. Nothing was stored."""

    code = "limit_reached"


class MaxTopicsReached(LimitReached):
    """No further topic may be created; raise `max_topics` or delete one."""

    code = "max_topics_reached"


class MaxJobsReached(LimitReached):
    """The topic is full; raise `max_jobs_per_topic` or let workers catch up."""

    code = "max_jobs_reached"


class TooManyWaiters(LimitReached):
    """Too many callers wait for this topic; raise `max_waiters_per_topic`."""

    code = "too_many_waiters"


class TooManyLogins(LimitReached):
    """Too many logins failed; wait for `retry_after` seconds."""

    code = "too_many_logins"

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TouchLimitExceeded(LimitReached):
    """The job was touched too often or for too long; release it and take it again."""

    code = "touch_limit_exceeded"


class Timeout(TowpathError):
    """It did not happen in time."""

    code = "timeout"


class ReserveTimeout(Timeout):
    """No job became ready in time."""

    code = "reserve_timeout"


class TimeLimitExceeded(Timeout):
    """The job ran longer than its `timeout`: raise that, or make the job smaller."""

    code = "time_limit_exceeded"


class SandboxFailed(TowpathError):
    """The process of a sandboxed task died, or did not find its task; the worker goes on."""

    code = "sandbox_failed"


class ResultTimeout(Timeout):
    """The job did not end in time; it goes on."""

    code = "result_timeout"


class ExtraMissing(TowpathError):
    """A package is not installed that this needs; `pip install 'towpath[server]'` brings it."""

    code = "extra_missing"


class AppClosed(TowpathError):
    """The app was closed; make a new one."""

    code = "app_closed"


class DatabaseError(TowpathError):
    """The database refused this; nothing was stored."""

    code = "database_error"


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached. What was acknowledged is safe; try again later."""

    code = "database_unavailable"


class DatabaseBusy(DatabaseError):
    """Another transaction holds the lock: end it, raise `busy_timeout`, or give `connection=`."""

    code = "database_busy"


class DatabaseFull(DatabaseError):
    """No space is left. Nothing of this call was stored; free some space and try again."""

    code = "database_full"


class DatabaseReadOnly(DatabaseError):
    """The database may not be written; check its file permissions or connect to the primary."""

    code = "database_read_only"


class DatabaseDenied(DatabaseError):
    """The database turned us away; check user, password and rights."""

    code = "database_denied"


class NotADatabase(DatabaseError):
    """The path is not a SQLite database; name another file."""

    code = "not_a_database"


class IncompatibleData(DatabaseError):
    """A stored job has a form that this version cannot read; upgrade, or delete the job."""

    code = "incompatible_data"


class SchemaMissing(DatabaseError):
    """Our tables are not there; run `towpath migrate` as a role that may create them."""

    code = "schema_missing"


class SchemaTooNew(DatabaseError):
    """A newer Towpath has changed the tables; upgrade this process."""

    code = "schema_too_new"
