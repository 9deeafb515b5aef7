"""manage.py towpath_worker."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from towpath.errors import Invalid
from towpath.integrations.django import TowpathBackend, task_backends
from towpath.worker import Worker


class Command(BaseCommand):
    """Runs tasks until SIGTERM; then it finishes running tasks and gives the others back."""

    help = "Run the tasks of a Towpath backend until SIGTERM."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Define the options."""
        parser.add_argument("--backend", default="default", help="the backend's name in TASKS")
        parser.add_argument("--queue", action="append", help="one of its queues; default: all")
        parser.add_argument("--concurrency", type=int, default=10, help="tasks at the same time")
        parser.add_argument("--grace", default="30s", help="time to finish tasks after SIGTERM")

    def handle(self, **options: Any) -> None:
        """Run the worker."""
        backend = task_backends[options["backend"]]
        if not isinstance(backend, TowpathBackend):
            msg = f"{options['backend']!r} in TASKS is not a TowpathBackend; name another backend"
            raise CommandError(msg)
        try:
            worker = Worker(
                backend.app,
                topics=options["queue"],
                concurrency=options["concurrency"],
                grace=options["grace"],
            )
        except Invalid as error:
            raise CommandError(str(error)) from error
        worker.run()
