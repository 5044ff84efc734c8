"""An unclean leader election takes records away that a consumer has read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

from aiokafkawire import Consumer, KafkaError, Producer, TopicPartition
from aiokafkawire.errors import LogTruncated
from tests.brokers import raw
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka, Node

TOPIC = "cut"
PARTITION = TopicPartition(TOPIC, 0)
WITHIN_S = 60.0
IMPATIENT = {
    "unclean.leader.election.enable": "true",
    "unclean.leader.election.interval.ms": "1000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "1",
}
"""A dead node is noticed soon, a single replica is enough, and any may lead."""


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with what_real_kafka_needs(), Kafka(nodes=3, properties=IMPATIENT) as kafka:
        kafka.create_topic(TOPIC, replication_factor=2)
        yield kafka


def replicas(kafka: Kafka) -> tuple[Node, Node]:
    """The node that leads the partition, and the one that follows it."""
    seen = raw.metadata(kafka.nodes[0].address)
    leader = seen.leaders[TOPIC][0]
    (follower,) = [number for number in seen.replicas[TOPIC][0] if number != leader]
    by_id = {node.node_id: node for node in kafka.nodes}
    return by_id[leader], by_id[follower]


def test_truncation_of_consumed_records_is_reported(kafka: Kafka):
    # One event loop is enough: the cluster takes its time.
    anyio.run(_lose_what_was_read, kafka)


async def _lose_what_was_read(kafka: Kafka) -> None:
    leader, follower = replicas(kafka)
    servers = kafka.bootstrap_servers
    with anyio.fail_after(WITHIN_S):
        async with (
            Producer(bootstrap_servers=servers, acks=1) as producer,
            Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer,
        ):
            consumer.assign(PARTITION)
            consumer.seek(PARTITION, 0)
            await _write(producer, b"kept", 5)
            assert await _read(consumer, 5) == [b"kept"] * 5
            follower.kill()
            await _write(producer, b"lost", 5)
            assert await _read(consumer, 5) == [b"lost"] * 5
            leader.kill()
            await anyio.to_thread.run_sync(kafka.start_node, follower)
            await _write(producer, b"new", 7)
            with pytest.raises(LogTruncated) as raised:
                await consumer.getone()
            error = raised.value
            assert (error.topic, error.partition, error.offset) == (*PARTITION, 10)
            assert error.diverging_offset == 5
            consumer.seek(PARTITION, error.diverging_offset)
            assert await _read(consumer, 7) == [b"new"] * 7


async def _write(producer: Producer, value: bytes, count: int) -> None:
    written = 0
    while written < count:
        with contextlib.suppress(KafkaError):  # no leader for longer than a delivery may take
            await producer.send_and_wait(TOPIC, value, partition=0)
            written += 1


async def _read(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            values += records.values()
    return values
