"""Serializers of a producer, deserializers of a consumer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire import (
    Consumer,
    DeserializationFailed,
    InvalidOption,
    Producer,
    Record,
    Records,
    SerializationFailed,
    TopicPartition,
)
from tests.behaviour.features import needs
from tests.behaviour.support import WITHIN_S, committed, reading, stored, take

UNUSED_SERVER = "localhost:1"


@dataclass
class Order:
    number: int


class Unprintable(Exception):
    """Its text is a value, which belongs to no log."""


def to_int(data: bytes) -> int:
    return int(data)


async def serialize_later(value: int) -> bytes:
    await anyio.lowlevel.checkpoint()
    return b"%d" % value


def refuse(value: object) -> bytes:
    raise Unprintable("a password")


async def send(bootstrap_servers: str, topic: str, values: list[bytes | None]) -> None:
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for delivery in await producer.send_many(topic, values, partition=0):
            await delivery


async def stored_values(bootstrap_servers: str, topic: str) -> list[bytes | None]:
    return [record.value for record in await stored(bootstrap_servers, topic)]


async def test_values_are_written_and_read_as_their_types(
    bootstrap_servers: str, topic: str
) -> None:
    async with Producer(
        bootstrap_servers=bootstrap_servers, key_serializer=str, value_serializer=Order
    ) as producer:
        await producer.send_and_wait(topic, Order(1), key="a", partition=0)
        await (await producer.send(topic, Order(2), key="b", partition=0))
        await producer.send_nowait(topic, Order(3), key="c", partition=0)
        deliveries = await producer.send_many(
            topic, [Order(4), None, Order(6)], keys=["d", "e", None], partition=0
        )
        for delivery in deliveries:
            await delivery
    assert await stored_values(bootstrap_servers, topic) == [
        b'{"number":1}', b'{"number":2}', b'{"number":3}', b'{"number":4}', None, b'{"number":6}',
    ]  # fmt: skip
    async with reading(
        bootstrap_servers, topic, key_deserializer=str, value_deserializer=Order
    ) as consumer:
        with anyio.fail_after(WITHIN_S):
            first = await consumer.getone()
            assert (first.key, first.value, first.offset) == ("a", Order(1), 0)
            read = [first, *await take(consumer, 5)]
    assert [(record.key, record.value) for record in read] == [
        ("a", Order(1)), ("b", Order(2)), ("c", Order(3)), ("d", Order(4)), ("e", None),
        (None, Order(6)),
    ]  # fmt: skip


async def test_a_batch_is_deserialized_when_its_records_are_used(
    bootstrap_servers: str, topic: str
) -> None:
    await send(bootstrap_servers, topic, [b"1", b"x", b"3"])
    async with reading(bootstrap_servers, topic, value_deserializer=to_int) as consumer:
        with anyio.fail_after(WITHIN_S):
            batch = await anext(consumer.batches())
            while len(batch) < 3:
                consumer.seek((topic, 0), 0)
                batch = await anext(consumer.batches())
    assert isinstance(batch, Records)
    assert batch[0].value == 1
    with pytest.raises(DeserializationFailed) as failed:
        batch.values()
    assert failed.value.record.value == b"x"
    assert [record.value for record in batch[2:]] == [3]
    assert batch[2:].offsets() == [2]
    assert batch[:1].values() == [1]
    assert batch[:1].keys() == [None]


@pytest.mark.parametrize("by", ["getone", "iterator", "getone of a partition"])
async def test_the_next_call_passes_a_record_that_cannot_be_deserialized(
    bootstrap_servers: str, topic: str, by: str
) -> None:
    await send(bootstrap_servers, topic, [b"1", b"secret", b"3"])
    async with reading(bootstrap_servers, topic, value_deserializer=to_int) as consumer:
        records = aiter(consumer)

        async def get() -> Record[Any, Any]:
            if by == "iterator":
                return await anext(records)
            return await (consumer.getone((topic, 0)) if "of" in by else consumer.getone())

        with anyio.fail_after(WITHIN_S):
            assert (await get()).value == 1
            with pytest.raises(DeserializationFailed, match="the value cannot be") as failed:
                await get()
            assert (await get()).value == 3
    error = failed.value
    assert (error.topic, error.partition, error.offset) == (topic, 0, 1)
    assert error.record.value == b"secret"
    assert "secret" not in str(error)
    assert isinstance(error.__cause__, ValueError)


@needs("groups")
async def test_a_record_that_stopped_the_consumer_is_not_committed(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    await send(bootstrap_servers, topic, [b"1", b"x", b"3"])
    options = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}

    async def read() -> None:
        async with Consumer(
            topic, auto_offset_reset="earliest", value_deserializer=to_int, **options
        ) as consumer:
            async for _ in consumer:
                pass

    with anyio.fail_after(WITHIN_S):
        with pytest.raises(DeserializationFailed):
            await read()
        async with Consumer(**options) as consumer:
            assert await committed(consumer, TopicPartition(topic, 0)) in {None, 0, 1}


async def test_a_serializer_may_be_async(bootstrap_servers: str, topic: str) -> None:
    async with Producer(
        bootstrap_servers=bootstrap_servers, value_serializer=serialize_later
    ) as producer:
        await producer.send_and_wait(topic, 1, partition=0)
        for delivery in await producer.send_many(topic, [2, 3], partition=0):
            await delivery
        with pytest.raises(SerializationFailed, match="value_serializer is async: use send"):
            producer.send_nowait(topic, 4, partition=0)
    assert await stored_values(bootstrap_servers, topic) == [b"1", b"2", b"3"]


async def test_nothing_is_sent_if_a_serializer_fails(bootstrap_servers: str, topic: str) -> None:
    async with Producer(bootstrap_servers=bootstrap_servers, value_serializer=refuse) as producer:
        await producer.partitions_for(topic)
        for send_one in (producer.send, producer.send_and_wait):
            with pytest.raises(SerializationFailed, match="the value cannot be") as failed:
                await send_one(topic, 1)
            assert isinstance(failed.value.__cause__, Unprintable)
            assert "password" not in str(failed.value)
        with pytest.raises(SerializationFailed):
            producer.send_nowait(topic, 1)
        with pytest.raises(SerializationFailed):
            await producer.send_many(topic, [None, 1])
    assert await stored_values(bootstrap_servers, topic) == []


async def test_a_cancelled_serializer_sends_nothing(bootstrap_servers: str, topic: str) -> None:
    async def hang(value: object) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError

    async with Producer(bootstrap_servers=bootstrap_servers, value_serializer=hang) as producer:
        with anyio.move_on_after(0.05):
            await producer.send(topic, 1)
        await producer.send_and_wait(topic, None)
    assert await stored_values(bootstrap_servers, topic) == [None]


async def test_what_is_not_bytes_is_refused(bootstrap_servers: str, topic: str) -> None:
    async with Producer(bootstrap_servers=bootstrap_servers, key_serializer=json.dumps) as producer:
        with pytest.raises(SerializationFailed, match="key_serializer must return bytes, not str"):
            await producer.send(topic, b"", key={"a": 1})


@pytest.mark.parametrize(
    ("client", "options", "message"),
    [
        (Producer, {"value_serializer": float}, "value_serializer: float is not supported"),
        (Consumer, {"key_deserializer": "json"}, "key_deserializer: pass a type or a function"),
        (Consumer, {"value_deserializer": serialize_later}, "must be a plain function"),
        (Consumer, {"value_serializer": str}, "is a producer option"),
    ],
)
async def test_other_arguments_are_refused(
    client: type[Producer | Consumer], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        client(bootstrap_servers=UNUSED_SERVER, **options)
