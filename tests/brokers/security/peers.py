"""Other client libraries write a record through a listener and read it back.

What they can do, the server can do: a failure of this package's client is then its own.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Mapping

import aiokafka
import confluent_kafka

from tests.brokers.security.access import Access

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

WITHIN_S = 30.0
POLL_S = 0.2

RoundTrip = Callable[[str, Access, str, bytes], bytes | None]
"""Writes a value to partition 0 at an address, and returns the first value of the partition."""


def confluent_round_trip(address: str, access: Access, topic: str, value: bytes) -> bytes | None:
    errors: list[str] = []
    config = access.for_confluent()
    config |= {"bootstrap.servers": address, "log_level": 0}
    config["error_cb"] = lambda error: errors.append(str(error))
    producer = confluent_kafka.Producer(config)
    producer.produce(topic, value, partition=0)
    assert producer.flush(WITHIN_S) == 0, errors
    consumer = confluent_kafka.Consumer(config | {"group.id": topic})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        message = consumer.poll(WITHIN_S)
        assert message is not None, errors
        assert message.error() is None
        found: bytes | None = message.value()
        return found
    finally:
        consumer.close()


def aiokafka_round_trip(address: str, access: Access, topic: str, value: bytes) -> bytes | None:
    async def round_trip() -> bytes | None:
        options = access.for_aiokafka() | {"bootstrap_servers": address}
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, value, partition=0)
        async with aiokafka.AIOKafkaConsumer(**options) as consumer:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found: bytes | None = (await consumer.getone()).value
            return found

    return asyncio.run(asyncio.wait_for(round_trip(), WITHIN_S))


def kafka_python_round_trip(address: str, access: Access, topic: str, value: bytes) -> bytes | None:
    options = access.for_kafka_python() | {"bootstrap_servers": address}
    producer = kafka.KafkaProducer(**options)
    try:
        producer.send(topic, value, partition=0).get(WITHIN_S)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(**options)
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            for records in consumer.poll(POLL_S * 1_000).values():
                found: bytes | None = records[0].value
                return found
        raise TimeoutError("no record")
    finally:
        consumer.close()


PEERS: Mapping[str, RoundTrip] = {
    "confluent-kafka": confluent_round_trip,
    "aiokafka": aiokafka_round_trip,
    "kafka-python": kafka_python_round_trip,
}
