"""The delay-queue door over all topics: by number, several at once, and counted."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from towpath.app import outcomes
from towpath.app.checks import seq_of
from towpath.app.sessions import new_number
from towpath.model.job import Lease
from towpath.model.topics import all_checked, checked
from towpath.operation import Answer, Operation, answered
from towpath.store import leases as store
from towpath.store import queues
from towpath.store.leases import Settled
from towpath.store.queues import Pick, QueueCounts, Seen

if TYPE_CHECKING:
    from towpath.app.app import App


class Queues:
    """What a server of delay queues needs beyond the verbs of jobs."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def acounts(self, topic: str | None = None) -> list[QueueCounts]:
        """Count the unfinished jobs of each topic, or of one; what is due is ready."""
        return await self._app.arun(_counts(topic))

    async def alook(self, seq: int) -> Seen | None:
        """Read the job of this number and the clock, or None."""
        return await self._app.arun(queues.look(seq_of(seq)))

    async def acome_due(self, topics: str | Iterable[str]) -> None:
        """Put in line what is due in these topics; a reservation does so by itself."""
        due = queues.come_due(all_checked(topics))
        while await self._app.arun(due):
            pass

    async def apick(self, seq: int, session: int | None = None) -> Lease:
        """Lease the ready, delayed or buried job of this number until its ttr."""
        return answered((await self._app.arun(_pick(seq, session)))[0])

    async def adelete_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Done, and gone without a trace; return the leases that were lost."""
        answers = await self._app.arun(_discard(leases))
        return outcomes.lost(leases, answers)

    async def agive_back(self, leases: Sequence[Lease]) -> None:
        """Make jobs ready again, as if they had not been reserved; what was lost is left alone."""
        await self._app.arun(_give_back(leases))

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def counts(self, topic: str | None = None) -> list[QueueCounts]:
        """Count the unfinished jobs of each topic, or of one; what is due is ready."""
        return self._app.run(_counts(topic))

    def look(self, seq: int) -> Seen | None:
        """Read the job of this number and the clock, or None."""
        return self._app.run(queues.look(seq_of(seq)))

    def come_due(self, topics: str | Iterable[str]) -> None:
        """Put in line what is due in these topics; a reservation does so by itself."""
        due = queues.come_due(all_checked(topics))
        while self._app.run(due):
            pass

    def pick(self, seq: int, session: int | None = None) -> Lease:
        """Lease the ready, delayed or buried job of this number until its ttr."""
        return answered(self._app.run(_pick(seq, session))[0])

    def delete_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Done, and gone without a trace; return the leases that were lost."""
        answers = self._app.run(_discard(leases))
        return outcomes.lost(leases, answers)

    def give_back(self, leases: Sequence[Lease]) -> None:
        """Make jobs ready again, as if they had not been reserved; what was lost is left alone."""
        self._app.run(_give_back(leases))


def _counts(topic: str | None) -> Operation[list[QueueCounts]]:
    return queues.counts(None if topic is None else checked(topic))


def _pick(seq: int, session: int | None) -> Operation[list[Answer[Lease]]]:
    return queues.pick([Pick(seq_of(seq), new_number(), session)])


def _discard(leases: Sequence[Lease]) -> Operation[list[Answer[Settled]]]:
    return store.settle([outcomes.discard(lease) for lease in leases])


def _give_back(leases: Sequence[Lease]) -> Operation[list[Answer[Settled]]]:
    return store.settle([outcomes.return_unseen(lease) for lease in leases])
