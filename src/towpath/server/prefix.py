"""Serves an API under a path of its own, behind a proxy that strips the path or keeps it."""

from typing import Any, Final

from towpath.server.bodies import Receive, Scope
from towpath.server.dashboard import NOT_PAGES, PAGES

# A stripped path must not look like one that the proxy has kept.
TAKEN: Final = NOT_PAGES | {path.split("/")[1] for path in PAGES}


class Prefixed:
    """An ASGI application that begins at `prefix`, such as `/queue`."""

    def __init__(self, api: Any, prefix: str) -> None:
        self._api = api
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Any) -> None:
        """Answer a request."""
        prefix, path = self._prefix, scope["path"]
        below: dict[str, Any] = {"root_path": prefix}
        if path != prefix and not path.startswith(f"{prefix}/"):
            raw = scope.get("raw_path") or b""
            below |= {"path": prefix + path, "raw_path": prefix.encode() + raw}
        await self._api({**scope, **below}, receive, send)
