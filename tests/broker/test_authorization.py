"""Each API of a broker with `acls`: error codes without permission, and the least that it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.broker.client_log import error_codes
from aiokafkawire.broker.server import ServerConnection
from aiokafkawire.errors import InvalidOption, KafkaError
from aiokafkawire.wire import ZERO_UUID, ErrorCode, Request
from aiokafkawire.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokafkawire.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aiokafkawire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aiokafkawire.wire.messages.delete_groups import DeleteGroupsRequest
from aiokafkawire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aiokafkawire.wire.messages.describe_cluster import DescribeClusterRequest
from aiokafkawire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aiokafkawire.wire.messages.describe_groups import DescribeGroupsRequest
from aiokafkawire.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from aiokafkawire.wire.messages.describe_transactions import DescribeTransactionsRequest
from aiokafkawire.wire.messages.end_txn import EndTxnRequest
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdRequest
from aiokafkawire.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafkawire.wire.messages.list_transactions import ListTransactionsRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitRequest,
)
from aiokafkawire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from aiokafkawire.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiokafkawire.wire.messages.produce import ProduceRequest
from aiokafkawire.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .group_requests import commit, heartbeat, join, offset_fetch_request, sync
from .raw_client import RawClient, batch, connected, produce_request

E = ErrorCode
ALICE, ROOT = "User:alice", "User:root"
FORBIDDEN = {
    E.TOPIC_AUTHORIZATION_FAILED,
    E.GROUP_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
TOPICS = ("t", "other")
MISSING = UUID(int=7)


@asynccontextmanager
async def connected_as(broker: Broker, principal: str) -> AsyncIterator[RawClient]:
    """Connect, and give the connection a principal as authentication would."""
    async with connected(broker) as client:
        connections = broker._nodes[1].connections
        known = set(connections)
        await client.call(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
        )
        (new,) = [each for each in connections if each not in known] or [list(connections)[-1]]
        assert isinstance(new, ServerConnection)
        new._client_connection.principal = principal
        yield client


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(acls=[], super_users=[ROOT]) as broker:
        for topic in TOPICS:
            await broker.create_topic(topic)
        yield broker


@pytest.fixture
async def alice(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected_as(broker, ALICE) as client:
        yield client


@pytest.fixture
async def root(broker: Broker) -> AsyncIterator[RawClient]:
    async with connected_as(broker, ROOT) as client:
        yield client


def topic_id(broker: Broker, name: str = "t") -> UUID:
    return broker._running.cluster.topics[name].topic_id


def fetch(*names: str, replica_id: int = -1) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=name,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)],
        )
        for name in names
    ]
    return FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=1, topics=topics)


def fetch_by_id(topic: UUID) -> FetchRequest:
    request = fetch("")
    request.topics[0].topic_id = topic
    return request


def list_offsets(name: str) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])]
    )


def metadata(name: str | None, topic: UUID = ZERO_UUID, *, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name, topic_id=topic)], allow_auto_topic_creation=create
    )


def epoch(name: str) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=[partition])]
    )


def create_topics(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=True)


def create_partitions(name: str) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=name, count=2, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=1_000, validate_only=True)


def delete_topics(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1_000
    )


def configs(resource_type: int, name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def describe_producers() -> DescribeProducersRequest:
    topic = DescribeProducersTopicRequest(name="t", partition_indexes=[0])
    return DescribeProducersRequest(topics=[topic])


def commit_by_id(topic: UUID) -> OffsetCommitRequest:
    request = commit("")
    request.topics[0].topic_id = topic
    return request


def offset_fetch_8(topics: list[OffsetFetchRequestTopics] | None) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])


def offset_delete(name: str) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    return OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name=name, partitions=partitions)]
    )


def init_producer_id(transactional_id: str | None) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)


def add_partitions(*names: str) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names]
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )


def add_partitions_4() -> AddPartitionsToTxnRequest:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=1,
        producer_epoch=0,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def txn_commit(*names: str) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    topics = [TxnOffsetCommitRequestTopic(name=name, partitions=[partition]) for name in names]
    return TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, topics=topics
    )


def produce(transactional_id: str | None = None, *, transactional: bool = False) -> ProduceRequest:
    fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    request = produce_request("t", 0, batch(b"v", transactional=transactional, **fields))
    request.transactional_id = transactional_id
    return request


T, G, C, X = (
    E.TOPIC_AUTHORIZATION_FAILED,
    E.GROUP_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""Codes 29, 30, 31 and 53."""


def topic(operation: str, name: str = "t") -> Acl:
    return Acl(ALICE, operation, topic=name)


def group(operation: str) -> Acl:
    return Acl(ALICE, operation, group="g")


def cluster(operation: str) -> Acl:
    return Acl(ALICE, operation, cluster=True)


def transactional(operation: str) -> Acl:
    return Acl(ALICE, operation, transactional_id="x")


MEMBER = MemberIdentity(member_id="m")


class Row(NamedTuple):
    """A request, its error code without any ACL, and the ACLs that it needs, all of them."""

    name: str
    request: Request[Any]
    version: int
    code: ErrorCode
    needed: list[Acl]


ROWS = [
    Row("produce", produce(), 9, T, [topic("Write")]),
    Row("produce old", produce(), 3, T, [topic("Write")]),
    Row(
        "produce transactional",
        produce("x", transactional=True),
        9,
        X,
        [transactional("Write"), topic("Write")],
    ),
    Row("produce with an unused id", produce("x"), 9, T, [topic("Write")]),
    Row("fetch", fetch("t"), 12, T, [topic("Read")]),
    Row("fetch old", fetch("t"), 4, T, [topic("Read")]),
    Row("fetch as a follower", fetch("t", replica_id=1), 12, T, [cluster("ClusterAction")]),
    Row("list offsets", list_offsets("t"), 7, T, [topic("Describe")]),
    Row("list offsets 0", list_offsets("t"), 0, T, [topic("Describe")]),
    Row("metadata", metadata("t"), 12, T, [topic("Describe")]),
    Row("metadata 0", metadata("t", create=True), 0, T, [topic("Describe")]),
    Row("leader epoch", epoch("t"), 4, T, [topic("Describe")]),
    Row("create topics", create_topics("new"), 4, T, [cluster("Create")]),
    Row("create a topic", create_topics("new"), 4, T, [topic("Create", "new")]),
    Row("create partitions", create_partitions("t"), 3, T, [topic("Alter")]),
    Row("topic configs", configs(2, "t"), 4, T, [topic("DescribeConfigs")]),
    Row("broker configs", configs(4, "1"), 4, C, [cluster("DescribeConfigs")]),
    Row("group configs", configs(32, "g"), 4, G, [group("DescribeConfigs")]),
    Row(
        "describe producers",
        DescribeProducersRequest(
            topics=[DescribeProducersTopicRequest(name="t", partition_indexes=[0])]
        ),
        0,
        T,
        [topic("Read")],
    ),
    Row("find group", FindCoordinatorRequest(key="g"), 3, G, [group("Describe")]),
    Row(
        "find groups",
        FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]),
        4,
        G,
        [group("Describe")],
    ),
    Row(
        "find transactional id",
        FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        4,
        X,
        [transactional("Describe")],
    ),
    Row("join", join(), 7, G, [group("Read")]),
    Row("sync", sync(), 3, G, [group("Read")]),
    Row(
        "heartbeat",
        heartbeat(),
        4,
        G,
        [group("Read")],
    ),
    Row("leave", LeaveGroupRequest(group_id="g", members=[MEMBER]), 4, G, [group("Read")]),
    Row("leave 0", LeaveGroupRequest(group_id="g", member_id="m"), 0, G, [group("Read")]),
    Row("offset commit", commit("t"), 8, G, [group("Read"), topic("Read")]),
    Row("offset commit 0", commit("t"), 0, G, [group("Read"), topic("Read")]),
    Row("offset fetch", offset_fetch_request("t"), 7, G, [group("Describe"), topic("Describe")]),
    Row("offset fetch 0", offset_fetch_request("t"), 0, G, [group("Describe"), topic("Describe")]),
    Row(
        "offset fetch 8",
        offset_fetch_8([OffsetFetchRequestTopics(name="t", partition_indexes=[0])]),
        8,
        G,
        [group("Describe"), topic("Describe")],
    ),
    Row("describe groups", DescribeGroupsRequest(groups=["g"]), 5, G, [group("Describe")]),
    Row("delete groups", DeleteGroupsRequest(groups_names=["g"]), 2, G, [group("Delete")]),
    Row("offset delete", offset_delete("t"), 0, G, [group("Delete"), topic("Read")]),
    Row("init idempotent", init_producer_id(None), 4, C, [cluster("IdempotentWrite")]),
    Row("init idempotent by a topic", init_producer_id(None), 4, C, [topic("Write", "any")]),
    Row("init transactional", init_producer_id("x"), 4, X, [transactional("Write")]),
    Row("add partitions", add_partitions("t"), 3, X, [transactional("Write"), topic("Write")]),
    Row("add partitions 4", add_partitions_4(), 4, C, [cluster("ClusterAction")]),
    Row(
        "add offsets",
        AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"),
        3,
        X,
        [transactional("Write"), group("Read")],
    ),
    Row(
        "end transaction",
        EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True),
        3,
        X,
        [transactional("Write")],
    ),
    Row(
        "offset commit of a transaction",
        txn_commit("t"),
        3,
        X,
        [transactional("Write"), group("Read"), topic("Read")],
    ),
    Row(
        "describe transactions",
        DescribeTransactionsRequest(transactional_ids=["x"]),
        0,
        X,
        [transactional("Describe")],
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_each_api_needs_its_permission(
    broker: Broker,
    alice: RawClient,
    root: RawClient,
    row: Row,
) -> None:
    _, request, version, code, needed = row
    assert not set(error_codes(await root.call(commit("t"), 8)))  # makes the group exist
    assert set(error_codes(await alice.call(request, version))) == {code}
    for index in range(len(needed)):
        broker.add_acls(*needed[:index], *needed[index + 1 :])
        assert set(error_codes(await alice.call(request, version))) & FORBIDDEN
        broker.remove_acls(*broker.acls)
    broker.add_acls(*needed)
    assert not set(error_codes(await alice.call(request, version))) & FORBIDDEN
    broker.remove_acls(*needed)
    assert set(error_codes(await alice.call(request, version))) == {code}
    assert not set(error_codes(await root.call(request, version))) & FORBIDDEN


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (produce_request("missing", 0, batch(b"v")), 9),
        (fetch("missing"), 12),
        (list_offsets("missing"), 7),
        (metadata("missing"), 12),
        (metadata("missing", create=True), 12),
        (epoch("missing"), 4),
        (create_partitions("missing"), 3),
        (delete_topics("missing"), 6),
        (configs(2, "missing"), 4),
    ],
)
async def test_unknown_topics_look_like_forbidden_ones(
    broker: Broker, alice: RawClient, request_: Request[Any], version: int
) -> None:
    assert list(error_codes(await alice.call(request_, version))) == [T]
    assert set(broker.topics) == set(TOPICS)


async def test_topics_by_id(broker: Broker, alice: RawClient) -> None:
    known = topic_id(broker)
    write = produce_request("", 0, batch(b"v"), topic_id=known)
    (described,) = (await alice.call(metadata(None, known), 12)).topics
    assert (described.error_code, described.name, described.topic_id) == (T, None, known)
    for request, version in ((fetch_by_id(known), 16), (write, 13)):
        assert list(error_codes(await alice.call(request, version))) == [T]
    broker.add_acls(topic("All"))
    (described,) = (await alice.call(metadata(None, known), 12)).topics
    assert (described.error_code, described.name) == (E.NONE, "t")
    for request, version in ((fetch_by_id(known), 16), (write, 13)):
        assert not list(error_codes(await alice.call(request, version)))
    assert list(error_codes(await alice.call(fetch_by_id(MISSING), 16))) == [E.UNKNOWN_TOPIC_ID]


async def test_committed_offsets_by_id(broker: Broker, alice: RawClient) -> None:
    known = topic_id(broker)
    requested = OffsetFetchRequestTopics(topic_id=known, partition_indexes=[0])
    broker.add_acls(group("Read"))
    assert list(error_codes(await alice.call(commit_by_id(known), 10))) == [T]
    answer = await alice.call(offset_fetch_8([requested]), 10)
    assert [(each.topic_id, each.partitions[0].error_code) for each in answer.groups[0].topics] == [
        (known, T)
    ]
    broker.add_acls(topic("Read"))
    assert not list(error_codes(await alice.call(commit_by_id(known), 10)))
    answer = await alice.call(offset_fetch_8([requested]), 10)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5


async def test_metadata_of_all_topics_leaves_out_the_forbidden_ones(
    broker: Broker, alice: RawClient
) -> None:
    everything = MetadataRequest(topics=None)
    answer = await alice.call(everything, 12)
    assert (answer.topics, list(error_codes(answer))) == ([], [])
    assert [node.node_id for node in answer.brokers] == [1]
    broker.add_acls(topic("Read"))
    assert [each.name for each in (await alice.call(everything, 12)).topics] == ["t"]


async def test_topics_are_created_on_demand_with_create_only(
    broker: Broker, alice: RawClient
) -> None:
    broker.add_acls(topic("Write", "new"))
    assert list(error_codes(await alice.call(metadata("new", create=True), 12))) == [T]
    assert "new" not in broker.topics
    broker.add_acls(topic("Create", "new"))
    assert not list(error_codes(await alice.call(metadata("new", create=True), 12)))
    assert "new" in broker.topics


async def test_one_forbidden_topic_does_not_affect_the_others(
    broker: Broker, alice: RawClient
) -> None:
    broker.add_acls(group("Read"), topic("Read"))
    answer = await alice.call(commit("t", "other"), 8)
    assert [each.partitions[0].error_code for each in answer.topics] == [E.NONE, T]
    answer = await alice.call(offset_fetch_request("t", "other"), 7)
    assert [
        (each.partitions[0].committed_offset, each.partitions[0].error_code)
        for each in answer.topics
    ] == [(5, E.NONE), (-1, T)]
    answer = await alice.call(fetch("t", "other"), 12)
    assert [each.partitions[0].error_code for each in answer.responses] == [E.NONE, T]


async def test_forbidden_topics_say_so_though_the_group_refuses_the_commit(
    broker: Broker, alice: RawClient
) -> None:
    broker.add_acls(group("Read"), topic("Read"), transactional("Write"))
    request = commit("t", "other")
    request.member_id, request.generation_id_or_member_epoch = "nobody", 7
    answer = await alice.call(request, 8)
    assert [each.partitions[0].error_code for each in answer.topics] == [E.ILLEGAL_GENERATION, T]
    answer = await alice.call(txn_commit("t", "other"), 3)
    assert [each.partitions[0].error_code for each in answer.topics] == [
        E.INVALID_PRODUCER_ID_MAPPING,
        T,
    ]


async def test_offsets_of_all_topics_leave_out_the_forbidden_ones(
    broker: Broker, alice: RawClient, root: RawClient
) -> None:
    assert not list(error_codes(await root.call(commit(*TOPICS), 8)))
    broker.add_acls(group("Describe"), topic("Describe"))
    for version in (7, 8):
        request = (
            offset_fetch_8(None) if version == 8 else OffsetFetchRequest(group_id="g", topics=None)
        )
        answer = await alice.call(request, version)
        topics = answer.groups[0].topics if version == 8 else answer.topics
        assert [each.name for each in topics] == ["t"]


async def test_one_forbidden_topic_adds_nothing_to_the_transaction(
    broker: Broker, alice: RawClient
) -> None:
    broker.add_acls(transactional("Write"), topic("Write"))
    answer = await alice.call(add_partitions("t", "other"), 3)
    assert [
        each.results_by_partition[0].partition_error_code
        for each in answer.results_by_topic_v3_and_below
    ] == [E.OPERATION_NOT_ATTEMPTED, T]


async def test_lists_leave_out_what_is_forbidden(
    broker: Broker, alice: RawClient, root: RawClient
) -> None:
    groups = ListGroupsRequest()
    transactions = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    assert not list(error_codes(await root.call(commit("t"), 8)))
    assert not list(error_codes(await root.call(init_producer_id("x"), 4)))
    answer = await alice.call(groups, 4)
    assert (answer.error_code, answer.groups) == (E.NONE, [])
    answer = await alice.call(transactions, 0)
    assert (answer.error_code, answer.transaction_states) == (E.NONE, [])
    broker.add_acls(group("Read"), transactional("Write"))
    assert [each.group_id for each in (await alice.call(groups, 4)).groups] == ["g"]
    answer = await alice.call(transactions, 0)
    assert [each.transactional_id for each in answer.transaction_states] == ["x"]
    broker.remove_acls(*broker.acls)
    broker.add_acls(cluster("Describe"))
    assert [each.group_id for each in (await alice.call(groups, 4)).groups] == ["g"]


async def test_topics_are_deleted_with_delete_only(broker: Broker, alice: RawClient) -> None:
    by_id = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=topic_id(broker))], timeout_ms=1_000
    )
    broker.add_acls(topic("Describe"))
    for request in (delete_topics("t"), by_id):
        assert list(error_codes(await alice.call(request, 6))) == [T]
    assert set(broker.topics) == set(TOPICS)
    broker.add_acls(topic("Delete"))
    assert not list(error_codes(await alice.call(by_id, 6)))
    assert set(broker.topics) == {"other"}


async def test_a_deleted_topic_by_id_keeps_its_name_secret(
    broker: Broker, alice: RawClient
) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=topic_id(broker))], timeout_ms=1_000
    )
    (answer,) = (await alice.call(request, 6)).responses
    assert (answer.name, answer.error_code) == (None, T)


async def test_configs_of_a_new_topic_need_describe_configs(
    broker: Broker, alice: RawClient
) -> None:
    broker.add_acls(topic("Create", "new"))
    (answer,) = (await alice.call(create_topics("new"), 7)).topics
    assert (answer.error_code, answer.topic_config_error_code) == (E.NONE, T)
    assert (answer.configs, answer.num_partitions, answer.replication_factor) == ([], -1, -1)
    broker.add_acls(topic("DescribeConfigs", "new"))
    (answer,) = (await alice.call(create_topics("new"), 7)).topics
    assert (answer.topic_config_error_code, answer.num_partitions) == (E.NONE, 1)
    (refused,) = (await alice.call(create_topics("newer"), 7)).topics
    assert (refused.error_code, refused.error_message) == (T, "Authorization failed.")


async def test_authorized_operations(broker: Broker, alice: RawClient, root: RawClient) -> None:
    ask = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    about_group = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    about_cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await root.call(ask, 8)
    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000
    broker.add_acls(topic("Read"), group("Delete"), cluster("Create"))
    answer = await alice.call(ask, 8)
    assert answer.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
    assert answer.cluster_authorized_operations == 0
    (described,) = (await alice.call(about_group, 5)).groups
    assert described.authorized_operations == 1 << 6 | 1 << 8
    broker.add_acls(cluster("Describe"))
    for request, version in ((ask, 8), (about_cluster, 0)):
        answer = await alice.call(request, version)
        assert answer.cluster_authorized_operations == 1 << 5 | 1 << 8


async def test_acks_0_without_permission_closes_the_connection(
    broker: Broker, alice: RawClient
) -> None:
    for request in (produce("x", transactional=True), produce()):
        async with connected_as(broker, ALICE) as client:
            request.acks = 0
            await client.send(request, 9)
            assert await client.closed()
    assert broker.end_offset("t", 0) == 0


async def test_acls_of_another_host_do_not_apply(broker: Broker, alice: RawClient) -> None:
    broker.add_acls(Acl(ALICE, "Describe", topic="t", host="10.0.0.7"))
    assert list(error_codes(await alice.call(metadata("t"), 12))) == [T]
    broker.add_acls(Acl(ALICE, "Describe", topic="t", host="127.0.0.1"))
    assert not list(error_codes(await alice.call(metadata("t"), 12)))


async def test_idempotent_producers_need_idempotent_write_before_2_8() -> None:
    acls = [topic("Write")]
    for as_of, code in (("2.7", [C]), ("2.8", [])):
        async with (
            Broker(as_of=as_of, acls=acls) as broker,
            connected_as(broker, ALICE) as client,
        ):
            assert list(error_codes(await client.call(init_producer_id(None), 1))) == code


async def test_without_acls_everyone_may_do_everything() -> None:
    async with Broker() as broker, connected_as(broker, ALICE) as client:
        await broker.create_topic("t")
        for _, request, version, _, _ in ROWS:
            assert not set(error_codes(await client.call(request, version))) & FORBIDDEN
        for call in (lambda: broker.acls, lambda: broker.add_acls(topic("Read"))):
            with pytest.raises(KafkaError, match=r"create it with acls=\[\]"):
                call()


async def test_nodes_replicate_in_spite_of_acls() -> None:
    acls = [Acl("User:ANONYMOUS", "All", topic="t")]
    async with Broker(nodes=3, replicate=True, acls=acls) as broker:
        await broker.create_topic("t", partitions=1, replication_factor=3)
        async with connected(broker, broker.leader("t", 0)) as client:
            answer = await client.call(produce_request("t", 0, batch(b"v")), 9)
            assert not list(error_codes(answer))
        assert set(broker.isr("t", 0)) == {1, 2, 3}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"acls": "all"}, "acls must be a list, not 'all'"),
        ({"acls": 1}, "acls must be a list, not 1"),
        ({"acls": ["x"]}, "each of acls must be an Acl, not 'x'"),
        ({"acls": [], "super_users": "User:a"}, "super_users must be a list, not 'User:a'"),
        ({"acls": [], "super_users": ["a"]}, "each of super_users needs a type, such as 'User:a'"),
        ({"super_users": ["User:a"]}, "super_users needs acls"),
        ({"allow_everyone_if_no_acl_found": 1}, "must be True or False, not 1"),
    ],
)
def test_wrong_options(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        Broker(**arguments)


async def test_resources_without_acls_can_be_open() -> None:
    async with (
        Broker(
            acls=[Acl("User:bob", "Read", topic="t")], allow_everyone_if_no_acl_found=True
        ) as broker,
        connected_as(broker, ALICE) as client,
    ):
        await broker.create_topic("t")
        await broker.create_topic("other")
        assert list(error_codes(await client.call(metadata("t"), 12))) == [T]
        assert not list(error_codes(await client.call(metadata("other"), 12)))
