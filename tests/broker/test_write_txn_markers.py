"""WriteTxnMarkers, which ends hanging transactions."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafkawire.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from .raw_client import RawClient, batch, connected, only, produce_request

E = ErrorCode
PRODUCER, EPOCH = 77, 3
READ_COMMITTED = 1


def markers(
    topic: str = "t",
    *indexes: int,
    producer_id: int = PRODUCER,
    epoch: int = EPOCH,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    commit: bool = False,
) -> WriteTxnMarkersRequest:
    partitions = WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes or (0,)))
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                topics=[partitions],
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )
        ]
    )


async def write(client: RawClient, request: WriteTxnMarkersRequest, version: int = 2) -> Any:
    """Return the error codes of the partitions."""
    response = await client.call(request, version)
    (result,) = response.markers
    assert result.producer_id == request.markers[0].producer_id
    codes = [each.error_code for each in result.topics[0].partitions]
    return codes if len(codes) > 1 else codes[0]


async def leave_hanging(client: RawClient) -> None:
    """Write to a transaction that no coordinator knows."""
    records = batch(
        b"v", producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=0, transactional=True
    )
    request = produce_request("t", 0, records)
    request.transactional_id = "tx"
    assert only(await client.call(request, 7)).error_code == E.NONE


async def active(client: RawClient) -> list[tuple[int, int, int, int]]:
    """Return id, epoch, coordinator epoch and transaction start of each producer."""
    topic = DescribeProducersTopicRequest(name="t", partition_indexes=[0])
    response = await client.call(DescribeProducersRequest(topics=[topic]), 0)
    return [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in response.topics[0].partitions[0].active_producers
    ]


async def last_stable_offset(client: RawClient) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[ListOffsetsTopic(name="t", partitions=[partition])],
    )
    response = await client.call(request, 5)
    offset: int = response.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("options", [{}, {"nodes": 2, "replicate": True}])
async def test_a_hanging_transaction_is_aborted(options: dict[str, Any]) -> None:
    async with Broker(as_of="3.3", **options) as broker:
        await broker.create_topic("t")
        async with connected(broker, broker.leader("t", 0)) as client:
            await leave_hanging(client)
            assert await active(client) == [(PRODUCER, EPOCH, -1, 0)]
            assert await last_stable_offset(client) == 0
            assert await write(client, markers(coordinator_epoch=5), 1) == E.NONE
            assert await active(client) == [(PRODUCER, EPOCH, 5, -1)]
            assert await last_stable_offset(client) == 2


async def test_errors_of_kafka_4_3() -> None:
    async with Broker(nodes=3) as broker:
        broker._running.cluster.create_topic("t", assignments={0: [1, 2], 1: [2, 3]})
        leader = broker.leader("t", 0)
        async with connected(broker, leader) as client:
            assert await write(client, markers(coordinator_epoch=5)) == E.NONE
            assert await write(client, markers(epoch=2, coordinator_epoch=5)) == (
                E.INVALID_PRODUCER_EPOCH
            )
            assert await write(client, markers(coordinator_epoch=4)) == (
                E.TRANSACTION_COORDINATOR_FENCED
            )
            assert await write(client, markers(coordinator_epoch=-1)) == (
                E.TRANSACTION_COORDINATOR_FENCED
            )
            repeated = markers(coordinator_epoch=5, transaction_version=2)
            assert await write(client, repeated) == E.NONE
            both = markers("t", 0, 77, coordinator_epoch=5)
            assert await write(client, both) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
            assert await write(client, markers("u")) == E.UNKNOWN_TOPIC_OR_PARTITION
            assert await write(client, markers(producer_id=-1)) == E.UNKNOWN_SERVER_ERROR
            assert (await client.call(WriteTxnMarkersRequest(markers=[]), 2)).markers == []
            # Without a replica, the partition is unknown to the node.
            assert await write(client, markers("t", 1)) == E.UNKNOWN_TOPIC_OR_PARTITION
        async with connected(broker, 3 - leader) as client:
            assert await write(client, markers()) == E.NOT_LEADER_OR_FOLLOWER


async def test_a_marker_of_transaction_version_2_bumps_the_epoch() -> None:
    async with Broker(as_of="3.3") as broker:
        await broker.create_topic("t")
        async with connected(broker) as client:
            await leave_hanging(client)
        partition = broker._running.cluster.topics["t"].partitions[0]
        state = partition.log.producers
        with pytest.raises(Exception, match="INVALID_PRODUCER_EPOCH"):
            state.check_marker(PRODUCER, EPOCH, 0, bumps_epoch=True)
        state.check_marker(PRODUCER, EPOCH + 1, 0, bumps_epoch=True)


async def test_a_permission_on_the_cluster_is_needed() -> None:
    acls = [Acl("User:ANONYMOUS", "Alter", cluster=True)]
    async with Broker(acls=acls) as broker:
        await broker.create_topic("t")
        async with connected(broker) as client:
            assert await write(client, markers()) == E.NONE
            broker.remove_acls(*acls)
            assert await write(client, markers()) == E.CLUSTER_AUTHORIZATION_FAILED
