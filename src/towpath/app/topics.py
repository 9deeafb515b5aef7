"""The verbs of topics."""

from typing import TYPE_CHECKING

from towpath.model.instants import Duration, microseconds
from towpath.model.limits import LimitInUse
from towpath.model.stats import Histogram, Rate, TopicStats
from towpath.model.topics import checked
from towpath.store import limits, topics
from towpath.store import stats as counts

if TYPE_CHECKING:
    from towpath.app.app import App


class Topics:
    """Topics: pause, resume, list."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def apause(
        self, topic: str, duration: Duration | None = None, *, create: bool = False
    ) -> None:
        """Stop reservations of this topic for a while, or until it is resumed.

        NotFound if no job was ever enqueued to it, no task of this app has it and `create` is not
        set: its name may be mistyped.
        """
        create = create or topic in self._app.tasks
        await self._app.arun(topics.pause(checked(topic), _pause(duration), create=create))

    async def aresume(self, topic: str) -> None:
        """Allow reservations of this topic again."""
        await self._app.arun(topics.resume(checked(topic)))

    async def astats(self, most: int | None = None) -> list[TopicStats]:
        """Count the jobs of each topic; with `most`, so many of each state, of all topics."""
        return await self._app.arun(
            counts.by_topic(None, counts.NO_BOUND if most is None else most)
        )

    async def arates(self) -> dict[str, Rate]:
        """Count how many jobs of each topic end in a minute, on average of the last five."""
        return await self._app.arun(counts.rates())

    async def alimits(self, topic: str, most: int | None = None) -> list[LimitInUse]:
        """Read the limits that jobs of this topic have: of the first thousand in each state.

        With `most`, so many jobs that wait are counted, of these limits together.
        """
        keys = await self._app.arun(topics.limit_keys(checked(topic)))
        return await self._app.arun(limits.list_limits(keys, most))

    async def ahistograms(self) -> list[Histogram]:
        """Count the run times and the waiting times of each topic's completed jobs.

        A job waits from when it is due to its first run; one that ran again is not counted there.
        """
        return await self._app.arun(counts.histograms())

    async def alist(self) -> list[str]:
        """Name every topic."""
        return await self._app.arun(topics.list_topics())

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def pause(self, topic: str, duration: Duration | None = None, *, create: bool = False) -> None:
        """Stop reservations of this topic for a while, or until it is resumed.

        NotFound if no job was ever enqueued to it, no task of this app has it and `create` is not
        set: its name may be mistyped.
        """
        create = create or topic in self._app.tasks
        self._app.run(topics.pause(checked(topic), _pause(duration), create=create))

    def resume(self, topic: str) -> None:
        """Allow reservations of this topic again."""
        self._app.run(topics.resume(checked(topic)))

    def stats(self, most: int | None = None) -> list[TopicStats]:
        """Count the jobs of each topic; with `most`, so many of each state, of all topics."""
        return self._app.run(counts.by_topic(None, counts.NO_BOUND if most is None else most))

    def rates(self) -> dict[str, Rate]:
        """Count how many jobs of each topic end in a minute, on average of the last five."""
        return self._app.run(counts.rates())

    def limits(self, topic: str, most: int | None = None) -> list[LimitInUse]:
        """Read the limits that jobs of this topic have: of the first thousand in each state.

        With `most`, so many jobs that wait are counted, of these limits together.
        """
        keys = self._app.run(topics.limit_keys(checked(topic)))
        return self._app.run(limits.list_limits(keys, most))

    def histograms(self) -> list[Histogram]:
        """Count the run times and the waiting times of each topic's completed jobs.

        A job waits from when it is due to its first run; one that ran again is not counted there.
        """
        return self._app.run(counts.histograms())

    def list(self) -> list[str]:
        """Name every topic."""
        return self._app.run(topics.list_topics())


def _pause(duration: Duration | None) -> int | None:
    return None if duration is None else microseconds(duration)
