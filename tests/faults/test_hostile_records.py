"""Corrupt records: `CorruptRecord` names the offset, and only a seek skips them."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import cramjam
import crc32c
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey
from tests.behaviour.support import WITHIN_S, numbered, take
from tests.faults.peers import TOPIC, ScriptedBroker, batch, scripted
from tests.faults.support import READER

pytestmark = pytest.mark.slow

PARTITION = TopicPartition(TOPIC, 0)
MEBIBYTE = 2**20

# Positions in a record batch v2.
LENGTH, CRC, ATTRIBUTES, LAST_DELTA, COUNT, BODY = 8, 17, 21, 23, 57, 61


def resealed(data: bytes) -> bytes:
    """Return the bytes with a matching length and checksum."""
    changed = bytearray(data)
    struct.pack_into(">i", changed, LENGTH, len(changed) - 12)
    struct.pack_into(">I", changed, CRC, crc32c.crc32c(bytes(changed[ATTRIBUTES:])))
    return bytes(changed)


def with_number(data: bytes, at: int, value: int) -> bytes:
    return resealed(data[:at] + struct.pack(">i", value) + data[at + 4 :])


def bomb(base_offset: int) -> bytes:
    """Return a batch of one record of zeros that decompresses to 256 MiB from some KiB."""
    plain = batch([b""], base_offset, compression=4)
    body = bytes(cramjam.zstd.compress(bytes(256 * MEBIBYTE), level=1))
    return resealed(plain[:BODY] + body)


def damaged(kind: str) -> bytes:
    """Return the records of offsets 10 to 19, corrupted."""
    good = batch(numbered(10, start=10), 10)
    return {
        "checksum": lambda: good[:-1] + bytes([good[-1] ^ 0xFF]),
        "too many records": lambda: with_number(good, COUNT, 2**31 - 1),
        "too few records": lambda: with_number(good, COUNT, 3),
        "negative count": lambda: with_number(good, COUNT, -1),
        "last offset": lambda: with_number(good, LAST_DELTA, 3),
        "inner length": lambda: resealed(good[:BODY] + b"\xfe\xff\xff\xff\x0f" + good[BODY + 5 :]),
        "not compressed": lambda: resealed(
            good[: ATTRIBUTES + 1] + b"\x04" + good[ATTRIBUTES + 2 :]
        ),
        "bomb": lambda: bomb(10),
    }[kind]()


KINDS = (
    "checksum",
    "too many records",
    "too few records",
    "negative count",
    "last offset",
    "inner length",
    "not compressed",
    "bomb",
)


@asynccontextmanager
async def log_with(middle: bytes) -> AsyncIterator[ScriptedBroker]:
    """A log of three batches of ten records, with the given one in the middle."""
    async with scripted() as broker:
        broker.batches = {0: batch(numbered(10)), 10: middle, 20: batch(numbered(10, start=20), 20)}
        broker.end_offset = 30
        yield broker


@pytest.mark.parametrize("kind", KINDS)
async def test_corrupt_records_are_reported_with_their_offset_until_a_seek_past_them(kind: str):
    async with (
        log_with(damaged(kind)) as broker,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            **READER,
            max_decompressed_bytes=4 * MEBIBYTE,
        ) as consumer,
    ):
        consumer.assign([PARTITION])
        assert [record.value for record in await take(consumer, 10)] == numbered(10)
        for _ in range(2):
            with anyio.fail_after(WITHIN_S), pytest.raises(CorruptRecord) as caught:
                await consumer.getone()
            error = caught.value
            assert (error.topic, error.partition, error.offset) == (TOPIC, 0, 10)
            assert not error.retriable
        with anyio.fail_after(WITHIN_S), pytest.raises(CorruptRecord):
            await consumer.getmany(timeout_ms=1_000)
        assert await consumer.position(PARTITION) == 10
        consumer.seek(PARTITION, 20)
        assert [record.value for record in await take(consumer, 10)] == numbered(10, start=20)


async def test_records_fetched_earlier_are_returned_before_a_later_error():
    async with (
        log_with(batch(numbered(10))) as broker,
        Consumer(bootstrap_servers=broker.bootstrap_servers, **READER) as consumer,
    ):
        consumer.assign([PARTITION])
        first = await consumer.getone()
        await anyio.sleep(0.1)  # meanwhile the next fetch completes
        assert [first.value, *(r.value for r in await take(consumer, 9))] == numbered(10)
        with anyio.fail_after(WITHIN_S), pytest.raises(CorruptRecord) as caught:
            await consumer.getone()
        assert caught.value.offset == await consumer.position(PARTITION) == 10


async def test_a_bomb_costs_no_more_memory_than_allowed():
    packed = bomb(10)
    async with (
        log_with(packed) as broker,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            **READER,
            max_decompressed_bytes=4 * MEBIBYTE,
        ) as consumer,
    ):
        consumer.assign([PARTITION])
        await take(consumer, 10)
        tracemalloc.start()
        try:
            with anyio.fail_after(WITHIN_S), pytest.raises(CorruptRecord):
                await consumer.getone()
            assert tracemalloc.get_traced_memory()[1] < 32 * MEBIBYTE
        finally:
            tracemalloc.stop()


async def test_checksums_are_not_checked_where_that_is_asked():
    good = batch(numbered(10, start=10), 10)
    wrong_checksum = good[:CRC] + b"\x00\x00\x00\x00" + good[CRC + 4 :]
    async with (
        log_with(wrong_checksum) as broker,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers, check_crcs=False, **READER
        ) as consumer,
    ):
        consumer.assign([PARTITION])
        assert [record.value for record in await take(consumer, 30)] == numbered(30)


async def test_a_paused_partition_is_silent_about_its_corrupt_records():
    async with (
        log_with(damaged("checksum")) as broker,
        Consumer(bootstrap_servers=broker.bootstrap_servers, **READER) as consumer,
    ):
        consumer.assign([PARTITION])
        await take(consumer, 10)
        with anyio.fail_after(WITHIN_S), pytest.raises(CorruptRecord):
            await consumer.getone()
        consumer.pause(PARTITION)
        assert await consumer.getmany(timeout_ms=100) == {}
        consumer.resume(PARTITION)
        with anyio.fail_after(WITHIN_S), pytest.raises(CorruptRecord):
            await consumer.getone()


async def test_a_batch_that_begins_before_the_position_is_cut():
    async with (
        log_with(batch(numbered(10, start=10), 10)) as broker,
        Consumer(bootstrap_servers=broker.bootstrap_servers, **READER) as consumer,
    ):
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 17)
        assert [record.value for record in await take(consumer, 13)] == numbered(13, start=17)


async def test_records_that_end_before_the_position_are_reported_and_not_fetched_again():
    async with log_with(batch(numbered(10, start=10), 10)) as broker:
        broker.batches = {0: broker.batches[0]}
        async with Consumer(bootstrap_servers=broker.bootstrap_servers, **READER) as consumer:
            consumer.assign([PARTITION])
            consumer.seek(PARTITION, 15)
            for _ in range(2):
                with anyio.fail_after(WITHIN_S), pytest.raises(CorruptRecord) as caught:
                    await consumer.getmany(timeout_ms=300)
                assert (caught.value.partition, caught.value.offset) == (0, 15)
            assert len([api for api, _ in broker.seen if api is ApiKey.FETCH]) < 5
            consumer.seek(PARTITION, 0)
            assert [record.value for record in await take(consumer, 10)] == numbered(10)
