from pathlib import Path

DEBUG = True
SECRET_KEY = "only an example"  # noqa: S105 - and kept from nobody
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop", "towpath.integrations.django"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).parent.parent / "shop.db",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},  # so that a busy writer is waited for
        "TEST": {"NAME": Path(__file__).parent.parent / "test.db"},  # no job can be in memory
    }
}

TASKS = {
    "default": {
        "BACKEND": "towpath.integrations.django.TowpathBackend",
        "OPTIONS": {"max_retries": 5},
    }
}
