"""Topics: pause, resume, list, forget."""

from __future__ import annotations

from typing import Final

from towpath.errors import NotFound
from towpath.operation import Mode, Operation, Steps
from towpath.statement import load

sql: Final = load(__name__)


def pause(topic: str, duration: int | None) -> Operation[None]:
    """Hand out no job of this topic for a while, or until it is resumed."""

    def steps() -> Steps[None]:
        yield sql["pause"](topic=topic, duration=duration)

    # Whoever waits learns when it ends, which may be sooner than it was.
    return Operation("pause", steps, autocommit=True, wakes=lambda _: [topic])


def resume(topic: str) -> Operation[None]:
    """Hand out jobs of this topic again."""

    def steps() -> Steps[None]:
        if not (yield sql["resume"](topic=topic)):
            msg = f"there is no topic {topic!r}"
            raise NotFound(msg)

    return Operation("resume", steps, autocommit=True, wakes=lambda _: [topic])


def list_topics() -> Operation[list[str]]:
    """Name every topic."""

    def steps() -> Steps[list[str]]:
        return [name for (name,) in (yield sql["list_topics"]())]

    return Operation("list_topics", steps, Mode.READ, autocommit=True)


def due() -> Operation[list[str]]:
    """Name the topics in which something is due."""

    def steps() -> Steps[list[str]]:
        return [name for (name,) in (yield sql["due_topics"]())]

    return Operation("due_topics", steps, Mode.READ, autocommit=True)


def forget_empty() -> Operation[list[str]]:
    """Forget topics without a job; they come back on first use.

    One whose job was only on its way is forgotten too, and put back the next time.
    """

    def steps() -> Steps[list[str]]:
        return [name for (name,) in (yield sql["forget_empty_topics"]())]

    return Operation("forget_empty", steps, autocommit=True)
