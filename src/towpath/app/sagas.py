"""The verbs of sagas: the deliveries of single events to single subscriptions."""

from typing import TYPE_CHECKING, Final
from uuid import UUID

from towpath.app.checks import at_least_one
from towpath.app.webhook_checks import number_of, type_of
from towpath.errors import Invalid
from towpath.model.sagas import SagaStatus
from towpath.model.subscriptions import Attempt, Saga
from towpath.operation import answered
from towpath.store import sagas

if TYPE_CHECKING:
    from towpath.app.app import App

MOST_PAGE: Final = 1_000


class Sagas:
    """The deliveries of events: each of one event to one subscription."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def aget(self, saga: int) -> Saga:
        """Read a saga."""
        return await self._app.arun(sagas.get(_number(saga)))

    async def aof_event(self, event: UUID) -> list[Saga]:
        """Read the sagas of an event, by its id, which is the `webhook-id` of its requests."""
        return await self._app.arun(sagas.of_event(_event(event)))

    async def aattempts(self, saga: int) -> list[Attempt]:
        """Read the attempts of a saga, in order."""
        number = (await self.aget(saga)).id
        return await self._app.arun(sagas.attempts(number))

    async def aresend(self, saga: int, *, confirm: bool = False) -> Saga:
        """Deliver the event of an ended saga once more, by a new saga, under the same `webhook-id`.

        A saga that was delivered needs `confirm`: the receiver gets its event again. One that
        failed for good has a dead letter, which is requeued instead, unless it was deleted.
        """
        return await self._app.arun(sagas.resend(_number(saga), confirm=confirm is True))

    async def acancel(self, saga: int) -> Saga:
        """End a saga without a further attempt; one with an attempt under way ends with it.

        If that attempt succeeds, the saga is completed all the same.
        """
        return answered((await self._app.arun(sagas.cancel([_number(saga)])))[0])

    async def alist(
        self,
        *,
        subscription: int | None = None,
        status: SagaStatus | str | None = None,
        type: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Saga]:
        """List sagas, the newest first, from before one on.

        `subscription`, `status` and the `type` of the event choose some of them.
        """
        return await self._app.arun(
            sagas.list_sagas(
                min(at_least_one(limit, "limit"), MOST_PAGE),
                None if before is None else _number(before),
                None if subscription is None else number_of(subscription, "subscription"),
                None if status is None else _status(status),
                type_of(type),
            )
        )

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def get(self, saga: int) -> Saga:
        """Read a saga."""
        return self._app.run(sagas.get(_number(saga)))

    def of_event(self, event: UUID) -> list[Saga]:
        """Read the sagas of an event, by its id, which is the `webhook-id` of its requests."""
        return self._app.run(sagas.of_event(_event(event)))

    def attempts(self, saga: int) -> list[Attempt]:
        """Read the attempts of a saga, in order."""
        number = self.get(saga).id
        return self._app.run(sagas.attempts(number))

    def resend(self, saga: int, *, confirm: bool = False) -> Saga:
        """Deliver the event of an ended saga once more, by a new saga, under the same `webhook-id`.

        A saga that was delivered needs `confirm`: the receiver gets its event again. One that
        failed for good has a dead letter, which is requeued instead, unless it was deleted.
        """
        return self._app.run(sagas.resend(_number(saga), confirm=confirm is True))

    def cancel(self, saga: int) -> Saga:
        """End a saga without a further attempt; one with an attempt under way ends with it.

        If that attempt succeeds, the saga is completed all the same.
        """
        return answered(self._app.run(sagas.cancel([_number(saga)]))[0])

    def list(
        self,
        *,
        subscription: int | None = None,
        status: SagaStatus | str | None = None,
        type: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Saga]:
        """List sagas, the newest first, from before one on.

        `subscription`, `status` and the `type` of the event choose some of them.
        """
        return self._app.run(
            sagas.list_sagas(
                min(at_least_one(limit, "limit"), MOST_PAGE),
                None if before is None else _number(before),
                None if subscription is None else number_of(subscription, "subscription"),
                None if status is None else _status(status),
                type_of(type),
            )
        )


def _number(saga: int) -> int:
    return number_of(saga, "saga")


def _event(event: UUID) -> UUID:
    if not isinstance(event, UUID):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"{str(event)[:100]!r} is not the id of an event, which is a UUID"
        raise Invalid(msg)
    return event


def _status(status: str) -> SagaStatus:
    try:
        return SagaStatus(status)
    except ValueError as error:
        msg = f"unknown status {status!r}; known statuses: {', '.join(SagaStatus)}"
        raise Invalid(msg) from error
