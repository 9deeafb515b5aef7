"""For INSTALLED_APPS: `manage.py towpath_worker`, and tables that `manage.py migrate` creates."""

from typing import Any

from django.apps import AppConfig
from django.core import mail
from django.db.models.signals import post_migrate


class TowpathConfig(AppConfig):
    """Towpath in a Django project; it has no models."""

    name = "towpath.integrations.django"
    label = "towpath"

    def ready(self) -> None:
        """Create Towpath's tables together with Django's."""
        post_migrate.connect(_migrate, sender=self)


def _migrate(using: str, **given: Any) -> None:
    # Imported here, as the module reads settings that Django loads after this one.
    from towpath.integrations.django import TowpathBackend, task_backends  # noqa: PLC0415

    for backend in task_backends.all():
        if isinstance(backend, TowpathBackend):
            backend.migrate(using)
            # `flush`, which ends each TransactionTestCase; only Django's test runner has an outbox.
            if "plan" not in given and hasattr(mail, "outbox"):
                backend.flush(using)
