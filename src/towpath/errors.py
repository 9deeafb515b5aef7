"""Every error that this package raises on purpose.

    TowpathError
    ├── Invalid                    the request is wrong in itself
    │   ├── InvalidTopic           a topic name outside [A-Za-z0-9_-]{1,200}
    │   │   └── TopicRequired      no topic at all
    │   ├── InvalidChannel         a channel name outside [A-Za-z0-9_.:-]{1,200}, or one of ours
    │   ├── InvalidCursor          text that is not a cursor
    │   ├── InvalidPayload         not JSON: NaN, lone surrogates, unknown types
    │   ├── InvalidArguments       arguments that do not fit the task
    │   ├── PayloadTooLarge        over `max_payload`
    │   ├── InvalidTouchTime       touched again before `min_touch_interval`
    │   ├── InvalidRule            an access rule that cannot be read
    │   ├── InvalidUrl             a database URL that cannot be read
    │   ├── InvalidTarget          a webhook's URL that cannot be called
    │   ├── BlockedTarget          a webhook's URL whose address is not public
    │   ├── InvalidHeader          a custom header of a webhook that cannot be sent
    │   └── InvalidSecret          a webhook's secret that is not `whsec_…`
    ├── LoginRefused               unknown account or wrong password
    ├── InvalidToken               a token or API key that is wrong, expired or revoked
    ├── InvalidSignature           a webhook that no secret of ours has signed, or not lately
    ├── KeyMissing                 no key for the secrets of webhooks
    ├── SealBroken                 sealed secrets of a webhook that were changed
    ├── NotFound                   no such job, topic or channel
    │   └── ChannelGone            a channel that was deleted, and that others were forked from
    ├── Conflict                   the current state does not allow the request
    │   ├── InvalidState           the job is in another state
    │   ├── NotReserved            the job is not reserved
    │   │   └── LeaseLost          the lease of the caller has ended
    │   ├── NotBuried              the job is not buried
    │   ├── ChannelClosed          a publish to a channel that has ended
    │   ├── ConsumerFenced         another reader has attached as the same consumer
    │   ├── ConsumerTaken          a consumer that belongs to another caller
    │   ├── ChannelExists          a channel that was made in another way
    │   ├── WrongMedia             an append of another media type than the channel's
    │   ├── OutOfOrder             an append behind a later one, or ahead of a missing one
    │   ├── ProducerFenced         an append of a producer that has started again
    │   ├── WordsMissing           words of a run that came before those that go before them
    │   ├── CursorReset            a cursor whose events are gone, or never were here
    │   ├── JobFailed              `result` waited for a job that failed
    │   ├── JobCancelled           `result` waited for a job that was cancelled
    │   ├── JobExists              the same id with other content
    │   ├── AccountExists          the same e-mail address
    │   └── KeyTaken               another unfinished job has this key
    ├── StreamBehind               a run that says more than can be written
    ├── LimitReached               a limit of the settings
    │   ├── MaxTopicsReached       more topics than `max_topics`
    │   ├── MaxJobsReached         more jobs than `max_jobs_per_topic`
    │   ├── MaxChannelsReached     more channels than `max_channels`
    │   ├── MaxConsumersReached    more consumers of one channel than `max_consumers`
    │   ├── TooManyWaiters         more waiting `reserve` calls than `max_waiters_per_topic`
    │   ├── TooManyLogins          failed logins of one e-mail address or client
    │   └── TouchLimitExceeded     touched too often or for too long
    ├── Timeout                    it did not happen in time
    │   ├── ReserveTimeout         no job became ready in time
    │   ├── TimeLimitExceeded      a job ran longer than its `timeout`
    │   └── ResultTimeout          `result` waited for a job that has not ended
    ├── SandboxFailed              the process of a sandboxed task died or did not start
    ├── ExtraMissing               a package that is not installed
    ├── AppClosed                  the app is closed
    └── DatabaseError              the database refused or did not answer
        ├── DatabaseUnavailable    not reachable; acknowledged data is safe
        ├── DatabaseBusy           locked by another transaction for too long
        ├── DatabaseFull           no space left
        ├── DatabaseReadOnly       it cannot be written
        ├── DatabaseDenied         wrong password, or a role without permission
        ├── NotADatabase           the file is not a database
        ├── IncompatibleData       a stored job that this version cannot read
        ├── SchemaMissing          Towpath's tables do not exist and may not be created
        └── SchemaTooNew           written by a newer version of Towpath

The `code` is part of the HTTP API and of the SDKs: never rename one.
"""

from typing import ClassVar


class TowpathError(Exception):
    """The base class of all errors of Towpath."""

    code: ClassVar[str] = "error"


class Invalid(TowpathError):
    """The request is wrong in itself. Nothing was stored."""

    code = "invalid"


class InvalidTopic(Invalid):
    """A topic is 1 to 200 letters, digits, underscores or hyphens."""

    code = "invalid_topic"


class TopicRequired(InvalidTopic):
    """Name at least one topic."""

    code = "topic_required"


class InvalidChannel(Invalid):
    """A channel is 1 to 200 letters, digits, `_.:-`; `job:…` and `system` belong to Towpath."""

    code = "invalid_channel"


class InvalidCursor(Invalid):
    """Pass a cursor that an event or a page has told, or leave it out to read from the start."""

    code = "invalid_cursor"


class InvalidPayload(Invalid):
    """A payload is JSON: no NaN or Infinity, no lone surrogates, no unknown types."""

    code = "invalid_payload"


class InvalidArguments(Invalid):
    """The arguments do not fit the task: correct the call, or let the task accept older jobs."""

    code = "invalid_arguments"


class PayloadTooLarge(Invalid):
    """Store the data elsewhere and enqueue a reference, or raise `max_payload`."""

    code = "payload_too_large"


class InvalidTouchTime(Invalid):
    """Touched again too soon; wait for `min_touch_interval`."""

    code = "invalid_touch_time"


class InvalidRule(Invalid):
    """The access rule cannot be read; `position` is the index of the character that is wrong.

    `rule` is the name of the rule if it was to be stored.
    """

    code = "invalid_rule"

    def __init__(self, message: str, position: int = 0, rule: str = "") -> None:
        super().__init__(message)
        self.position = position
        self.rule = rule


class InvalidUrl(Invalid):
    """Use `sqlite:///path`, `memory://` or `postgresql://…`."""

    code = "invalid_url"


class InvalidTarget(Invalid):
    """A webhook's URL is https://host/path, without user, fragment or odd forms of addresses."""

    code = "invalid_target"


class BlockedTarget(Invalid):
    """Webhooks call public addresses only; `webhook_allow` adds networks of your own."""

    code = "blocked_target"


class InvalidHeader(Invalid):
    """A custom header of a webhook has a name of its own and printable ASCII as its value."""

    code = "invalid_header"


class InvalidSecret(Invalid):
    """A webhook's secret is `whsec_` and the base64 of 24 to 64 bytes."""

    code = "invalid_secret"


class InvalidSignature(TowpathError):
    """The webhook was signed by another secret, changed on its way, or sent too long ago."""

    code = "invalid_signature"


class KeyMissing(TowpathError):
    """Put the key of the webhooks' secrets into TOWPATH_WEBHOOK_KEY."""

    code = "key_missing"


class SealBroken(TowpathError):
    """The sealed secrets were changed in the database; rotate the secret of the subscription."""

    code = "seal_broken"


class LoginRefused(TowpathError):
    """The account does not exist or the password is wrong; the error does not tell which."""

    code = "login_refused"


class InvalidToken(TowpathError):
    """Log in again, or use another key: this one is wrong, expired or revoked."""

    code = "invalid_token"


class NotFound(TowpathError):
    """The job, topic or channel does not exist, or no longer exists."""

    code = "not_found"


class ChannelGone(NotFound):
    """The channel was deleted; its name is free again when its last fork is deleted, too."""

    code = "channel_gone"


class Conflict(TowpathError):
    """The current state does not allow this."""

    code = "conflict"


class InvalidState(Conflict):
    """The state of the job does not allow this; read the job and decide again."""

    code = "invalid_state"


class NotReserved(Conflict):
    """The job is not reserved; reserve it before you complete, fail, release or bury it."""

    code = "not_reserved"


class LeaseLost(NotReserved):
    """The lease has ended, and another worker may have the job.

    Stop working on it: every later call with this lease is refused.
    """

    code = "lease_lost"


class NotBuried(Conflict):
    """Only a buried or delayed job can be kicked."""

    code = "not_buried"


class ChannelClosed(Conflict):
    """The channel was closed, so nothing can be added to it."""

    code = "channel_closed"

    def __init__(self, message: str, head: str | None = None) -> None:
        super().__init__(message)
        self.head = head  # the cursor of its last event, if that is known


class ChannelExists(Conflict):
    """The channel exists and was made in another way; use another name, or delete it before."""

    code = "channel_exists"


class WrongMedia(Conflict):
    """The channel has another media type; send what it was made for."""

    code = "wrong_media"


class OutOfOrder(Conflict):
    """A later append was stored before this one, or one is missing in between.

    `expected` is the number of the producer's next append, `received` the number of this one; they
    are None where the application gave the order itself.
    """

    code = "out_of_order"

    def __init__(
        self, message: str, expected: int | None = None, received: int | None = None
    ) -> None:
        super().__init__(message)
        self.expected = expected
        self.received = received


class ProducerFenced(Conflict):
    """The same producer has started again; `epoch` is that of the one that may append."""

    code = "producer_fenced"

    def __init__(self, message: str, epoch: int) -> None:
        super().__init__(message)
        self.epoch = epoch


class ConsumerFenced(Conflict):
    """Another reader has attached as this consumer, so acks of this one are refused.

    Stop reading: the other one gets the events from the last ack on.
    """

    code = "consumer_fenced"


class ConsumerTaken(Conflict):
    """The consumer belongs to another caller; read under another name."""

    code = "consumer_taken"


class WordsMissing(Conflict):
    """Words before these are not stored: send all from `said` on again, in order."""

    code = "words_missing"

    def __init__(self, message: str, said: int) -> None:
        super().__init__(message)
        self.said = said  # words of the run that are stored


class CursorReset(Conflict):
    """The reader cannot go on from its cursor: it has missed events, or the channel is another one.

    Read again from `oldest` or from `head`. The reason is `retention` (the events were deleted),
    `channel` (the channel was deleted, and perhaps made again), `era` (a backup was restored) or
    `ahead` (the channel has not so many events).
    """

    code = "cursor_reset"

    def __init__(self, message: str, reason: str, oldest: str, head: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.oldest = oldest
        self.head = head


class JobFailed(Conflict):
    """The job that `result` waited for is buried: its `failures` give the reason."""

    code = "job_failed"


class JobCancelled(Conflict):
    """The job that `result` waited for was cancelled."""

    code = "job_cancelled"


class JobExists(Conflict):
    """A job with this id but other content exists already; choose a new id."""

    code = "job_exists"


class AccountExists(Conflict):
    """Another account of the collection has this e-mail address."""

    code = "account_exists"


class KeyTaken(Conflict):
    """Another unfinished job of the topic has this key; finish or cancel that job first."""

    code = "key_taken"


class StreamBehind(TowpathError):
    """The words of this run wait to be written, and are too many.

    Await `apublish` or `astream`. In `ctx.transaction` say less: its end writes what it says.
    """

    code = "stream_behind"


class LimitReached(TowpathError):
    """A limit of the settings was reached. Nothing was stored."""

    code = "limit_reached"


class MaxTopicsReached(LimitReached):
    """No further topic may be created; raise `max_topics` or delete one."""

    code = "max_topics_reached"


class MaxJobsReached(LimitReached):
    """The topic is full; raise `max_jobs_per_topic` or let workers catch up."""

    code = "max_jobs_reached"


class MaxChannelsReached(LimitReached):
    """No further channel may begin; delete one that is not needed, or raise `max_channels`."""

    code = "max_channels_reached"


class MaxConsumersReached(LimitReached):
    """The channel has no room for another consumer; forget one, or raise `max_consumers`."""

    code = "max_consumers_reached"


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
    """The job was touched too often or for too long; release it and reserve it again."""

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
    """The process of a sandboxed task died or did not find its task; the worker continues."""

    code = "sandbox_failed"


class ResultTimeout(Timeout):
    """The job did not end in time; it is still waiting or running."""

    code = "result_timeout"


class ExtraMissing(TowpathError):
    """A required package is not installed; `pip install 'towpath[server]'` installs it."""

    code = "extra_missing"


class AppClosed(TowpathError):
    """The app was closed; make a new one."""

    code = "app_closed"

    def __init__(self, message: str = "this app was closed; make a new one") -> None:
        super().__init__(message)


class DatabaseError(TowpathError):
    """The database refused this; nothing was stored."""

    code = "database_error"


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached. Acknowledged data is safe; try again later."""

    code = "database_unavailable"


class DatabaseBusy(DatabaseError):
    """Another transaction holds the lock: end it, raise `busy_timeout`, or pass `connection=`."""

    code = "database_busy"


class DatabaseFull(DatabaseError):
    """No space is left. This call stored nothing; free some space and try again."""

    code = "database_full"


class DatabaseReadOnly(DatabaseError):
    """The database cannot be written; check its file permissions or connect to the primary."""

    code = "database_read_only"


class DatabaseDenied(DatabaseError):
    """The database refused the login or the access; check user, password and permissions."""

    code = "database_denied"


class NotADatabase(DatabaseError):
    """The file is not a SQLite database; use another path."""

    code = "not_a_database"


class IncompatibleData(DatabaseError):
    """A stored job has a format that this version cannot read; upgrade, or delete the job."""

    code = "incompatible_data"


class SchemaMissing(DatabaseError):
    """Towpath's tables do not exist; run `towpath migrate` as a role that may create them."""

    code = "schema_missing"


class SchemaTooNew(DatabaseError):
    """A newer version of Towpath has changed the tables; upgrade this process."""

    code = "schema_too_new"
