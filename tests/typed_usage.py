"""Usage as the documentation shows it, for a type checker: see test_typing.py. Never run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aiokafkawire import (
    Broker,
    BufferFull,
    Consumer,
    Delivery,
    GroupMetadata,
    KafkaError,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Producer,
    Record,
    RecordMetadata,
    Records,
    TopicPartition,
)

SERVERS = "localhost:9092"
TP = TopicPartition("orders", 0)


async def produce() -> None:
    async with Producer(
        bootstrap_servers=[SERVERS], acks="all", compression_type="zstd", linger_ms=5
    ) as producer:
        delivery: Delivery = await producer.send("orders", b"book", key=b"7")
        receipt: RecordMetadata = await delivery
        receipt = await producer.send_and_wait("orders", value=b"book", headers=[("trace", b"1")])
        print(receipt.offset, receipt.timestamp_ms, receipt.topic_partition)
        for one in await producer.send_many("orders", [b"a", None], keys=[b"1", None]):
            await one
        try:
            producer.send_nowait("orders", b"book")
        except BufferFull as error:
            print(error.retriable)
        await producer.flush(timeout_s=5)


@dataclass
class Order:
    number: int


async def serialize(producer: Producer[str, Order], consumer: Consumer[str, Order]) -> None:
    await producer.send("orders", Order(1), key="ada")
    record: Record[str, Order] = await consumer.getone()
    number: int = 0 if record.value is None else record.value.number
    key: str | None = record.key
    batches: dict[TopicPartition, Records[str, Order]] = await consumer.getmany()
    print(number, key, batches)


async def infer_types() -> None:
    async with (
        Producer(bootstrap_servers=SERVERS, key_serializer=str, value_serializer=Order) as producer,
        Consumer(
            "orders", bootstrap_servers=SERVERS, key_deserializer=str, value_deserializer=Order
        ) as consumer,
    ):
        await serialize(producer, consumer)
        async for record in consumer:
            value: Order | None = record.value
            print(value)


async def consume() -> None:
    async with Consumer(
        "orders", "refunds", bootstrap_servers=SERVERS, group_id="billing",
        auto_offset_reset="earliest", isolation_level="read_committed",
    ) as consumer:  # fmt: skip
        async for record in consumer:
            value: bytes | None = record.value
            print(value, record.timestamp_ms)
            break
        first: Record = await consumer.getone()
        chosen: Record = await consumer.getone(("orders", 0))
        perhaps: Record | None = await consumer.getone(TP, timeout_ms=1_000)
        print(first, chosen, perhaps)
        batches: dict[TopicPartition, Records] = await consumer.getmany(
            ("orders", 0), TP, timeout_ms=1_000
        )
        batches = await consumer.getmany([("orders", 0)], max_records=10)
        for batch in batches.values():
            await consumer.commit(batch)


async def place(consumer: Consumer) -> None:
    consumer.assign(("orders", 0))
    consumer.assign([TP, ("orders", 1)])
    consumer.subscribe(pattern=re.compile("orders-.*"))
    await consumer.commit({("orders", 0): 0})
    await consumer.commit({TP: 0})
    await consumer.commit({("orders", 0): OffsetAndMetadata(5, "note")})
    await consumer.commit({TP: OffsetAndMetadata(5), TopicPartition("orders", 1): 3})
    await consumer.commit({TP: 1, ("orders", 1): 2})
    await consumer.commit(consumer.positions())
    by_tuple: dict[tuple[str, int], int] = {("orders", 0): 3}
    by_name: dict[TopicPartition, OffsetAndMetadata] = {TP: OffsetAndMetadata(3)}
    await consumer.commit(by_tuple)
    await consumer.commit(by_name)
    consumer.mark_committed(by_tuple)
    consumer.seek(("orders", 0), 5)
    consumer.seek(TP, OffsetAndMetadata(5))
    position: int = await consumer.position(("orders", 0))
    numbers = (consumer.lag(("orders", 0)), consumer.highwater(("orders", 0)))
    print(position, numbers, consumer.last_stable_offset(("orders", 0)))
    found: dict[TopicPartition, OffsetAndTimestamp | None] = await consumer.offsets_for_times(
        {("orders", 0): 1_000}
    )
    found = await consumer.offsets_for_times({TP: 1_000})
    print(found, await consumer.committed(("orders", 0)))
    consumer.pause(("orders", 0))
    consumer.resume(TP)
    await consumer.seek_to_beginning(("orders", 0))
    await consumer.end_offsets(("orders", 0), TP)


async def transact(producer: Producer, consumer: Consumer) -> None:
    try:
        async with producer.transaction():
            await producer.send_offsets_to_transaction(consumer)
            await producer.send_offsets_to_transaction(
                {("orders", 0): 5}, consumer.group_metadata()
            )
            await producer.send_offsets_to_transaction({TP: 5}, GroupMetadata("billing"))
            await producer.send_offsets_to_transaction(
                consumer.positions(), consumer.group_metadata()
            )
    except KafkaError as error:
        print(error)


async def embed() -> None:
    async with Broker(nodes=3) as broker:
        await broker.create_topic("orders", 1)
        print(broker.bootstrap_servers)
