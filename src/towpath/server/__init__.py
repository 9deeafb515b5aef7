"""The doors for other programs: the HTTP API."""

from towpath.server.api import Api

__all__ = ["Api"]
