"""Internal topics: who creates them, what they show, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire import Consumer
from aiokafkawire.broker import Broker
from aiokafkawire.wire import ZERO_UUID, ErrorCode, Request
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aiokafkawire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aiokafkawire.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aiokafkawire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafkawire.wire.messages.metadata import MetadataRequest

from .config_client import TOPIC, described
from .raw_client import batch, build_update_metadata_request, connected, only, produce_request

E = ErrorCode
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
GROUP, TRANSACTIONAL_ID = 0, 1


async def call(broker: Broker, request: Request[Any], version: int, node: int = 1) -> Any:
    async with connected(broker, node) as client:
        return await client.call(request, version)


async def find(broker: Broker, key: str, key_type: int = GROUP) -> int:
    """Return the coordinator of a key."""
    request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    (found,) = (await call(broker, request, 4)).coordinators
    assert found.error_code == E.NONE
    return int(found.node_id)


async def topics(broker: Broker, node: int = 1) -> dict[str, Any]:
    response = await call(broker, MetadataRequest(topics=None), 12, node)
    return {topic.name: topic for topic in response.topics}


@pytest.mark.parametrize("replicate", [False, True])
async def test_the_first_use_creates_them(replicate: bool) -> None:
    async with Broker(nodes=2, replicate=replicate) as broker:
        await broker.create_topic("t")
        assert set(await topics(broker)) == {"t"}
        coordinator = await find(broker, "g")
        assert set(await topics(broker)) == {"t", OFFSETS}
        await find(broker, "tx", TRANSACTIONAL_ID)
        for node in (1, 2):
            found = await topics(broker, node)
            assert {name: topic.is_internal for name, topic in found.items()} == {
                "t": False,
                OFFSETS: True,
                TRANSACTIONS: True,
            }
            index = broker._running.cluster.coordinator_partition("g")
            partition = found[OFFSETS].partitions[index]
            assert (len(found[OFFSETS].partitions), partition.leader_id) == (50, coordinator)
            assert sorted(partition.replica_nodes) == [1, 2]
        assert broker.topics == {"t": 1}


async def test_their_leaders_are_the_coordinators() -> None:
    async with Broker(nodes=2) as broker:
        old = await find(broker, "g")
        index = broker._running.cluster.coordinator_partition("g")
        assert broker.leader(OFFSETS, index) == old
        await broker.kill(old)
        assert broker.leader(OFFSETS, index) == 3 - old
        assert broker.leader_epoch(OFFSETS, index) == 1
        assert broker.isr(OFFSETS, index) == (3 - old,)
        await broker.restart(old)
        broker.move_coordinator("g", old)
        assert broker.leader(OFFSETS, index) == old


async def test_their_configs_are_those_of_kafka() -> None:
    async with Broker(nodes=3) as broker:
        await find(broker, "g")
        await find(broker, "tx", TRANSACTIONAL_ID)
        shown = {}
        for name in (OFFSETS, TRANSACTIONS):
            configs = await described(broker, TOPIC, name)
            shown[name] = {k: c.value for k, c in configs.items() if c.config_source == 1}
        assert shown == {
            OFFSETS: {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": "104857600",
            },
            TRANSACTIONS: {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "2",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        }


async def test_clients_can_read_but_not_change_them() -> None:
    async with Broker() as broker:
        await find(broker, "g")
        produced = only(await call(broker, produce_request(OFFSETS, 0, batch(b"v")), 9))
        assert produced.error_code == E.INVALID_TOPIC_EXCEPTION
        deleted = DeleteRecordsTopic(
            name=OFFSETS, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
        )
        response = await call(broker, DeleteRecordsRequest(topics=[deleted], timeout_ms=1), 2)
        assert only(response).error_code == E.INVALID_TOPIC_EXCEPTION
        more = CreatePartitionsTopic(name=OFFSETS, count=60, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=1, validate_only=False)
        (result,) = (await call(broker, request, 3)).results
        assert result.error_code == E.INVALID_REQUEST
        fetched = FetchTopic(
            topic=OFFSETS,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
        )
        response = await call(broker, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[fetched]), 4)
        assert (only(response).error_code, only(response).high_watermark) == (E.NONE, 0)
        listed = ListOffsetsTopic(
            name=OFFSETS, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
        response = await call(broker, ListOffsetsRequest(replica_id=-1, topics=[listed]), 5)
        assert (only(response).error_code, only(response).offset) == (E.NONE, 0)


def new_topic(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[]
            )
        ]
    )


async def test_they_are_created_and_deleted_as_other_topics() -> None:
    async with Broker() as broker:
        (created,) = (await call(broker, new_topic(OFFSETS), 7)).topics
        assert (created.error_code, created.num_partitions) == (E.NONE, 50)
        await find(broker, "g")
        (again,) = (await call(broker, new_topic(OFFSETS), 7)).topics
        assert again.error_code == E.TOPIC_ALREADY_EXISTS
        state = DeleteTopicState(name=OFFSETS, topic_id=ZERO_UUID)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=1_000)
        (deleted,) = (await call(broker, request, 6)).responses
        assert (deleted.error_code, set(await topics(broker))) == (E.NONE, set())
        asked = build_update_metadata_request(TRANSACTIONS, create=True)
        (found,) = (await call(broker, asked, 12)).topics
        assert (found.error_code, found.is_internal) == (E.NONE, True)


async def test_they_survive_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        await find(broker, "g")
        before = (await topics(broker))[OFFSETS].topic_id
    async with Broker(data_dir=tmp_path) as broker:
        assert (await topics(broker))[OFFSETS].topic_id == before
        assert broker.leader(OFFSETS, 0) == 1


async def test_they_are_no_match_of_a_pattern() -> None:
    async with Broker() as broker:
        await find(broker, "g")
        await broker.create_topic("t")
        servers = broker.bootstrap_servers
        async with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
            consumer.subscribe(pattern=".*")
            with anyio.fail_after(30):
                while True:
                    await consumer.getmany(timeout_ms=50)
                    if consumer.assignment():
                        break
            assert {tp.topic for tp in consumer.assignment()} == {"t"}
