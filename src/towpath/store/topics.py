"""Topics: pause, resume, list, forget."""

from __future__ import annotations

from typing import Final

from towpath.errors import NotFound
from towpath.model.instants import FOREVER, as_datetime
from towpath.operation import Changed, Mode, Operation, Steps
from towpath.statement import Statements, rows
from towpath.store import lifecycle
from towpath.store.lifecycle import LifecycleEvent

LIMITED: Final = 1_000  # jobs of a topic whose limits are looked at


class sql(Statements):
    """The statements of topics.sql."""

    begin_pause = rows(int)
    pause = rows(str)
    end_pause = rows(str)
    resume = rows(str)
    list_topics = rows(str)
    limit_keys = rows(str)
    due_topics = rows(str)
    forget_empty_topics = rows(str)


def pause(topic: str, duration: int | None, *, create: bool = True) -> Operation[None]:
    """Hand out no job of this topic for a while, or until it is resumed."""

    def steps() -> Steps[Changed[None]]:
        until = yield from sql.begin_pause(topic=topic, duration=duration, create=create)
        if until:
            end = None if until[0] == FOREVER else as_datetime(until[0])
            yield from lifecycle.post(
                [LifecycleEvent("topic.paused", {"topic": topic, "until": end})]
            )
        elif not (yield from sql.pause(topic=topic, duration=duration, create=create)):
            msg = (
                f"there is no topic {topic!r}: no job was ever enqueued to it; "
                "check its name, or set `create` to pause it in advance"
            )
            raise NotFound(msg)
        # A waiter learns when the pause ends, which may be sooner than before.
        return Changed(None, [topic])

    return Operation("pause", steps)


def resume(topic: str) -> Operation[None]:
    """Hand out jobs of this topic again."""

    def steps() -> Steps[Changed[None]]:
        if (yield from sql.end_pause(topic=topic)):
            yield from lifecycle.post([LifecycleEvent("topic.resumed", {"topic": topic})])
        elif not (yield from sql.resume(topic=topic)):
            msg = f"there is no topic {topic!r}"
            raise NotFound(msg)
        return Changed(None, [topic])

    return Operation("resume", steps)


def list_topics() -> Operation[list[str]]:
    """Name every topic."""
    return Operation("list_topics", lambda: iter(sql.list_topics()), Mode.READ, autocommit=True)


def limit_keys(topic: str) -> Operation[list[str]]:
    """Name the limits that jobs of a topic have, of the first in each state."""

    def steps() -> Steps[list[str]]:
        return (yield from sql.limit_keys(topic=topic, limit=LIMITED))

    return Operation("limit_keys", steps, Mode.SCAN, autocommit=True)


def due() -> Operation[list[str]]:
    """Name the topics in which something is due."""
    return Operation("due_topics", lambda: iter(sql.due_topics()), Mode.READ, autocommit=True)


def forget_empty() -> Operation[list[str]]:
    """Forget topics without a job; they come back on first use.

    A topic whose job is not committed yet is forgotten too, and put back the next time.
    """
    return Operation("forget_empty", lambda: iter(sql.forget_empty_topics()), autocommit=True)
