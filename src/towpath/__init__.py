"""Jobs, event streams and webhooks in the database you already have."""

from towpath.app.app import App
from towpath.errors import TowpathError
from towpath.model.backoff import Backoff
from towpath.model.job import Job, Lease, UnreadableJob
from towpath.model.states import State, Status
from towpath.settings import Settings

__all__ = [
    "App",
    "Backoff",
    "Job",
    "Lease",
    "Settings",
    "State",
    "Status",
    "TowpathError",
    "UnreadableJob",
]
