from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import take_payment


@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    """Both are stored, or neither."""
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        payment = take_payment.enqueue(order.id)
        if order.item == "nothing":
            transaction.set_rollback(True)
            return JsonResponse({"error": "there is nothing to order"}, status=400)
    return JsonResponse({"order": order.id, "payment": payment.id}, status=201)


def read_order(_: HttpRequest, id: int) -> JsonResponse:
    order = get_object_or_404(Order, id=id)
    return JsonResponse({"item": order.item, "paid": order.paid})


urlpatterns = [path("orders", place_order), path("orders/<int:id>", read_order)]
