"""The verbs of limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from towpath.model.limits import LimitInUse
from towpath.store import limits

if TYPE_CHECKING:
    from towpath.app.app import App


class Limits:
    """The limits in use."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def alist(self, most: int | None = None) -> Sequence[LimitInUse]:
        """Read every limit that an unfinished job has, and how many of its jobs run and wait.

        With `most`, so many that wait are counted, of all limits together.
        """
        return await self._app.arun(limits.list_limits(None, most))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def list(self, most: int | None = None) -> Sequence[LimitInUse]:
        """Read every limit that an unfinished job has, and how many of its jobs run and wait.

        With `most`, so many that wait are counted, of all limits together.
        """
        return self._app.run(limits.list_limits(None, most))
