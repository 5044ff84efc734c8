"""Every API in every supported version: successful, and with an injected error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker import Answer, Broker
from aiokafkawire.broker.apis import HANDLERS
from aiokafkawire.wire import APIS, ZERO_UUID, ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
)

from .admin_requests import ADMIN_REQUESTS
from .raw_client import RawClient, batch, build_update_metadata_request, connected, produce_request
from .share_requests import SHARE_REQUESTS
from .topic_requests import TOPIC_REQUESTS

Maker = Callable[[int, UUID], Request[Any]]


def produce(version: int, topic_id: UUID) -> Request[Any]:
    records = batch(b"v", magic=(0, 0, 1)[version] if version < 3 else 2)
    if version < 13:
        return produce_request("t", 0, records)
    return produce_request("", 0, records, topic_id=topic_id)


def fetch_request(version: int, topic_id: UUID) -> Request[Any]:
    by_id = version >= 13
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            fetch.FetchTopic(
                topic="" if by_id else "t",
                topic_id=topic_id if by_id else ZERO_UUID,
                partitions=[partition],
            )
        ],
    )


def list_offsets_request(version: int, topic_id: UUID) -> Request[Any]:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name="t", partitions=[partition])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


def offset_commit_request(version: int, topic_id: UUID) -> Request[Any]:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="note"
    )
    topic = offset_commit.OffsetCommitRequestTopic(
        name="t" if version < 10 else "",
        topic_id=topic_id if version >= 10 else ZERO_UUID,
        partitions=[partition],
    )
    return offset_commit.OffsetCommitRequest(group_id="simple", topics=[topic])


def offset_fetch_request(version: int, topic_id: UUID) -> Request[Any]:
    if version < 8:
        old = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        return offset_fetch.OffsetFetchRequest(group_id="simple", topics=[old])
    topic = offset_fetch.OffsetFetchRequestTopics(
        name="t" if version < 10 else "",
        topic_id=topic_id if version >= 10 else ZERO_UUID,
        partition_indexes=[0],
    )
    group = offset_fetch.OffsetFetchRequestGroup(group_id="simple", topics=[topic])
    return offset_fetch.OffsetFetchRequest(groups=[group])


def find_coordinator_request(version: int, topic_id: UUID) -> Request[Any]:
    if version < 4:
        return find_coordinator.FindCoordinatorRequest(key="g")
    return find_coordinator.FindCoordinatorRequest(coordinator_keys=["g", "h"])


def join_group_request(version: int, topic_id: UUID) -> Request[Any]:
    return join_group.JoinGroupRequest(
        group_id=f"join-{version}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id="i" if version >= 5 else None,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


def leave_group_request(version: int, topic_id: UUID) -> Request[Any]:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id="g", member_id="nobody")
    return leave_group.LeaveGroupRequest(
        group_id="g", members=[leave_group.MemberIdentity(member_id="nobody")]
    )


def create_topics_request(version: int, topic_id: UUID) -> Request[Any]:
    topic = create_topics.CreatableTopic(
        name=f"made-{version}",
        num_partitions=2,
        replication_factor=1,
        assignments=[],
        configs=[create_topics.CreatableTopicConfig(name="retention.ms", value="1000")],
    )
    return create_topics.CreateTopicsRequest(topics=[topic])


def delete_topics_request(version: int, topic_id: UUID) -> Request[Any]:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=[f"d-{version}"], timeout_ms=1)
    states = [delete_topics.DeleteTopicState(name=f"d-{version}", topic_id=ZERO_UUID)]
    return delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=1)


def offset_for_leader_epoch_request(version: int, topic_id: UUID) -> Request[Any]:
    asked = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="t", partitions=[asked])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])


def create_partitions_request(version: int, topic_id: UUID) -> Request[Any]:
    topic = create_partitions.CreatePartitionsTopic(name=f"d-{version}", count=3, assignments=None)
    return create_partitions.CreatePartitionsRequest(
        topics=[topic], timeout_ms=1_000, validate_only=False
    )


def describe_configs_request(version: int, topic_id: UUID) -> Request[Any]:
    resources = [
        describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        for kind, name in ((2, "t"), (4, "1"), (4, ""))
    ]
    return describe_configs.DescribeConfigsRequest(
        resources=resources, include_synonyms=version >= 1
    )


def offset_delete_request(version: int, topic_id: UUID) -> Request[Any]:
    asked = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    topic = offset_delete.OffsetDeleteRequestTopic(name="t", partitions=[asked])
    return offset_delete.OffsetDeleteRequest(group_id="nobody", topics=[topic])


NOBODY: dict[str, Any] = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0}


def add_partitions_to_txn_request(version: int, topic_id: UUID) -> Request[Any]:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    if version >= 4:
        only = add_partitions_to_txn.AddPartitionsToTxnTransaction(**NOBODY, topics=topics)
        return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[only])
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=1,
        v3_and_below_topics=topics,
    )


def txn_offset_commit_request(version: int, topic_id: UUID) -> Request[Any]:
    asked = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
        name="t", topic_id=topic_id, partitions=[asked]
    )
    return txn_offset_commit.TxnOffsetCommitRequest(**NOBODY, group_id="g", topics=[topic])


def describe_producers_request(version: int, topic_id: UUID) -> Request[Any]:
    topic = describe_producers.DescribeProducersTopicRequest(name="t", partition_indexes=[0])
    return describe_producers.DescribeProducersRequest(topics=[topic])


# Requests, and the error codes of a fresh broker's responses.
ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def create_acls_request(version: int, topic_id: UUID) -> Request[Any]:
    creation = create_acls.AclCreation(
        resource_type=2,
        resource_name="t",
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    return create_acls.CreateAclsRequest(creations=[creation])


def alter_user_scram_credentials_request(version: int, topic_id: UUID) -> Request[Any]:
    upsertion = alter_user_scram_credentials.ScramCredentialUpsertion(
        name="a", mechanism=1, iterations=4_096, salt=b"salt", salted_password=bytes(32)
    )
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[], upsertions=[upsertion]
    )


REQUESTS: dict[ApiKey, tuple[Maker, set[ErrorCode]]] = {
    ApiKey.PRODUCE: (produce, {ErrorCode.NONE}),
    ApiKey.FETCH: (fetch_request, {ErrorCode.NONE}),
    ApiKey.LIST_OFFSETS: (list_offsets_request, {ErrorCode.NONE}),
    ApiKey.METADATA: (
        lambda v, i: build_update_metadata_request("t", create=v < 4),
        {ErrorCode.NONE},
    ),
    ApiKey.OFFSET_COMMIT: (offset_commit_request, {ErrorCode.NONE}),
    ApiKey.OFFSET_FETCH: (
        offset_fetch_request,
        {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    ApiKey.FIND_COORDINATOR: (find_coordinator_request, {ErrorCode.NONE}),
    ApiKey.JOIN_GROUP: (join_group_request, {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}),
    ApiKey.HEARTBEAT: (
        lambda v, i: heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        {ErrorCode.UNKNOWN_MEMBER_ID},
    ),
    ApiKey.LEAVE_GROUP: (leave_group_request, {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}),
    ApiKey.SYNC_GROUP: (
        lambda v, i: sync_group.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        ),
        {ErrorCode.UNKNOWN_MEMBER_ID},
    ),
    ApiKey.DESCRIBE_GROUPS: (
        lambda v, i: describe_groups.DescribeGroupsRequest(groups=["g"]),
        {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND},
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        lambda v, i: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        lambda v, i: consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=["g"], include_authorized_operations=True
        ),
        {ErrorCode.GROUP_ID_NOT_FOUND},
    ),
    ApiKey.LIST_GROUPS: (lambda v, i: list_groups.ListGroupsRequest(), {ErrorCode.NONE}),
    ApiKey.API_VERSIONS: (
        lambda v, i: api_versions.ApiVersionsRequest(
            client_software_name="test", client_software_version="1.0"
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.CREATE_TOPICS: (create_topics_request, {ErrorCode.NONE}),
    ApiKey.DELETE_TOPICS: (delete_topics_request, {ErrorCode.NONE}),
    ApiKey.INIT_PRODUCER_ID: (
        lambda v, i: init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1_000
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (offset_for_leader_epoch_request, {ErrorCode.NONE}),
    ApiKey.DESCRIBE_CONFIGS: (describe_configs_request, {ErrorCode.NONE}),
    ApiKey.CREATE_PARTITIONS: (create_partitions_request, {ErrorCode.NONE}),
    ApiKey.DELETE_GROUPS: (
        lambda v, i: delete_groups.DeleteGroupsRequest(groups_names=["nobody"]),
        {ErrorCode.GROUP_ID_NOT_FOUND},
    ),
    ApiKey.SASL_HANDSHAKE: (
        lambda v, i: sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"),
        {ErrorCode.ILLEGAL_SASL_STATE},
    ),
    ApiKey.SASL_AUTHENTICATE: (
        lambda v, i: sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b""),
        {ErrorCode.ILLEGAL_SASL_STATE},
    ),
    ApiKey.OFFSET_DELETE: (offset_delete_request, {ErrorCode.GROUP_ID_NOT_FOUND}),
    ApiKey.DESCRIBE_CLUSTER: (
        lambda v, i: describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=False
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        add_partitions_to_txn_request,
        {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        lambda v, i: add_offsets_to_txn.AddOffsetsToTxnRequest(**NOBODY, group_id="g"),
        {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ),
    ApiKey.END_TXN: (
        lambda v, i: end_txn.EndTxnRequest(**NOBODY, committed=True),
        {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        txn_offset_commit_request,
        {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ),
    ApiKey.DESCRIBE_PRODUCERS: (describe_producers_request, {ErrorCode.NONE}),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        lambda v, i: describe_transactions.DescribeTransactionsRequest(transactional_ids=["tx"]),
        {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
    ),
    ApiKey.LIST_TRANSACTIONS: (
        lambda v, i: list_transactions.ListTransactionsRequest(
            state_filters=[], producer_id_filters=[]
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.DESCRIBE_ACLS: (
        lambda v, i: describe_acls.DescribeAclsRequest(**ANY_ACL),
        {ErrorCode.SECURITY_DISABLED},
    ),
    ApiKey.CREATE_ACLS: (create_acls_request, {ErrorCode.SECURITY_DISABLED}),
    ApiKey.DELETE_ACLS: (
        lambda v, i: delete_acls.DeleteAclsRequest(
            filters=[delete_acls.DeleteAclsFilter(**ANY_ACL)]
        ),
        {ErrorCode.SECURITY_DISABLED},
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        lambda v, i: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=None
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        alter_user_scram_credentials_request,
        {ErrorCode.NONE},
    ),
    **ADMIN_REQUESTS,
    **TOPIC_REQUESTS,
    **SHARE_REQUESTS,
}


def codes(value: Any) -> Iterator[int]:
    """Yield every error code in a response."""
    if isinstance(value, list):
        for item in value:
            yield from codes(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name in {"error_code", "partition_error_code"}:
                yield getattr(value, field.name)
            else:
                yield from codes(getattr(value, field.name))


async def topic_id(broker: Broker, client: RawClient) -> UUID:
    await broker.create_topic("t")
    for version in range(7):
        await broker.create_topic(f"d-{version}")
    response = await client.call(build_update_metadata_request("t"), 12)
    found: UUID = response.topics[0].topic_id
    return found


def served(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_stable_version + 1)


def test_every_api_has_a_case() -> None:
    assert set(REQUESTS) == set(HANDLERS)


@pytest.mark.parametrize("key", REQUESTS, ids=lambda key: key.name)
async def test_every_version_is_answered(key: ApiKey) -> None:
    make, expected = REQUESTS[key]
    async with Broker() as broker, connected(broker) as client:
        found = await topic_id(broker, client)
        for version in served(key):
            response = await client.call(make(version, found), version)
            assert set(codes(response)) <= expected, version


@pytest.mark.parametrize("key", REQUESTS, ids=lambda key: key.name)
async def test_every_version_can_be_made_to_fail(key: ApiKey) -> None:
    make, _ = REQUESTS[key]
    async with Broker() as broker, connected(broker) as client:
        found = await topic_id(broker, client)
        broker.on(key, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        for version in served(key):
            response = await client.call(make(version, found), version)
            failed = set(codes(response)) - {ErrorCode.NONE}
            assert failed == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, version


async def test_api_versions_lists_the_served_apis() -> None:
    async with Broker(client_telemetry=True) as broker, connected(broker) as client:
        response = await client.call(REQUESTS[ApiKey.API_VERSIONS][0](4, ZERO_UUID), 4)
        assert {k.api_key: (k.min_version, k.max_version) for k in response.api_keys} == {
            key: (served(key)[0], served(key)[-1]) for key in REQUESTS
        }
