"""The partition of a record."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from aiokafkawire.errors import UnknownTopic
from aiokafkawire.producer import Producer
from tests.behaviour.conftest import NewTopic
from tests.behaviour.support import stored

VECTORS = Path(__file__).parents[1] / "vectors" / "hashes.jsonl.gz"


def java_choices(partitions: int) -> dict[bytes, int]:
    """Keys, with the partition that Kafka's Java producer chooses."""
    with gzip.open(VECTORS, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return {
        base64.b64decode(row["key"]): row["partition"][str(partitions)]
        for row in rows
        if row["kind"] == "murmur2"
    }


async def test_a_key_goes_to_the_partition_that_java_picks(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=12)
    expected = java_choices(12)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for key in expected:
            await producer.send(topic, b"value", key=key)
    found = {record.key: record.partition for record in await stored(bootstrap_servers, topic, 12)}
    assert found == expected
    assert set(found.values()) == set(range(12))


@pytest.mark.slow
async def test_records_without_a_key_reach_every_partition(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=4)
    async with Producer(bootstrap_servers=bootstrap_servers, batch_size_bytes=256) as producer:
        for _ in range(400):
            await producer.send(topic, b"x" * 100)
    records = await stored(bootstrap_servers, topic, 4)
    assert len(records) == 400
    assert {record.partition for record in records} == {0, 1, 2, 3}


async def test_records_without_a_key_share_a_batch(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=4)
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=1_000) as producer:
        deliveries = [await producer.send(topic, b"small") for _ in range(20)]
        await producer.flush()
        receipts = [await delivery for delivery in deliveries]
    assert len({receipt.partition for receipt in receipts}) == 1


async def test_an_explicit_partition_is_used_whatever_the_key(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=3)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for partition in (2, 0, 1, 2):
            receipt = await producer.send_and_wait(topic, b"v", key=b"same", partition=partition)
            assert receipt.partition == partition
    records = await stored(bootstrap_servers, topic, 3)
    assert [record.partition for record in records] == [0, 1, 2, 2]


@pytest.mark.slow
async def test_a_partition_that_the_topic_lacks_is_refused(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=2)
    async with Producer(bootstrap_servers=bootstrap_servers, max_block_ms=300) as producer:
        with pytest.raises(UnknownTopic, match=f"{topic}.*partition 2"):
            await producer.send(topic, b"v", partition=2)
        with pytest.raises(ValueError, match="-1"):
            await producer.send(topic, b"v", partition=-1)
        assert (await producer.send_and_wait(topic, b"v", partition=1)).offset == 0


async def test_an_own_partitioner_is_asked(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=3)
    asked: list[tuple[object, list[int], list[int]]] = []

    def last(
        key: bytes | None, all_partitions: Sequence[int], available_partitions: Sequence[int]
    ) -> int:
        asked.append((key, list(all_partitions), list(available_partitions)))
        return all_partitions[-1]

    async with Producer(bootstrap_servers=bootstrap_servers, partitioner=last) as producer:
        assert (await producer.send_and_wait(topic, b"v", key=b"k")).partition == 2
        assert (await producer.send_and_wait(topic, b"v")).partition == 2
        assert (await producer.send_and_wait(topic, b"v", partition=0)).partition == 0
    assert asked == [(b"k", [0, 1, 2], [0, 1, 2]), (None, [0, 1, 2], [0, 1, 2])]


async def test_what_an_own_partitioner_raises_comes_out_of_the_call(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=2)

    def fails(key: object, all_partitions: object, available_partitions: object) -> int:
        if key == b"bad":
            raise LookupError("no such customer")
        return 7 if key == b"wrong" else 1

    async with Producer(bootstrap_servers=bootstrap_servers, partitioner=fails) as producer:
        with pytest.raises(LookupError, match="no such customer"):
            await producer.send(topic, b"v", key=b"bad")
        with pytest.raises(ValueError, match="returned 7"):
            await producer.send(topic, b"v", key=b"wrong")
        assert (await producer.send_and_wait(topic, b"v", key=b"good")).partition == 1
    assert len(await stored(bootstrap_servers, topic, 2)) == 1


async def test_keys_may_be_kept_out_of_the_choice(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=4)
    async with Producer(
        bootstrap_servers=bootstrap_servers, batch_size_bytes=256, partitioner_ignore_keys=True
    ) as producer:
        for _ in range(300):
            await producer.send(topic, b"x" * 100, key=b"always the same")
    records = await stored(bootstrap_servers, topic, 4)
    assert {record.partition for record in records} == {0, 1, 2, 3}
    assert {record.key for record in records} == {b"always the same"}


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.slow
async def test_keyless_records_are_spread_adaptively_or_not(
    bootstrap_servers: str, new_topic: NewTopic, adaptive: bool
):
    topic = await new_topic(partitions=3)
    async with Producer(
        bootstrap_servers=bootstrap_servers,
        batch_size_bytes=256,
        partitioner_adaptive_partitioning_enable=adaptive,
        partitioner_availability_timeout_ms=5_000,
    ) as producer:
        for _ in range(300):
            await producer.send(topic, b"x" * 100)
    records = await stored(bootstrap_servers, topic, 3)
    assert len(records) == 300
    assert {record.partition for record in records} == {0, 1, 2}


async def test_partitions_for_returns_the_partitions_of_a_topic(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=3)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        assert list(await producer.partitions_for(topic)) == [0, 1, 2]
        # Now the topic is known, and nothing needs to be awaited.
        assert (await producer.send_nowait(topic, b"v", partition=2)).partition == 2
