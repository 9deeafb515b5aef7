"""Public ids: UUIDv7, time-ordered and made by the client, so that a repeated enqueue is known."""

import sys

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    from uuid_utils.compat import uuid7

__all__ = ["uuid7"]
