"""Invalid frames and messages: a typed error in time, and bounded memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    DeliveryUnknown,
    KafkaError,
    MalformedFrame,
    NoBrokerAvailable,
    ProtocolError,
)
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, Request
from aiokafkawire.wire.header import RequestHeader
from aiokafkawire.wire.messages.api_versions import ApiVersionsResponse
from aiokafkawire.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from aiokafkawire.wire.messages.produce import ProduceRequest
from tests.behaviour.support import numbered, take
from tests.elapsed import ends_within
from tests.faults.peers import TOPIC, ScriptedBroker, batch, scripted
from tests.faults.support import IMPATIENT, READER

pytestmark = pytest.mark.slow

OPTIONS: dict[str, Any] = IMPATIENT | {
    "default_api_timeout_ms": 600,
    "delivery_timeout_ms": 600,
    "max_block_ms": 600,
    "close_timeout_ms": 300,
}
PARTITION = TopicPartition(TOPIC, 0)
MEBIBYTE = 2**20

LENGTHS = {
    "negative": -1,
    "zero": 0,
    "one": 1,
    "two": 2,
    "three": 3,
    "most negative": -(2**31),
    "largest": 2**31 - 1,
    "over the limit": 400 * MEBIBYTE,
}


@pytest.mark.parametrize("length", LENGTHS)
async def test_an_impossible_frame_length_ends_entering_by_the_deadline(length: str):
    async with scripted() as broker:
        broker.answers[ApiKey.API_VERSIONS] = lambda *_: struct.pack(">i", LENGTHS[length]) + b"xyz"
        tracemalloc.start()
        try:
            with ends_within(3), pytest.raises(NoBrokerAvailable):
                async with Consumer(
                    bootstrap_servers=broker.bootstrap_servers,
                    request_timeout_ms=300,
                    default_api_timeout_ms=600,
                ):
                    pass
            assert tracemalloc.get_traced_memory()[1] < 32 * MEBIBYTE
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("length", [-1, 0, 3, 400 * MEBIBYTE])
async def test_a_false_frame_length_is_reported_once_and_loses_no_record(length: int):
    async with scripted() as broker:
        broker.batches, broker.end_offset = {0: batch(numbered(10))}, 10
        broker.answers[ApiKey.FETCH] = once(
            broker.fetch, lambda header, message: struct.pack(">i", length) + bytes(8)
        )
        async with reading(broker) as consumer:
            with ends_within(3), pytest.raises(MalformedFrame, match="Fetch"):
                await consumer.getone()
            assert [record.value for record in await take(consumer, 10)] == numbered(10)


@pytest.mark.parametrize("shift", [1, -1, 1_000, -(2**30)])
async def test_a_wrong_correlation_id_is_reported_once_and_loses_no_record(shift: int):
    async with scripted() as broker:
        broker.batches, broker.end_offset = {0: batch(numbered(10))}, 10

        def wrong_id(header: RequestHeader, message: Any) -> bytes:
            answer = broker.fetch(header, message)
            return broker.frame(header, answer, header.correlation_id + shift)

        broker.answers[ApiKey.FETCH] = once(broker.fetch, wrong_id)
        async with reading(broker) as consumer:
            with ends_within(3), pytest.raises(ProtocolError, match=r"correlation id.*Fetch"):
                await consumer.getone()
            assert [record.value for record in await take(consumer, 10)] == numbered(10)


async def test_an_answer_given_twice_costs_a_connection_and_no_record():
    async with scripted() as broker:
        broker.batches, broker.end_offset = {0: batch(numbered(10))}, 10

        def twice(header: RequestHeader, message: Any) -> bytes:
            return broker.frame(header, broker.fetch(header, message)) * 2

        broker.answers[ApiKey.FETCH] = once(broker.fetch, twice)
        async with reading(broker) as consumer:
            assert [record.value for record in await take(consumer, 10)] == numbered(10)
            assert await consumer.getmany(timeout_ms=100) == {}


async def test_answers_out_of_order_leave_a_delivery_unknown():
    async with scripted() as broker:
        held: list[bytes] = []

        def swapped(header: RequestHeader, message: Any) -> bytes | None:
            held.append(broker.frame(header, broker.produce(header, message)))
            return held[1] if len(held) == 2 else None

        broker.answers[ApiKey.PRODUCE] = swapped
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers,
            linger_ms=0,
            batch_size_bytes=1,
            enable_idempotence=False,
            **OPTIONS,
        ) as producer:
            deliveries = [await producer.send(TOPIC, value) for value in numbered(2)]
            with ends_within(3):
                for delivery in deliveries:
                    with pytest.raises(DeliveryUnknown):
                        await delivery


@pytest.mark.parametrize("damage", ["trailing bytes", "cut short", "a huge count", "noise"])
async def test_a_damaged_answer_is_an_error_that_names_the_message(damage: str):
    async with scripted() as broker:

        def damaged(header: RequestHeader, message: Any) -> bytes:
            whole = broker.frame(header, broker.list_offsets(header, message))
            head, body = whole[4:9], whole[9:]  # correlation id and tagged fields, then the body
            body = {
                "trailing bytes": body + b"\x00",
                "cut short": body[:-3],
                "a huge count": body[:4] + b"\xff\xff\xff\xff\x0f" + body[5:],
                "noise": bytes(value ^ 0xA5 for value in body),
            }[damage]
            return struct.pack(">i", len(head + body)) + head + body

        broker.answers[ApiKey.LIST_OFFSETS] = damaged
        async with Consumer(bootstrap_servers=broker.bootstrap_servers, **reader()) as consumer:
            with ends_within(3), pytest.raises(KafkaError, match="ListOffsets"):
                await consumer.end_offsets(PARTITION)
            del broker.answers[ApiKey.LIST_OFFSETS]
            broker.end_offset = 4
            assert await consumer.end_offsets(PARTITION) == {PARTITION: 4}


@pytest.mark.parametrize(
    "address",
    [("127.0.0.1", 0), ("127.0.0.1", 70_000), ("127.0.0.1", -1), ("", 9_092), ("bad host", 1)],
)
async def test_an_impossible_address_in_the_metadata_is_never_connected_to(
    address: tuple[str, int],
):
    async with scripted() as broker:
        good = broker.metadata

        def hostile(header: RequestHeader, message: Any) -> MetadataResponse:
            answer = good(header, message)
            bad = MetadataResponseBroker(node_id=2, host=address[0], port=address[1])
            answer.brokers.append(bad)
            return answer

        broker.answers[ApiKey.METADATA] = hostile
        broker.batches, broker.end_offset = {0: batch(numbered(3))}, 3
        async with reading(broker) as consumer:
            assert [record.value for record in await take(consumer, 3)] == numbered(3)


async def test_a_cluster_of_impossible_addresses_only_is_an_error_by_the_deadline():
    async with scripted() as broker:
        good = broker.metadata

        def hostile(header: RequestHeader, message: Any) -> MetadataResponse:
            answer = good(header, message)
            answer.brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=70_000)]
            return answer

        broker.answers[ApiKey.METADATA] = hostile
        with ends_within(5), pytest.raises(KafkaError):
            async with Consumer(bootstrap_servers=broker.bootstrap_servers, **reader()) as consumer:
                await consumer.end_offsets(PARTITION)


async def test_metadata_with_an_unknown_leader_and_repeated_partitions():
    async with scripted() as broker:
        broker.batches, broker.end_offset = {0: batch(numbered(3))}, 3
        good = broker.metadata

        def hostile(header: RequestHeader, message: Any) -> MetadataResponse:
            answer = good(header, message)
            answer.topics[0].partitions *= 3
            return answer

        def unknown_leader(header: RequestHeader, message: Any) -> MetadataResponse:
            answer = good(header, message)
            answer.topics[0].partitions[0].leader_id = 99
            return answer

        broker.answers[ApiKey.METADATA] = unknown_leader
        async with Consumer(bootstrap_servers=broker.bootstrap_servers, **reader()) as consumer:
            with ends_within(3), pytest.raises(KafkaError):
                await consumer.end_offsets(PARTITION)
            broker.answers[ApiKey.METADATA] = hostile
            assert list(await consumer.partitions_for(TOPIC)) == [0]
            consumer.assign([PARTITION])
            assert [record.value for record in await take(consumer, 3)] == numbered(3)


@pytest.mark.parametrize("api", [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_OFFSETS])
async def test_a_throttle_of_weeks_does_not_outlast_the_callers_deadline(api: ApiKey):
    async with scripted() as broker:
        broker.answers[api] = throttled(broker.defaults[api])
        options = reader() | {"default_api_timeout_ms": 600}

        async def ask() -> None:
            async with Consumer(bootstrap_servers=broker.bootstrap_servers, **options) as consumer:
                for _ in range(3):
                    await consumer.end_offsets(PARTITION)

        with ends_within(4), pytest.raises(KafkaError):
            await ask()


async def test_a_throttled_producer_meets_its_delivery_timeout():
    async with scripted() as broker:
        broker.answers[ApiKey.PRODUCE] = throttled(broker.produce)
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=0, **OPTIONS
        ) as producer:
            await producer.send_and_wait(TOPIC, b"first")
            with ends_within(3), pytest.raises(KafkaError) as caught:
                await producer.send_and_wait(TOPIC, b"second")
            assert caught.value.topic == TOPIC


async def test_a_throttled_fetch_does_not_hold_other_calls():
    async with scripted() as broker:
        broker.batches, broker.end_offset = {0: batch(numbered(3))}, 3
        broker.answers[ApiKey.FETCH] = throttled(broker.fetch)
        async with reading(broker) as consumer:
            assert [record.value for record in await take(consumer, 3)] == numbered(3)
            with ends_within(2):
                assert await consumer.end_offsets(PARTITION) == {PARTITION: 3}
                assert await consumer.getmany(timeout_ms=200) == {}


async def test_a_broker_that_speaks_no_version_that_we_do_is_named():
    async with scripted() as broker:

        def from_the_future(header: RequestHeader, message: object) -> ApiVersionsResponse:
            answer = broker.api_versions(header, message)
            for row in answer.api_keys:
                row.min_version, row.max_version = 1_000, 1_001
            return answer

        broker.answers[ApiKey.API_VERSIONS] = from_the_future
        with ends_within(3), pytest.raises(KafkaError, match="Metadata 1000 to 1001"):
            async with Producer(bootstrap_servers=broker.bootstrap_servers, **OPTIONS):
                pass


async def test_a_produce_answer_about_another_partition_is_no_delivery():
    async with scripted() as broker:

        def elsewhere(header: RequestHeader, message: ProduceRequest) -> Any:
            answer = broker.produce(header, message)
            answer.responses[0].partition_responses[0].index = 5
            return answer

        broker.answers[ApiKey.PRODUCE] = elsewhere
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=0, **OPTIONS
        ) as producer:
            with ends_within(3), pytest.raises(DeliveryUnknown):
                await producer.send_and_wait(TOPIC, b"value")


# --- helpers ---------------------------------------------------------------------------------


def reader() -> dict[str, Any]:
    return READER | {"default_api_timeout_ms": 600, "close_timeout_ms": 300}


class reading:  # noqa: N801
    """A consumer at the start of the scripted broker's partition."""

    def __init__(self, broker: ScriptedBroker, **options: Any) -> None:
        self.consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **(reader() | options))

    async def __aenter__(self) -> Consumer:
        await self.consumer.__aenter__()
        self.consumer.assign([PARTITION])
        return self.consumer

    async def __aexit__(self, *exc: Any) -> None:
        await self.consumer.__aexit__(*exc)


Handler = Callable[[RequestHeader, Any], Any]


def once(usual: Handler, first: Handler) -> Handler:
    """Respond to the first request of a kind differently from all later ones."""
    handlers = [first]

    def answer(header: RequestHeader, message: Request[Any]) -> Any:
        return (handlers.pop() if handlers else usual)(header, message)

    return answer


def throttled(usual: Handler) -> Handler:
    def answer(header: RequestHeader, message: Request[Any]) -> Any:
        response = usual(header, message)
        response.throttle_time_ms = 2**31 - 1
        return response

    return answer
