"""Versions, routing and hostile answers of the operations on partitions, logs and offsets."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.admin import ElectionType, ListedOffset, OffsetSpec, TopicPartitionReplica
from aiokafkawire.cluster import ToNode
from aiokafkawire.errors import (
    AuthorizationFailed,
    BrokerError,
    ConnectionFailed,
    PartialFailure,
    ProtocolError,
    UnsupportedVersion,
)
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
)
from aiokafkawire.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from aiokafkawire.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from aiokafkawire.wire.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aiokafkawire.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.admin.fakes import ScriptedAdmin
from tests.admin.scripted import ScriptedCluster

E = ErrorCode
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
LEADERS: dict[tuple[str, int], int] = {T0: 1, T1: 1, T2: 2}


def offsets(**fields: Any) -> Any:
    def answer(request: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=part.partition_index, error_code=0, **fields
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


async def test_offsets_by_the_version_that_each_needs() -> None:
    cluster = ScriptedCluster(leaders=LEADERS, versions={ApiKey.LIST_OFFSETS: 7})
    cluster.answer(ApiKey.LIST_OFFSETS, offsets(offset=5, timestamp=-1, leader_epoch=2))
    with pytest.raises(PartialFailure) as caught:
        await ScriptedAdmin(cluster).list_offsets(
            {T0: OffsetSpec.LATEST, T1: OffsetSpec.EARLIEST_PENDING_UPLOAD, T2: 17}
        )
    assert caught.value.succeeded == {T0: ListedOffset(5, None, 2), T2: ListedOffset(5, None, 2)}
    error = caught.value.failed[T1]
    assert isinstance(error, UnsupportedVersion)
    assert "ListOffsets v11 needs Kafka 4.2 or later" in str(error)
    assert {sent.to for sent in cluster.requests(ApiKey.LIST_OFFSETS)} == {ToNode(1), ToNode(2)}


async def test_read_committed_needs_version_2() -> None:
    cluster = ScriptedCluster(leaders=LEADERS, versions={ApiKey.LIST_OFFSETS: 1})
    admin = ScriptedAdmin(cluster)
    with pytest.raises(UnsupportedVersion, match=r"v2 needs Kafka 0\.11\.0"):
        await admin.list_offsets({T0: OffsetSpec.LATEST}, isolation_level="read_committed")
    with pytest.raises(ValueError, match="isolation_level must be"):
        await admin.list_offsets({T0: OffsetSpec.LATEST}, isolation_level="serializable")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="must be at least 0, or an OffsetSpec, not -7"):
        await admin.list_offsets({T0: -7})


async def test_offsets_of_version_0() -> None:
    cluster = ScriptedCluster(leaders=LEADERS, versions={ApiKey.LIST_OFFSETS: 0})
    cluster.answer(ApiKey.LIST_OFFSETS, offsets(old_style_offsets=[9, 0]))
    listed = await ScriptedAdmin(cluster).list_offsets({T0: OffsetSpec.LATEST})
    assert listed == {T0: ListedOffset(9)}


def elected(*codes: tuple[TopicPartition, int]) -> Any:
    return lambda _: ElectLeadersResponse(
        throttle_time_ms=0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=tp.topic,
                partition_result=[
                    ElectLeadersPartitionResult(
                        partition_id=tp.partition, error_code=code, error_message=None
                    )
                ],
            )
            for tp, code in codes
        ],
    )


async def test_elections_of_all_partitions() -> None:
    cluster = ScriptedCluster()
    cluster.answer(
        ApiKey.ELECT_LEADERS,
        elected((T0, 0), (T1, E.ELECTION_NOT_NEEDED), (T2, E.PREFERRED_LEADER_NOT_AVAILABLE)),
    )
    admin = ScriptedAdmin(cluster)
    results = await admin.elect_leaders(ElectionType.PREFERRED, return_errors=True)
    assert list(results) == [T0, T2]
    error = results[T2]
    assert isinstance(error, BrokerError)
    assert (error.code, error.partition) == (E.PREFERRED_LEADER_NOT_AVAILABLE, 2)
    assert cluster.sent[0].message.topic_partitions is None


async def test_an_unclean_election_needs_version_1() -> None:
    cluster = ScriptedCluster(versions={ApiKey.ELECT_LEADERS: 0})
    cluster.answer(ApiKey.ELECT_LEADERS, elected((T0, 0)))
    admin = ScriptedAdmin(cluster)
    assert await admin.elect_leaders(ElectionType.PREFERRED, [T0]) == {T0: None}
    for partitions in ([T0], None):
        with pytest.raises(UnsupportedVersion, match=r"v1 needs Kafka 2\.4"):
            await admin.elect_leaders(ElectionType.UNCLEAN, partitions)


async def test_an_election_of_another_partition() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.ELECT_LEADERS, elected((T1, 0)))
    with pytest.raises(ProtocolError, match="lacks a result for t-0"):
        await ScriptedAdmin(cluster).elect_leaders(ElectionType.PREFERRED, [T0])


async def test_reassignments() -> None:
    cluster = ScriptedCluster()
    cluster.answer(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        lambda _: AlterPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=0, error_message=None, responses=[]
        ),
    )
    admin = ScriptedAdmin(cluster)
    with pytest.raises(PartialFailure) as caught:
        await admin.alter_partition_reassignments({T0: [2, 3], T1: None})
    assert all(isinstance(error, ProtocolError) for error in caught.value.failed.values())
    sent = cluster.sent[0].message
    assert [part.replicas for part in sent.topics[0].partitions] == [[2, 3], None]
    cluster.versions[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = 0
    with pytest.raises(UnsupportedVersion, match=r"v1 needs Kafka 4\.1"):
        await admin.alter_partition_reassignments({T0: [2]}, allow_replication_factor_change=False)


async def test_reassignments_in_progress() -> None:
    cluster = ScriptedCluster()
    ongoing = [
        OngoingPartitionReassignment(
            partition_index=number, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]
        )
        for number in (1, 0)
    ]
    cluster.answer(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        lambda _: ListPartitionReassignmentsResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            topics=[OngoingTopicReassignment(name="t", partitions=ongoing)],
        ),
    )
    admin = ScriptedAdmin(cluster)
    assert list(await admin.list_partition_reassignments()) == [T0, T1]
    only = await admin.list_partition_reassignments([T1])
    assert list(only) == [T1]
    assert only[T1].adding_replicas == (2,)


def dirs(*results: tuple[str, bool], code: int = 0) -> Any:
    return lambda _: DescribeLogDirsResponse(
        throttle_time_ms=0,
        results=[
            DescribeLogDirsResult(
                error_code=code,
                log_dir=path,
                topics=[
                    DescribeLogDirsTopic(
                        name="t",
                        partitions=[
                            DescribeLogDirsPartition(
                                partition_index=0,
                                partition_size=70,
                                offset_lag=3 if future else 0,
                                is_future_key=future,
                            )
                        ],
                    )
                ],
            )
            for path, future in results
        ],
    )


async def test_a_replica_that_is_being_moved() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_LOG_DIRS, dirs(("/a", False), ("/b", True)))
    replica = TopicPartitionReplica("t", 0, 2)
    info = (await ScriptedAdmin(cluster).describe_replica_log_dirs([replica]))[replica]
    assert (info.current_replica_log_dir, info.current_replica_offset_lag) == ("/a", 0)
    assert (info.future_replica_log_dir, info.future_replica_offset_lag) == ("/b", 3)
    assert cluster.sent[0].to == ToNode(2)


async def test_a_directory_that_failed() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_LOG_DIRS, dirs(("/a", False), code=E.KAFKA_STORAGE_ERROR))
    described = (await ScriptedAdmin(cluster).describe_log_dirs([2]))[2]["/a"]
    assert isinstance(described.error, BrokerError)
    assert (described.total_bytes, described.usable_bytes) == (None, None)


async def test_no_directory_means_no_permission() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_LOG_DIRS, dirs())
    with pytest.raises(PartialFailure) as caught:
        await ScriptedAdmin(cluster).describe_log_dirs([2, 9])
    assert isinstance(caught.value.failed[2], AuthorizationFailed)
    assert isinstance(caught.value.failed[9], ConnectionFailed)


@pytest.mark.parametrize("count", [0, 2])
async def test_replicas_that_are_answered_not_once(count: int) -> None:
    cluster = ScriptedCluster()
    result = AlterReplicaLogDirTopicResult(
        topic_name="t",
        partitions=[AlterReplicaLogDirPartitionResult(partition_index=0, error_code=0)] * count,
    )
    cluster.answer(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        lambda _: AlterReplicaLogDirsResponse(throttle_time_ms=0, results=[result]),
    )
    with pytest.raises(ProtocolError, match=f"has {count} results for t-0 on broker 2"):
        await ScriptedAdmin(cluster).alter_replica_log_dirs(
            {TopicPartitionReplica("t", 0, 2): "/b"}
        )


async def test_replicas_are_moved_by_broker_and_directory() -> None:
    cluster = ScriptedCluster()

    def answer(request: Any) -> AlterReplicaLogDirsResponse:
        return AlterReplicaLogDirsResponse(
            throttle_time_ms=0,
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name=topic.name,
                    partitions=[
                        AlterReplicaLogDirPartitionResult(
                            partition_index=number,
                            error_code=E.LOG_DIR_NOT_FOUND if each.path == "/c" else 0,
                        )
                        for number in topic.partitions
                    ],
                )
                for each in request.dirs
                for topic in each.topics
            ],
        )

    cluster.answer(ApiKey.ALTER_REPLICA_LOG_DIRS, answer)
    first, second, third = (TopicPartitionReplica("t", 0, node_id) for node_id in (1, 2, 3))
    with pytest.raises(PartialFailure) as caught:
        await ScriptedAdmin(cluster).alter_replica_log_dirs(
            {first: "/a", second: "/b", third: "/c"}
        )
    assert caught.value.succeeded == {first: None, second: None}
    error = caught.value.failed[third]
    assert (error.broker, error.topic, error.partition) == ("3", "t", 0)
