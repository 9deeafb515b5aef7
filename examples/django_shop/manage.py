"""Django: an order and the task that takes its payment, in one transaction.

pip install towpath 'django>=6'        # before Django 6.0, also django-tasks
python manage.py migrate --run-syncdb
python manage.py runserver &
python manage.py towpath_worker &
curl -d item=rope localhost:8000/orders
curl localhost:8000/orders/1
python manage.py test
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
