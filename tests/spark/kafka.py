"""Topics for the tests, filled from outside of any event loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiokafkawire import Producer, blocking
from tests.broker.threaded_broker import ThreadedBroker


def create(kafka: ThreadedBroker, topic: str, partitions: int = 1) -> None:
    kafka.call(kafka.broker.create_topic, topic, partitions)


def fill(kafka: ThreadedBroker, topic: str, *partitions: Iterable[Any], **options: Any) -> None:
    """Make a topic of one partition for each of these, with these values; str, bytes or None, or
    whole records as mappings."""
    create(kafka, topic, len(partitions))
    append(kafka, topic, dict(enumerate(partitions)), **options)


def append(
    kafka: ThreadedBroker, topic: str, by_partition: dict[int, Iterable[Any]], **options: Any
) -> None:
    async def send() -> None:
        async with Producer(bootstrap_servers=kafka.servers, **options) as producer:
            for number, values in by_partition.items():
                for value in values:
                    await producer.send(topic, partition=number, **_record(value))

    blocking.call(send)


def transactions(kafka: ThreadedBroker, topic: str, *made: tuple[Sequence[Any], bool]) -> None:
    """Write to partition 0 in transactions, each committed or (False) aborted."""

    async def send() -> None:
        options: Any = {"bootstrap_servers": kafka.servers, "transactional_id": topic}
        async with Producer(**options) as producer:
            for values, committed in made:
                await producer.begin_transaction()
                for value in values:
                    await producer.send(topic, partition=0, **_record(value))
                await producer.flush()
                if committed:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    blocking.call(send)


def _record(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {"value": value.encode() if isinstance(value, str) else value}
