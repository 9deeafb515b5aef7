"""Public ids: UUIDv7, ordered by time; the client makes them, so a repeated enqueue is detected."""

import hashlib
import sys
from uuid import UUID

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    from uuid_utils.compat import uuid7

__all__ = ["uuid7", "uuid8_of"]


def uuid8_of(name: bytes) -> UUID:
    """Return the id that belongs to a name: UUID version 8, as the way is our own."""
    number = int.from_bytes(hashlib.sha256(name).digest()[:16], "big")
    number = number & ~(0xF << 76) | 8 << 76
    return UUID(int=number & ~(0b11 << 62) | 0b10 << 62)
