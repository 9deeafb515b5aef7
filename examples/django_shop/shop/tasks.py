try:
    from django.tasks import task
except ImportError:  # before Django 6.0
    from django_tasks import task

from shop.models import Order


@task
def take_payment(order_id: int) -> str:
    Order.objects.filter(id=order_id).update(paid=True)
    return f"order {order_id} is paid"
