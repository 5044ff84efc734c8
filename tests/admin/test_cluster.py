"""Versions and hostile answers of the operations on the cluster, its quorum and its features."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.admin import (
    AclOperation,
    FeatureUpdate,
    FeatureUpgradeType,
    Node,
    RaftVoterEndpoint,
)
from aiokafkawire.admin.types.acl_operation import authorized_operations
from aiokafkawire.errors import BrokerError, PartialFailure, ProtocolError, UnsupportedVersion
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.add_raft_voter import AddRaftVoterResponse
from aiokafkawire.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from aiokafkawire.wire.messages.describe_quorum import (
    DescribeQuorumListener,
    DescribeQuorumPartitionResult,
    DescribeQuorumResponse,
    DescribeQuorumTopicResult,
    QuorumNode,
    QuorumReplicaState,
)
from aiokafkawire.wire.messages.unregister_controller import UnregisterControllerResponse
from aiokafkawire.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)
from tests.admin.fakes import ScriptedAdmin
from tests.admin.scripted import ScriptedCluster

E = ErrorCode


async def test_fenced_brokers() -> None:
    cluster = ScriptedCluster()
    cluster.answer(
        ApiKey.DESCRIBE_CLUSTER,
        lambda _: DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=0,
            cluster_id="c",
            controller_id=-1,
            brokers=[
                DescribeClusterBroker(broker_id=2, host="b", port=2, is_fenced=True),
                DescribeClusterBroker(broker_id=1, host="a", port=1, rack="r"),
            ],
        ),
    )
    described = await ScriptedAdmin(cluster).describe_cluster(include_fenced_brokers=True)
    assert cluster.sent[0].message.include_fenced_brokers
    assert described.nodes == (Node(1, "a", 1, "r"), Node(2, "b", 2, None, is_fenced=True))
    assert described.controller_id is None


async def test_the_cluster_by_metadata() -> None:
    cluster = ScriptedCluster(versions={ApiKey.DESCRIBE_CLUSTER: -1, ApiKey.METADATA: 7})
    admin = ScriptedAdmin(cluster)
    described = await admin.describe_cluster()
    assert [node.node_id for node in described.nodes] == [1, 2, 3]
    assert described.controller_id == 1
    with pytest.raises(UnsupportedVersion, match=r"Metadata v8 needs Kafka 2\.3"):
        await admin.describe_cluster(include_authorized_operations=True)
    with pytest.raises(UnsupportedVersion, match=r"DescribeCluster v2 needs Kafka 4\.0"):
        await admin.describe_cluster(include_fenced_brokers=True)


def test_authorized_operations() -> None:
    assert authorized_operations(-(2**31)) is None
    assert authorized_operations(0) == frozenset()
    assert authorized_operations(1 << 3 | 1 << 8 | 1 << 30) == {
        AclOperation.READ,
        AclOperation.DESCRIBE,
    }


def replica(node_id: int, timestamp: int = -1, directory: int = 0) -> QuorumReplicaState:
    return QuorumReplicaState(
        replica_id=node_id,
        replica_directory_id=UUID(int=directory),
        log_end_offset=10,
        last_fetch_timestamp=timestamp,
    )


def quorum(*partitions: tuple[str, int], code: int = 0) -> Any:
    def answer(_: object) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(
            error_code=0,
            topics=[
                DescribeQuorumTopicResult(
                    topic_name=topic,
                    partitions=[
                        DescribeQuorumPartitionResult(
                            partition_index=index,
                            error_code=code,
                            error_message="why",
                            leader_id=1,
                            leader_epoch=3,
                            high_watermark=10,
                            current_voters=[replica(2, 99, 5), replica(1)],
                            observers=[replica(7)],
                        )
                    ],
                )
                for topic, index in partitions
            ],
            nodes=[
                QuorumNode(
                    node_id=1, listeners=[DescribeQuorumListener(name="C", host="h", port=9)]
                )
            ],
        )

    return answer


async def test_the_quorum() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_QUORUM, quorum(("__cluster_metadata", 0)))
    described = await ScriptedAdmin(cluster).describe_metadata_quorum()
    assert [each.replica_id for each in described.voters] == [1, 2]
    first, second = described.voters
    assert (first.replica_directory_id, first.last_fetch_timestamp_ms) == (None, None)
    assert (second.replica_directory_id, second.last_fetch_timestamp_ms) == (UUID(int=5), 99)
    assert described.nodes[1].endpoints == (RaftVoterEndpoint("C", "h", 9),)


@pytest.mark.parametrize(
    "partitions",
    [[], [("other", 0)], [("__cluster_metadata", 1)], [("__cluster_metadata", 0)] * 2],
)
async def test_a_quorum_of_another_log(partitions: list[tuple[str, int]]) -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_QUORUM, quorum(*partitions))
    with pytest.raises(ProtocolError, match="partition 0 of __cluster_metadata alone"):
        await ScriptedAdmin(cluster).describe_metadata_quorum()


async def test_an_error_of_the_quorum() -> None:
    cluster = ScriptedCluster()
    cluster.answer(
        ApiKey.DESCRIBE_QUORUM, quorum(("__cluster_metadata", 0), code=E.UNKNOWN_SERVER_ERROR)
    )
    with pytest.raises(BrokerError, match="why"):
        await ScriptedAdmin(cluster).describe_metadata_quorum()


def updated(code: int = 0, **results: int) -> Any:
    def answer(_: object) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(
            throttle_time_ms=0,
            error_code=code,
            error_message="no",
            results=[
                UpdatableFeatureResult(feature=name, error_code=each, error_message=None)
                for name, each in results.items()
            ],
        )

    return answer


async def test_features_have_one_error_since_kafka_4() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.UPDATE_FEATURES, updated())
    admin = ScriptedAdmin(cluster)
    assert await admin.update_features({"a": 1, "b": 2}) == {"a": None, "b": None}
    cluster.answer(ApiKey.UPDATE_FEATURES, updated(E.INVALID_UPDATE_VERSION))
    with pytest.raises(PartialFailure) as caught:
        await admin.update_features({"a": 1, "b": 2})
    assert list(caught.value.failed) == ["a", "b"]


async def test_features_have_errors_of_their_own_before() -> None:
    cluster = ScriptedCluster(versions={ApiKey.UPDATE_FEATURES: 0})
    cluster.answer(ApiKey.UPDATE_FEATURES, updated(a=0, b=E.FEATURE_UPDATE_FAILED))
    update = FeatureUpdate(1, FeatureUpgradeType.SAFE_DOWNGRADE)
    results = await ScriptedAdmin(cluster).update_features(
        {"a": 3, "b": update}, return_errors=True
    )
    assert results["a"] is None
    assert isinstance(results["b"], BrokerError)
    first, second = cluster.sent[0].message.feature_updates
    assert (first.allow_downgrade, second.allow_downgrade) == (False, True)
    with pytest.raises(UnsupportedVersion, match=r"UpdateFeatures v1 needs Kafka 3\.3"):
        await ScriptedAdmin(cluster).update_features({"a": 3}, validate_only=True)


async def test_a_call_about_one_node_raises_its_error() -> None:
    cluster = ScriptedCluster()
    cluster.answer(
        ApiKey.ADD_RAFT_VOTER,
        lambda _: AddRaftVoterResponse(
            throttle_time_ms=0, error_code=E.DUPLICATE_VOTER, error_message="there already"
        ),
    )
    admin = ScriptedAdmin(cluster)
    with pytest.raises(BrokerError, match="DUPLICATE_VOTER: there already"):
        await admin.add_raft_voter(1, UUID(int=1), [RaftVoterEndpoint("C", "h", 1)])
    cluster.answer(
        ApiKey.UNREGISTER_CONTROLLER,
        lambda _: UnregisterControllerResponse(
            throttle_time_ms=0, error_code=0, error_message=None
        ),
    )
    await admin.unregister_controller(7)
    assert cluster.sent[-1].message.controller_id == 7
    old = ScriptedCluster(versions={ApiKey.UNREGISTER_CONTROLLER: -1})
    with pytest.raises(UnsupportedVersion, match=r"needs Kafka 4\.4 or later"):
        await ScriptedAdmin(old).unregister_controller(7)
