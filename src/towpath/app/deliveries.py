"""The verbs of what delivers webhooks: its roles in PostgreSQL, and how much there is to do."""

from typing import TYPE_CHECKING

from towpath.errors import Conflict
from towpath.store import roles, webhook_facts
from towpath.store.webhook_facts import WebhookCounts

if TYPE_CHECKING:
    from towpath.app.app import App


class DeliveryVerbs:
    """Looks after the parts that deliver webhooks; `acting` runs them."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def acounts(self) -> WebhookCounts:
        """Count subscriptions, attempts that have not ended, and dead letters."""
        return await self._app.arun(webhook_facts.counts())

    def roles_sql(self) -> str:
        """Return the SQL that makes the roles of webhooks; to run it again changes nothing."""
        return "".join(f"{text};\n" for text in roles.texts(self._app.settings.schema))

    async def amake_roles(self) -> None:
        """Make the roles, or bring their rights up to date; the caller may create roles."""
        _check_roles(self._app)
        await self._app.arun(roles.make(self._app.settings.schema))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def counts(self) -> WebhookCounts:
        """Count subscriptions, attempts that have not ended, and dead letters."""
        return self._app.run(webhook_facts.counts())

    def make_roles(self) -> None:
        """Make the roles, or bring their rights up to date; the caller may create roles."""
        _check_roles(self._app)
        self._app.run(roles.make(self._app.settings.schema))


def _check_roles(app: "App") -> None:
    if not app.url.startswith(("postgres://", "postgresql://")):
        msg = f"{app.database} has no roles; there the code alone keeps the parts apart"
        raise Conflict(msg)
