"""Orders, and the records that the outbox sends about them."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    customer = models.CharField(max_length=100)
    total = models.IntegerField()
    billed = models.BooleanField(default=False)


class OutboxRecord(models.Model):
    """A record that was written with the change it is about, and is not in Kafka yet."""

    topic = models.CharField(max_length=249)
    key = models.BinaryField(null=True)
    value = models.BinaryField(null=True)
