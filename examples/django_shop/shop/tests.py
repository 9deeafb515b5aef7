from django.test import TestCase, TransactionTestCase

from shop.models import Order
from shop.tasks import take_payment
from towpath.integrations.django import task_backends
from towpath.testing import isolated


class OrderTest(TestCase):
    """The task is in the transaction of the test, which is rolled back at its end."""

    def test_an_order_has_a_payment(self) -> None:
        answer = self.client.post("/orders", {"item": "rope"}).json()
        assert take_payment.get_result(answer["payment"]).args == [answer["order"]]


class PaymentTest(TransactionTestCase):
    """The task is committed, so that it can be run; both are deleted at the end of the test."""

    def test_an_order_is_paid_by_its_task(self) -> None:
        app = task_backends["default"].app
        with isolated(app, app.url) as jobs:
            self.client.post("/orders", {"item": "rope"})
            jobs.run()
        assert Order.objects.get().paid

    def test_no_job_is_left_for_the_next_test(self) -> None:
        app = task_backends["default"].app
        assert app.jobs.list() == []
        take_payment.enqueue(1)
        assert len(app.jobs.list()) == 1

    def test_no_job_is_left_of_the_test_before(self) -> None:
        self.test_no_job_is_left_for_the_next_test()
