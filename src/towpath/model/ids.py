"""Public ids: UUIDv7, ordered by time; the client makes them, so a repeated enqueue is detected."""

import sys

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    from uuid_utils.compat import uuid7

__all__ = ["uuid7"]
