"""What the parts that deliver webhooks have in common."""

from abc import ABC, abstractmethod
from typing import ClassVar

from towpath.app.ringing import Ringing
from towpath.model.sagas import Role
from towpath.operation import Wakeup


class Part(ABC):
    """A part of the work. It has rounds, and sleeps in between until a wakeup rings."""

    part: ClassVar[str]  # its name, as --only says it
    role: ClassVar[Role]
    wakeups: ClassVar[tuple[Wakeup, ...]]  # that it hears from the beginning

    @abstractmethod
    async def round(self, rung: set[Wakeup], ringing: Ringing) -> float | None:
        """Do what there is; return the seconds to the next round, None if a wakeup begins it."""
