"""The event loop of this thread."""

import asyncio
from asyncio import _get_running_loop  # the public function is slow: it raises where none runs


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread, if one runs."""
    return _get_running_loop()
