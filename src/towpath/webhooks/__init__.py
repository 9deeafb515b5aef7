"""Webhooks: what a receiver needs is here; what sends them needs `towpath[webhooks]`."""

from towpath.model.signatures import Received
from towpath.webhooks.receiving import job_id, verify

__all__ = ["Received", "job_id", "verify"]
