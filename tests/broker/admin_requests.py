"""A valid request of each API of reassignments, quotas, features, the quorum and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages import (
    add_raft_voter,
    alter_client_quotas,
    alter_partition_reassignments,
    create_delegation_token,
    describe_client_quotas,
    describe_delegation_token,
    describe_quorum,
    elect_leaders,
    expire_delegation_token,
    get_telemetry_subscriptions,
    list_partition_reassignments,
    push_telemetry,
    remove_raft_voter,
    renew_delegation_token,
    unregister_broker,
    unregister_controller,
    update_features,
    write_txn_markers,
)

__all__ = ("ADMIN_REQUESTS",)


def reassignment(version: int, topic_id: UUID) -> Request[Any]:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[1])
    topic = alter_partition_reassignments.ReassignableTopic(name="t", partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def election(version: int, topic_id: UUID) -> Request[Any]:
    topic = elect_leaders.ElectLeadersTopicPartitions(topic="t", partitions=[0])
    return elect_leaders.ElectLeadersRequest(topic_partitions=[topic])


def quota(version: int, topic_id: UUID) -> Request[Any]:
    entry = alter_client_quotas.AlterClientQuotasEntryData(
        entity=[
            alter_client_quotas.AlterClientQuotasEntityData(entity_type="user", entity_name="u")
        ],
        ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9, remove=False)],
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)


def feature(version: int, topic_id: UUID) -> Request[Any]:
    update = update_features.FeatureUpdateKey(feature="group.version", max_version_level=1)
    return update_features.UpdateFeaturesRequest(feature_updates=[update])


def quorum(version: int, topic_id: UUID) -> Request[Any]:
    partition = describe_quorum.DescribeQuorumPartitionData(partition_index=0)
    topic = describe_quorum.DescribeQuorumTopicData(
        topic_name="__cluster_metadata", partitions=[partition]
    )
    return describe_quorum.DescribeQuorumRequest(topics=[topic])


def addition(version: int, topic_id: UUID) -> Request[Any]:
    listener = add_raft_voter.AddRaftVoterListener(name="CONTROLLER", host="h", port=1)
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=1_000,
        voter_id=1,
        voter_directory_id=UUID(int=1),
        listeners=[listener],
    )


def removal(version: int, topic_id: UUID) -> Request[Any]:
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=None, voter_id=1, voter_directory_id=UUID(int=1)
    )


def marker(version: int, topic_id: UUID) -> Request[Any]:
    topic = write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    return write_txn_markers.WriteTxnMarkersRequest(
        markers=[
            write_txn_markers.WritableTxnMarker(
                producer_id=9_999,
                producer_epoch=0,
                transaction_result=False,
                topics=[topic],
                coordinator_epoch=0,
            )
        ]
    )


def metrics(version: int, topic_id: UUID) -> Request[Any]:
    return push_telemetry.PushTelemetryRequest(
        client_instance_id=UUID(int=1),
        subscription_id=0,
        terminating=False,
        compression_type=0,
        metrics=b"",
    )


ADMIN_REQUESTS: dict[ApiKey, tuple[Callable[[int, UUID], Request[Any]], set[ErrorCode]]] = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (reassignment, {ErrorCode.NONE}),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        lambda v, i: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        {ErrorCode.NONE},
    ),
    ApiKey.ELECT_LEADERS: (election, {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}),
    ApiKey.ALTER_CLIENT_QUOTAS: (quota, {ErrorCode.NONE}),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        lambda v, i: describe_client_quotas.DescribeClientQuotasRequest(
            components=[], strict=False
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        lambda v, i: create_delegation_token.CreateDelegationTokenRequest(
            renewers=[], max_lifetime_ms=-1
        ),
        {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: (
        lambda v, i: renew_delegation_token.RenewDelegationTokenRequest(
            hmac=b"x", renew_period_ms=1
        ),
        {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (
        lambda v, i: expire_delegation_token.ExpireDelegationTokenRequest(
            hmac=b"x", expiry_time_period_ms=1
        ),
        {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        lambda v, i: describe_delegation_token.DescribeDelegationTokenRequest(owners=None),
        {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    ),
    ApiKey.WRITE_TXN_MARKERS: (marker, {ErrorCode.NONE}),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (
        lambda v, i: get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest(
            client_instance_id=UUID(int=0)
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.PUSH_TELEMETRY: (metrics, {ErrorCode.UNKNOWN_SUBSCRIPTION_ID}),
    ApiKey.UPDATE_FEATURES: (feature, {ErrorCode.NONE}),
    ApiKey.DESCRIBE_QUORUM: (quorum, {ErrorCode.NONE}),
    ApiKey.ADD_RAFT_VOTER: (addition, {ErrorCode.DUPLICATE_VOTER}),
    ApiKey.REMOVE_RAFT_VOTER: (removal, {ErrorCode.VOTER_NOT_FOUND}),
    ApiKey.UNREGISTER_BROKER: (
        lambda v, i: unregister_broker.UnregisterBrokerRequest(broker_id=1),
        {ErrorCode.NONE},
    ),
    ApiKey.UNREGISTER_CONTROLLER: (
        lambda v, i: unregister_controller.UnregisterControllerRequest(controller_id=1),
        {ErrorCode.NONE},
    ),
}
