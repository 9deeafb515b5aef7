"""Chooses the operation that stores jobs."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter

from towpath.app.checks import Defaults, EnqueueOptions, new_jobs, parents_of, unique_of
from towpath.app.middleware import Middleware
from towpath.errors import Invalid
from towpath.model.job import Job
from towpath.model.unique import Unique
from towpath.operation import Answer, Operation
from towpath.settings import Settings
from towpath.store import admin, jobs
from towpath.store.dependencies import Node, enqueue_flow, enqueue_offered
from towpath.store.jobs import NewJob
from towpath.store.unique import enqueue_over


class Enqueueing:
    """Chooses the operation by the options of the jobs and the limits of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._defaults = Defaults.of(settings)

    def stored(
        self, topic: str, payloads: Iterable[object], options: EnqueueOptions
    ) -> Operation[list[Answer[Job]]]:
        """Return the operation that stores jobs of one topic with the same options."""
        new = new_jobs(topic, payloads, options, self._defaults)
        unique, after = unique_of(options), parents_of(options)
        if unique is not Unique.SKIP:
            return enqueue_over(new, unique, self.each)
        if new and new[0].options.runs:
            return enqueue_offered(new, self._enqueued)
        if after:
            return self.flow([Node(each, after=after) for each in new])
        return self._enqueued(new)

    def all_of(
        self,
        calls: Iterable[tuple[str, object, EnqueueOptions]],
        middleware: Middleware,
        around: ExitStack,
    ) -> Operation[list[Answer[Job]]]:
        """Return the operation that stores all jobs or none; enter each job's middleware."""
        given = list(calls)
        if middleware.is_around:  # without middleware, thousands of empty contexts are saved
            given = [
                (topic, payload, around.enter_context(middleware.around_enqueue(topic, options)))
                for topic, payload, options in given
            ]
        nodes: list[Node] = []
        may_clash = False  # an id may exist already, with other content
        # Neighbours with the same topic and options are checked together.
        for (topic, options), alike in groupby(given, itemgetter(0, 2)):
            if "unique" in options:
                msg = "`unique` cannot be used in enqueue_all; enqueue this job separately"
                raise Invalid(msg)
            payloads = [payload for _, payload, _ in alike]
            after = parents_of(options)
            new = new_jobs(topic, payloads, options, self._defaults)
            nodes += [Node(each, after=after) for each in new]
            may_clash = may_clash or "id" in options
        if any(node.new.options.runs for node in nodes):
            if any(node.after for node in nodes):
                msg = (
                    "jobs that choose their workers and jobs with `after` cannot be stored "
                    "together; enqueue them separately"
                )
                raise Invalid(msg)
            if may_clash:
                return enqueue_flow(nodes, self.each)  # stores all or none
        elif may_clash or any(node.after for node in nodes):
            return self.flow(nodes)
        return self.each([node.new for node in nodes])

    def each(self, new: Sequence[NewJob]) -> Operation[list[Answer[Job]]]:
        """Return the operation that stores jobs with different options."""
        some_offered = any(job.options.runs for job in new)
        enqueued = self._enqueued
        return enqueue_offered(new, enqueued) if some_offered else enqueued(new)

    def flow(self, nodes: Sequence[Node]) -> Operation[list[Answer[Job]]]:
        """Return the operation that stores jobs of which some wait for others."""
        return enqueue_flow(nodes, self._enqueued)

    def step(self, topic: str, payload: object, options: EnqueueOptions) -> NewJob:
        """Return a job of a flow, to be stored with the others."""
        if options.keys() & {"unique", "after"}:
            msg = "a step of a flow cannot have `unique` or `after`; remove them"
            raise Invalid(msg)
        [new] = new_jobs(topic, (payload,), options, self._defaults)
        if new.options.runs:
            msg = "a step of a flow cannot choose its workers; enqueue it separately with `after`"
            raise Invalid(msg)
        return new

    def _enqueued(self, new: Sequence[NewJob]) -> Operation[list[Answer[Job]]]:
        settings = self._settings
        if settings.max_topics or settings.max_jobs_per_topic:
            return jobs.enqueue_within(
                new,
                max_topics=settings.max_topics,
                max_jobs=settings.max_jobs_per_topic,
                make_room=admin.expire,
            )
        return jobs.enqueue_all(
            new, batch_size=settings.batch_size, batch_bytes=settings.batch_bytes
        )
