"""Dead letters: read them, and deliver them again by new sagas.

A dead letter never changes, and neither does its saga. A requeue makes a new saga; the letter has
all that this needs, also when the event is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from towpath.errors import Conflict, NotFound
from towpath.model.instants import FOREVER, as_datetime
from towpath.model.sagas import SagaStatus
from towpath.model.subscriptions import DeadLetter, Saga
from towpath.operation import Answer, Batch, Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store.rows import uuid_from
from towpath.store.sagas import SAGAS


class DeadLetterRow(NamedTuple):
    """A dead letter, as it is stored."""

    id: int
    saga_id: int
    subscription_id: int
    event: Any
    type: str | None
    at: int
    failed_at: int
    final_error_code: str | None
    requeued_as: int | None
    payload_snapshot: str
    encoding: str

    def letter(self) -> DeadLetter:
        """Return it as callers see it."""
        return DeadLetter(
            id=self.id,
            saga=self.saga_id,
            subscription=self.subscription_id,
            event=uuid_from(self.event),
            type=self.type,
            at=as_datetime(self.at),
            failed_at=as_datetime(self.failed_at),
            error_code=self.final_error_code,
            requeued_as=self.requeued_as,
            body=self.payload_snapshot,
            encoding=self.encoding,
        )


class Requeue(Struct, frozen=True):
    """Which dead letter is delivered again, and who asks for it."""

    letter: int
    actor: str


class RequeuedRow(NamedTuple):
    """The new saga of a dead letter, or why there is none."""

    nth: int
    saga: int | None
    problem: str | None
    event: Any
    type: str | None
    subscription_id: int
    replay_of: int
    at: int
    held: bool | int

    def made(self, saga: int) -> Saga:
        """Return the new saga. It is not read: an operator may not."""
        return Saga(
            id=saga,
            event=uuid_from(self.event),
            type=self.type,
            subscription=self.subscription_id,
            status=SagaStatus.HELD if self.held else SagaStatus.PENDING,
            attempts=0,
            next_attempt_at=None if self.held else as_datetime(self.at),
            created_at=as_datetime(self.at),
            finished_at=None,
            replay_of=self.replay_of,
            cancel_requested=False,
            last_error=None,
        )


class sql(Statements):
    """The statements of dead_letters.sql."""

    find = rows(DeadLetterRow)
    list = rows(DeadLetterRow)
    list_of = rows(DeadLetterRow)
    newest_requeue = rows(int)
    requeue = rows(RequeuedRow)
    requeued = rows(RequeuedRow)
    delete = rows(int)
    delete_requeues = no_rows()


def requeue(requeues: Sequence[Requeue]) -> Operation[list[Answer[Saga]]]:
    """Deliver dead letters again; answer with their new sagas.

    One of a paused or stopped subscription is Held, as the orchestrator is about to note.
    """
    newest: list[int] = []  # the saga of the newest requeue before the first try

    def steps() -> Steps[Changed[list[Answer[Saga]]]]:
        made: dict[int, Answer[Saga]] = {}
        if newest:
            made = yield from _made_since(newest[0], requeues)
        else:
            newest.extend((yield from sql.newest_requeue()))
        items = [
            {"nth": nth, "letter": each.letter, "actor": each.actor}
            for nth, each in enumerate(requeues)
            if nth not in made
        ]
        answers: dict[int, Answer[Saga]] = dict(made)
        for row in (yield from sql.requeue(items)) if items else ():
            answers[row.nth] = (
                _refusal(requeues[row.nth], row.problem) if row.saga is None else row.made(row.saga)
            )
        return Changed([answers[nth] for nth in range(len(requeues))], others=[SAGAS])

    return Operation(
        "requeue_dead_letters",
        steps,
        Mode.APPEND,
        locks=True,
        batch=Batch(requeues, requeue),
    )


def _made_since(newest: int, requeues: Sequence[Requeue]) -> Steps[dict[int, Answer[Saga]]]:
    """Find the sagas that an earlier try has made, whose answer was lost."""
    made: dict[int, Answer[Saga]] = {}
    for nth, each in enumerate(requeues):
        for found in (
            yield from sql.requeued(nth=nth, letter=each.letter, actor=each.actor, newest=newest)
        ):
            if found.saga is not None:
                made[nth] = found.made(found.saga)
    return made


def _refusal(each: Requeue, problem: str | None) -> NotFound | Conflict:
    if problem == "missing":
        return _missing(each.letter)
    if problem == "deleted":
        return Conflict(
            f"dead letter {each.letter}: its subscription was deleted; make another one"
        )
    return Conflict(f"dead letter {each.letter} is under way again; wait for its new saga to end")


def get(letter: int) -> Operation[DeadLetter]:
    """Read one dead letter."""

    def steps() -> Steps[DeadLetter]:
        found = yield from sql.find(letter=letter)
        if not found:
            raise _missing(letter)
        return found[0].letter()

    return Operation("get_dead_letter", steps, Mode.READ, autocommit=True)


def list_letters(
    limit: int, before: int | None = None, subscription: int | None = None
) -> Operation[list[DeadLetter]]:
    """List dead letters, the newest first, from before one on."""

    def steps() -> Steps[list[DeadLetter]]:
        first = FOREVER if before is None else before
        if subscription is None:
            found = yield from sql.list(before=first, limit=limit)
        else:
            found = yield from sql.list_of(subscription=subscription, before=first, limit=limit)
        return [row.letter() for row in found]

    return Operation("list_dead_letters", steps, Mode.READ, autocommit=True)


def delete(letter: int) -> Operation[bool]:
    """Forget a dead letter, and that it was requeued; say whether there was one."""

    def steps() -> Steps[bool]:
        yield sql.delete_requeues(letter=letter)
        return bool((yield from sql.delete(letter=letter)))

    return Operation("delete_dead_letter", steps)


def _missing(letter: int) -> NotFound:
    return NotFound(f"there is no dead letter {letter}; old ones are forgotten")
