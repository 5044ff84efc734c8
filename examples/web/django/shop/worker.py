"""The worker that bills orders."""

from __future__ import annotations

from django.conf import settings

from aiokafkawire import Worker
from aiokafkawire.worker import WorkerRecord
from shop.models import Order


def make_worker() -> Worker:
    worker = Worker(bootstrap_servers=settings.KAFKA_BOOTSTRAP_SERVERS, group_id="billing")
    worker.on("orders", order_by="key", value=dict)(bill)
    return worker


async def bill(record: WorkerRecord[bytes, dict[str, int]]) -> None:
    """Bill an order; the same order again changes nothing."""
    await Order.objects.filter(id=record.value["id"], billed=False).aupdate(billed=True)
