"""A worker in a thread, for a while."""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import eventually
from towpath import App, Job
from towpath.worker import Worker


@contextlib.contextmanager
def working(app: App, **options) -> Iterator[Worker]:
    """Run a worker until the end of the block."""
    worker = Worker(app, **options)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, worker.arun())
        try:
            yield worker
        finally:
            eventually(lambda: worker._loop)
            worker.stop()
            running.result(60)


def ended(app: App, job: Job) -> Job:
    """Wait until a job has ended, and read it."""
    eventually(lambda: app.jobs.get(job.id).status not in {"pending", "processing"})
    return app.jobs.get(job.id)
