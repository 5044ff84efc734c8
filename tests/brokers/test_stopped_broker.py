"""A broker that is stopped (SIGSTOP) keeps its connections and answers nothing."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import anyio
import anyio.to_thread
import pytest

from aiokafkawire import Consumer, KafkaError, Producer, TopicPartition
from tests.brokers import raw
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka
from tests.elapsed import ends_within

CALL_MS = 1_500
GRACE_S = 1.0
"""How much later than its deadline a call may end on a busy machine."""

UNFENCED_WITHIN_S = 15.0
"""How soon after it is resumed a node's heartbeat makes it usable again (KIP-500)."""

FENCED = "All brokers are currently fenced"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with what_real_kafka_needs(), Kafka() as kafka:
        yield kafka


@pytest.fixture
async def topic(kafka: Kafka) -> str:
    name = f"stopped-{uuid.uuid4().hex}"
    with anyio.fail_after(UNFENCED_WITHIN_S):
        while True:
            try:
                await anyio.to_thread.run_sync(kafka.create_topic, name)
            except raw.Refused as refused:
                # The controller fenced the node while a test before had stopped it.
                if FENCED not in str(refused):
                    raise
                await anyio.sleep(0.2)
            else:
                return name


@pytest.fixture
async def stop(kafka: Kafka) -> AsyncIterator[Callable[[], None]]:
    yield kafka.nodes[0].suspend
    kafka.nodes[0].resume()


async def ends_in_time(call: Awaitable[object], limit_s: float) -> KafkaError:
    """The error of a call that cannot succeed, which must come by its deadline."""
    with ends_within(limit_s + GRACE_S), pytest.raises(KafkaError) as caught:
        await call
    return caught.value


async def test_every_call_of_a_consumer_ends_by_its_deadline(
    kafka: Kafka, topic: str, stop: Callable[[], None]
):
    partition = TopicPartition(topic, 0)
    async with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=f"group-{uuid.uuid4().hex}",
        default_api_timeout_ms=CALL_MS,
        request_timeout_ms=1_000,
        close_timeout_ms=CALL_MS,
    ) as consumer:
        consumer.assign([partition])
        await consumer.end_offsets(partition)
        await consumer.commit({partition: 0})
        stop()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: consumer.end_offsets(partition),
            lambda: consumer.beginning_offsets(partition),
            lambda: consumer.offsets_for_times({partition: 0}),
            lambda: consumer.committed(partition),
            lambda: consumer.commit({partition: 1}),
            lambda: consumer.partitions_for(f"other-{uuid.uuid4().hex}"),
        ]
        for call in calls:
            error = await ends_in_time(call(), CALL_MS / 1000)
            assert error.retriable
        assert await consumer.getmany(timeout_ms=200) == {}
        with ends_within(CALL_MS / 1000 + GRACE_S):
            await consumer.stop()


async def test_every_call_of_a_producer_ends_by_its_deadline(
    kafka: Kafka, topic: str, stop: Callable[[], None]
):
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers,
        max_block_ms=CALL_MS,
        request_timeout_ms=500,
        delivery_timeout_ms=CALL_MS,
        close_timeout_ms=CALL_MS,
    ) as producer:
        await producer.send_and_wait(topic, value=b"before")
        stop()
        error = await ends_in_time(
            producer.send_and_wait(topic, value=b"while stopped"), CALL_MS / 1000
        )
        assert error.topic == topic
        await ends_in_time(
            producer.send_and_wait(f"other-{uuid.uuid4().hex}", value=b"x"), CALL_MS / 1000
        )
        with ends_within(CALL_MS / 1000 + GRACE_S):
            await producer.stop()


async def test_entering_ends_by_its_deadline(kafka: Kafka, stop: Callable[[], None]):
    stop()
    with ends_within(2 * CALL_MS / 1000 + GRACE_S), pytest.raises(KafkaError) as caught:
        async with Producer(
            bootstrap_servers=kafka.bootstrap_servers,
            default_api_timeout_ms=CALL_MS,
            max_block_ms=CALL_MS,
            socket_connection_setup_timeout_ms=500,
        ) as producer:
            await producer.send_and_wait("any", value=b"x")
    assert caught.value.retriable


async def test_work_continues_when_the_broker_resumes(
    kafka: Kafka, topic: str, stop: Callable[[], None]
):
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers, request_timeout_ms=500
    ) as producer:
        await producer.send_and_wait(topic, value=b"before", partition=0)
        stop()
        delivery = await producer.send(topic, value=b"across", partition=0)
        with anyio.move_on_after(1):
            await delivery
        assert not delivery.done
        kafka.nodes[0].resume()
        with anyio.fail_after(30):
            assert (await delivery).offset == 1
