"""The verbs of dead letters: sagas that failed for good."""

from typing import TYPE_CHECKING, Any, Final

from towpath.app.checks import at_least_one
from towpath.app.webhook_checks import number_of
from towpath.errors import Invalid
from towpath.model.payload import clean_text
from towpath.model.subscriptions import DeadLetter, Saga
from towpath.operation import answered
from towpath.store import dead_letters
from towpath.store.dead_letters import Requeue

if TYPE_CHECKING:
    from towpath.app.app import App

MOST_PAGE: Final = 1_000
MOST_ACTOR: Final = 255


class DeadLetters:
    """Sagas that failed for good, with their events. They never change."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def aget(self, letter: int) -> DeadLetter:
        """Read a dead letter."""
        return await self._app.arun(dead_letters.get(_number(letter)))

    async def alist(
        self, *, subscription: int | None = None, before: int | None = None, limit: int = 50
    ) -> list[DeadLetter]:
        """List dead letters, the newest first, from before one on; all, or of a subscription."""
        return await self._app.arun(
            dead_letters.list_letters(
                min(at_least_one(limit, "limit"), MOST_PAGE),
                None if before is None else _number(before),
                None if subscription is None else number_of(subscription, "subscription"),
            )
        )

    async def arequeue(self, letter: int, *, actor: str = "") -> Saga:
        """Deliver the event of a dead letter again, by a new saga; `actor` is noted with it.

        Conflict if its subscription was deleted, or if an earlier requeue is still under way. It
        also works when the event itself is forgotten. If its subscription is paused or stopped, the
        saga is Held, until `resume` or `enable`.
        """
        requeue = Requeue(_number(letter), _actor(actor))
        return answered((await self._app.arun(dead_letters.requeue([requeue])))[0])

    async def adelete(self, letter: int) -> bool:
        """Forget a dead letter and its requeues; say whether there was one."""
        return await self._app.arun(dead_letters.delete(_number(letter)))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def get(self, letter: int) -> DeadLetter:
        """Read a dead letter."""
        return self._app.run(dead_letters.get(_number(letter)))

    def list(
        self, *, subscription: int | None = None, before: int | None = None, limit: int = 50
    ) -> list[DeadLetter]:
        """List dead letters, the newest first, from before one on; all, or of a subscription."""
        return self._app.run(
            dead_letters.list_letters(
                min(at_least_one(limit, "limit"), MOST_PAGE),
                None if before is None else _number(before),
                None if subscription is None else number_of(subscription, "subscription"),
            )
        )

    def requeue(self, letter: int, *, actor: str = "") -> Saga:
        """Deliver the event of a dead letter again, by a new saga; `actor` is noted with it.

        Conflict if its subscription was deleted, or if an earlier requeue is still under way. It
        also works when the event itself is forgotten. If its subscription is paused or stopped, the
        saga is Held, until `resume` or `enable`.
        """
        requeue = Requeue(_number(letter), _actor(actor))
        return answered(self._app.run(dead_letters.requeue([requeue]))[0])

    def delete(self, letter: int) -> bool:
        """Forget a dead letter and its requeues; say whether there was one."""
        return self._app.run(dead_letters.delete(_number(letter)))


def _number(letter: int) -> int:
    return number_of(letter, "dead letter")


def _actor(actor: Any) -> str:
    if not isinstance(actor, str) or clean_text(actor, MOST_ACTOR) != actor:
        msg = f"actor must be text of at most {MOST_ACTOR} characters without NUL"
        raise Invalid(msg)
    return actor
