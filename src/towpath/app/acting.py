"""An app in one role of the work on webhooks: it runs what the role may run, and refuses the rest.

On PostgreSQL a process may also log in as such a role, and the database refuses it the same.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from towpath.app.ringing import Ringing
from towpath.database.wakeups import Wakeups
from towpath.errors import DatabaseDenied
from towpath.model.sagas import Role, may_run
from towpath.operation import Operation, Wakeup

if TYPE_CHECKING:
    from towpath.app.app import App

T = TypeVar("T")


class Acting:
    """The operations of one role."""

    def __init__(self, app: "App", role: Role, wakeups: Wakeups) -> None:
        self.role = role
        self.settings = app.settings
        self._app = app
        self._wakeups = wakeups

    def run(self, operation: Operation[T]) -> T:
        """Run an operation of this role."""
        self._check(operation)
        return self._app.run(operation)

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation of this role."""
        self._check(operation)
        return await self._app.arun(operation)

    def hear(self, names: Iterable[Wakeup] = ()) -> Ringing:
        """Hear wakeups, from a task."""
        return Ringing(self._wakeups, names)

    def _check(self, operation: Operation[T]) -> None:
        if not may_run(self.role, operation.name):
            msg = f"the role {self.role} may not run {operation.name}"
            raise DatabaseDenied(msg)
