from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
    paid = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.item}, {'paid' if self.paid else 'not paid'}"
