"""Jobs, event streams and webhooks in the database you already have."""

from towpath.app.app import App
from towpath.app.context import Bury, Cancel, Context, Retry
from towpath.app.flows import Chain, Group, Step, group
from towpath.app.tasks import Task, TaskJob
from towpath.errors import TowpathError
from towpath.model.backoff import Backoff
from towpath.model.channels import Channel
from towpath.model.consumers import Attachment, Consumer, Owner
from towpath.model.event import Event, EventPage, NewEvent, StreamEnd
from towpath.model.flows import PartOutcome
from towpath.model.job import Job, Lease, LogLine, Said, UnreadableJob
from towpath.model.limits import Limit
from towpath.model.schedule import Schedule
from towpath.model.states import State, Status
from towpath.settings import Settings

__all__ = [
    "App",
    "Attachment",
    "Backoff",
    "Bury",
    "Cancel",
    "Chain",
    "Channel",
    "Consumer",
    "Context",
    "Event",
    "EventPage",
    "Group",
    "Job",
    "Lease",
    "Limit",
    "LogLine",
    "NewEvent",
    "Owner",
    "PartOutcome",
    "Retry",
    "Said",
    "Schedule",
    "Settings",
    "State",
    "Status",
    "Step",
    "StreamEnd",
    "Task",
    "TaskJob",
    "TowpathError",
    "UnreadableJob",
    "group",
]
