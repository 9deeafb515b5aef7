"""What was opened before a fork belongs to the parent; the child starts again.

SQLite keeps a record of its files and locks in the process. A child that inherits it believes in
locks that it does not have, and the parent then takes its log away. So SQLite's connections are
closed before a fork, and opened again when they are next used.
"""

import os
from threading import Lock
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that holds connections, threads or locks."""

    def start_again(self) -> None:
        """Forget what was inherited, without closing it, and start again."""
        ...


class Still(Protocol):
    """Something that must not be in the middle of anything when the process forks."""

    def before_fork(self) -> None:
        """Close what a child must not inherit, and hold still."""
        ...

    def after_fork(self) -> None:
        """Go on."""
        ...


_living: "WeakSet[Forkable]" = WeakSet()
_moving: "WeakSet[Still]" = WeakSet()
_still: list[Still] = []
_forking = Lock()
_inherited: list[object] = []


def begin_anew_after_fork(thing: Forkable) -> None:
    """Have a thing start again in every forked child."""
    _living.add(thing)


def hold_still_at_fork(thing: Still) -> None:
    """Have a thing hold still whenever the process forks."""
    _moving.add(thing)


def keep_inherited(*things: object) -> None:
    """Keep what was inherited from being closed: that would end the parent's sessions and locks."""
    _inherited.append(things)


def _before_fork() -> None:
    _forking.acquire()
    for thing in list(_moving):
        thing.before_fork()
        _still.append(thing)


def _after_fork() -> None:
    while _still:
        _still.pop().after_fork()
    _forking.release()


def _after_fork_in_child() -> None:
    _after_fork()
    for thing in list(_living):
        thing.start_again()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
