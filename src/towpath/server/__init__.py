"""The servers for other programs: the HTTP API, and beanstalkd's protocol."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from towpath.server.api import Api

__all__ = ["Api"]


def __getattr__(name: str) -> Any:
    """Import the HTTP API on first use: beanstalkd's protocol does not need its packages."""
    if name == "Api":
        from towpath.server.api import Api  # noqa: PLC0415 - see above

        return Api
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
