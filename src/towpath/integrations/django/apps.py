"""For INSTALLED_APPS, which is how manage.py finds `towpath_worker`."""

from django.apps import AppConfig


class TowpathConfig(AppConfig):
    """Towpath has no models: its tables come with the first use, or by `towpath migrate`."""

    name = "towpath.integrations.django"
    label = "towpath"
