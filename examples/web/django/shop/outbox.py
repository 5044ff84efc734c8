"""The transactional outbox: records leave the database once Kafka has acknowledged them."""

from __future__ import annotations

import anyio

from aiokafkawire import Producer
from shop.models import OutboxRecord

BATCH_RECORDS = 500


async def send_batch(producer: Producer) -> int:
    """Send the oldest records and delete them; return their number.

    After a crash between the two, they are sent again: handlers must be idempotent. One process at
    a time may call this, or the order of records is lost.
    """
    records = [record async for record in OutboxRecord.objects.order_by("id")[:BATCH_RECORDS]]
    deliveries = [
        await producer.send(record.topic, record.value, key=record.key) for record in records
    ]
    for delivery in deliveries:
        await delivery
    await OutboxRecord.objects.filter(id__in=[record.id for record in records]).adelete()
    return len(records)


async def send_forever(bootstrap_servers: str, interval_s: float = 0.5) -> None:
    """Send records as they are stored."""
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        while True:
            if not await send_batch(producer):
                await anyio.sleep(interval_s)
