"""manage.py towpath_worker."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from towpath.errors import Invalid
from towpath.integrations.django import TowpathBackend, task_backends
from towpath.worker import Worker


class Command(BaseCommand):
    """Works until SIGTERM: then it finishes what runs, and gives the rest back."""

    help = "Run the tasks of a Towpath backend until SIGTERM."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say which tasks, and how many at once."""
        parser.add_argument("--backend", default="default", help="its name in TASKS")
        parser.add_argument("--queue", action="append", help="one of its queues; all, if not given")
        parser.add_argument("--concurrency", type=int, default=10, help="tasks at once")
        parser.add_argument("--grace", default="30s", help="to finish what runs, after SIGTERM")

    def handle(self, **options: Any) -> None:
        """Work."""
        backend = task_backends[options["backend"]]
        if not isinstance(backend, TowpathBackend):
            msg = f"{options['backend']!r} in TASKS is not a TowpathBackend"
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
