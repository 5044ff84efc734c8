"""Our clients against librdkafka's mock cluster, which confluent-kafka brings.

Its flexible versions are faulty in several places (a byte too many after Metadata, the count of
JoinGroup's protocols read as a fixed integer): the clients are configured with an earlier release.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.errors import NoBrokerAvailable
from tests.behaviour.support import numbered, take

pytestmark = pytest.mark.slow

confluent_kafka = pytest.importorskip("confluent_kafka")

RELEASE: dict[str, Any] = {"api_version": "2.3"}
PARTITIONS = 4
"""Number of partitions that the mock cluster creates on demand."""
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """Producer property that starts a mock cluster for the producer's lifetime."""
    host = confluent_kafka.Producer(
        {"bootstrap.servers": "none:1", "test.mock.num.brokers": 3},
        logger=logging.getLogger("librdkafka"),
    )
    brokers = host.list_topics(timeout=10).brokers.values()
    assert len(brokers) == 3
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del host


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


async def fill(servers: str, topic: str, values: list[bytes]) -> None:
    async with Producer(bootstrap_servers=servers, **RELEASE) as producer:
        assert await producer.partitions_for(topic) == tuple(range(PARTITIONS))
        for number, value in enumerate(values):
            await producer.send(topic, value, key=value, partition=number % PARTITIONS)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_the_mock_cluster_stores_our_records(
    mock_cluster: str, topic: str, idempotent: bool, codec: Any
) -> None:
    async with Producer(
        bootstrap_servers=mock_cluster,
        enable_idempotence=idempotent,
        compression_type=codec,
        **RELEASE,
    ) as producer:
        for number in range(20):
            receipt = await producer.send_and_wait(topic, b"%d" % number, partition=1)
            assert (receipt.partition, receipt.offset) == (1, number)


async def test_we_consume_from_the_mock_cluster(mock_cluster: str, topic: str) -> None:
    await fill(mock_cluster, topic, numbered(200))
    async with Consumer(
        bootstrap_servers=mock_cluster, auto_offset_reset="earliest", **RELEASE
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(*partitions)
        records = await take(consumer, 200)
        assert sorted(record.value for record in records) == numbered(200)
        assert all(record.key == record.value for record in records)
        assert await consumer.end_offsets(*partitions) == dict.fromkeys(partitions, 50)
        consumer.seek(partitions[0], 40)
        assert len(await take(consumer, 10)) == 10


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], indirect=True)
async def test_the_mock_cluster_coordinates_our_group(
    mock_cluster: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One member, then its heir.

    Several members at a time work only by chance: the mock ends a rebalance when the leader has
    synced, and answers a follower that syncs later with INVALID_REQUEST. It waits three seconds
    before the first rebalance of a group, and almost the session timeout before each other one.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": mock_cluster,
        "group_id": f"group-{uuid.uuid4().hex[:8]}",
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 5_000,
        "heartbeat_interval_ms": 100,
        **RELEASE,
    }
    caplog.set_level(logging.INFO, "aiokafkawire")
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    await fill(mock_cluster, topic, numbered(100))
    with anyio.fail_after(WITHIN_S):
        async with Consumer(topic, **options) as member:
            records = await take(member, 100)
            assert sorted(record.value for record in records) == numbered(100)
            assert member.assignment() == set(partitions)
            await member.commit()
            found = await member.committed(*partitions)
            assert {tp: place and place.offset for tp, place in found.items()} == dict.fromkeys(
                partitions, 25
            )
        await fill(mock_cluster, topic, numbered(20, start=100))
        async with Consumer(topic, **options) as heir:
            records = await take(heir, 20)
    assert sorted(record.value for record in records) == numbered(20, start=100)
    # The mock advertises LeaveGroup v3 and decodes it as v2.
    assert not [line for line in caplog.messages if "LeaveGroup" in line]


async def test_broken_flexible_versions_of_the_mock_are_reported(mock_cluster: str) -> None:
    """When this fails, the mock cluster is fixed, and the release need not be configured."""
    reason = r'trailing bytes at MetadataResponse.* api_version="2\.3"'
    with pytest.raises(NoBrokerAvailable, match=reason):
        async with Producer(bootstrap_servers=mock_cluster, default_api_timeout_ms=500):
            pass
