"""Acts: what people did, as events of the channel `system`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from towpath.store import lifecycle

if TYPE_CHECKING:
    from towpath.app.app import App


class Acts:
    """What people did; `app.events` reads it, by the types `act.*`."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def anote(self, what: str, fields: Mapping[str, Any]) -> None:
        """Post an event of type `act.WHAT`, whatever the setting `lifecycle` says."""
        await self._app.arun(lifecycle.post_act(what, fields))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def note(self, what: str, fields: Mapping[str, Any]) -> None:
        """Post an event of type `act.WHAT`, whatever the setting `lifecycle` says."""
        self._app.run(lifecycle.post_act(what, fields))
