"""What was opened before a fork belongs to the parent; the child begins anew."""

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that holds connections, threads or locks."""

    def start_again(self) -> None:
        """Forget what was inherited, without closing it, and begin anew."""
        ...


_living: "WeakSet[Forkable]" = WeakSet()
_inherited: list[object] = []


def begin_anew_after_fork(thing: Forkable) -> None:
    """Have a thing begin anew in every forked child."""
    _living.add(thing)


def keep_inherited(*things: object) -> None:
    """Keep what was inherited from being closed: that would end the parent's sessions and locks."""
    _inherited.append(things)


def _after_fork() -> None:
    for thing in list(_living):
        thing.start_again()


os.register_at_fork(after_in_child=_after_fork)
