"""Workers: they reserve jobs and run the tasks of an app."""

from towpath.worker.worker import Worker

__all__ = ["Worker"]
