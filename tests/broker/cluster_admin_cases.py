"""Requests about a cluster of three nodes whose responses are those of Kafka 4.3.0.

`python -m tests.brokers.record_cluster_admin` records the responses of a real cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.wire import Request, to_json
from aiokafkawire.wire.messages import (
    add_raft_voter,
    alter_client_quotas,
    alter_partition_reassignments,
    api_versions,
    create_delegation_token,
    create_topics,
    describe_client_quotas,
    describe_cluster,
    describe_delegation_token,
    describe_producers,
    describe_quorum,
    elect_leaders,
    expire_delegation_token,
    get_telemetry_subscriptions,
    list_partition_reassignments,
    list_transactions,
    metadata,
    push_telemetry,
    remove_raft_voter,
    renew_delegation_token,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tests.broker.raw_client import RawClient

__all__ = ("RECORDING", "cluster_responses", "embedded_responses", "recorded_responses")

RECORDING = Path(__file__).parents[1] / "vectors" / "cluster-admin-4.3.0.json"

SETTLE_S = 1.5
"""Time in which a cluster carries out a change: replicas catch up, nodes learn of it."""

LEFT_OUT = {
    *("throttleTimeMs", "clusterId", "controllerId", "host", "port", "topicId", "apiKeys"),
    *("leaderId", "leaderEpoch", "highWatermark", "logEndOffset", "lastFetchTimestamp"),
    *("lastCaughtUpTimestamp", "replicaDirectoryId", "lastTimestamp", "finalizedFeaturesEpoch"),
    *("clientInstanceId", "subscriptionId"),
}
"""Fields that differ between clusters."""

VOTER = re.compile(r"ReplicaKey\([^()]*\(random\)\)")
VOTERS = re.compile(rf"\[{VOTER.pattern}(?:, {VOTER.pattern})*\]")
RANDOM = re.compile(r'directoryId=[\w-]+|cluster id "[\w-]+"|Local controller \d')
"""Random parts of messages."""

NO_UUID, SOME_UUID = UUID(int=0), UUID(int=5)
PREFERRED, UNCLEAN = 0, 1
EXACT, DEFAULT, ANY = 0, 1, 2
UPGRADE, SAFE, UNSAFE = 1, 2, 3

Step = tuple[str, Request[Any], int]


def moved(topic: str, index: int, replicas: list[int] | None, *, factor: bool = True) -> Step:
    """Return a step that moves a partition, or cancels that."""
    partition = alter_partition_reassignments.ReassignablePartition(
        partition_index=index, replicas=replicas
    )
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[
            alter_partition_reassignments.ReassignableTopic(name=topic, partitions=[partition])
        ],
        allow_replication_factor_change=factor,
    )
    return f"move {topic}-{index} to {replicas} {factor}", request, 1


def elected(topics: dict[str, list[int]] | None, kind: int = PREFERRED, version: int = 2) -> Step:
    """Return a step that elects leaders."""
    request = elect_leaders.ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if topics is None
        else [
            elect_leaders.ElectLeadersTopicPartitions(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )
    return f"elect {topics} {kind} v{version}", request, version


def quota(
    *entries: tuple[dict[str, str | None], dict[str, float | None]], validate: bool = False
) -> Step:
    """Return a step that changes quotas; None removes one."""
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.AlterClientQuotasEntryData(
                entity=[
                    alter_client_quotas.AlterClientQuotasEntityData(
                        entity_type=kind, entity_name=name
                    )
                    for kind, name in entity.items()
                ],
                ops=[
                    alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values.items()
                ],
            )
            for entity, values in entries
        ],
        validate_only=validate,
    )
    return f"quota {entries} {validate}", request, 1


def quotas_of(*filters: tuple[str, int, str | None], strict: bool = False) -> Step:
    """Return a step that describes quotas."""
    request = describe_client_quotas.DescribeClientQuotasRequest(
        components=[
            describe_client_quotas.ComponentData(entity_type=kind, match_type=how, match=match)
            for kind, how, match in filters
        ],
        strict=strict,
    )
    return f"quotas of {filters} {strict}", request, 1


def updated(*updates: tuple[str, int, int], validate: bool = False, version: int = 1) -> Step:
    """Return a step that updates features."""
    request = update_features.UpdateFeaturesRequest(
        feature_updates=[
            update_features.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=kind
            )
            for name, level, kind in updates
        ],
        validate_only=validate and version > 0,
    )
    return f"features {updates} {validate} v{version}", request, version


def quorum(topic: str, index: int, version: int = 2) -> Step:
    """Return a step that describes the quorum."""
    partition = describe_quorum.DescribeQuorumPartitionData(partition_index=index)
    request = describe_quorum.DescribeQuorumRequest(
        topics=[describe_quorum.DescribeQuorumTopicData(topic_name=topic, partitions=[partition])]
    )
    return f"quorum {topic}-{index} v{version}", request, version


def voter(node: int, directory: UUID, *listeners: str, cluster_id: str | None = None) -> Step:
    """Return a step that adds a voter."""
    request = add_raft_voter.AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=1_000,
        voter_id=node,
        voter_directory_id=directory,
        listeners=[
            add_raft_voter.AddRaftVoterListener(name=name, host="127.0.0.1", port=1)
            for name in listeners
        ],
    )
    return f"add voter {node} {directory.int} {listeners} {cluster_id}", request, 1


def no_voter(node: int, directory: UUID, cluster_id: str | None = None) -> Step:
    """Return a step that removes a voter."""
    request = remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=node, voter_directory_id=directory
    )
    return f"remove voter {node} {directory.int} {cluster_id}", request, 0


def marker(topic: str, index: int, producer: int, epoch: int, coordinator: int) -> Step:
    """Return a step that aborts a transaction."""
    written = write_txn_markers.WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator,
    )
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[written])
    return f"abort {producer}/{epoch} in {topic}-{index} by {coordinator}", request, 2


def endpoints(kind: int) -> Step:
    """Return a step that describes brokers or controllers."""
    request = describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=kind
    )
    return f"cluster {kind}", request, 2


LISTING: Step = (
    "reassignments",
    list_partition_reassignments.ListPartitionReassignmentsRequest(),
    0,
)
REPLICAS: Step = (
    "replicas",
    metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]),
    9,
)
FEATURES: Step = (
    "features",
    api_versions.ApiVersionsRequest(client_software_name="raw", client_software_version="1"),
    4,
)
PRODUCERS: Step = (
    "producers",
    describe_producers.DescribeProducersRequest(
        topics=[describe_producers.DescribeProducersTopicRequest(name="t", partition_indexes=[0])]
    ),
    0,
)

PARTITION_STEPS: list[Step] = [
    (
        "reassign nothing",
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[]),
        1,
    ),
    moved("nope", 0, [1]),
    moved("t", 9, [1]),
    moved("t", 0, None),
    moved("t", 0, []),
    moved("t", 0, [1, 1]),
    moved("t", 0, [-1]),
    moved("t", 0, [1, 9]),
    moved("t", 0, [1, 2, 3], factor=False),
    moved("t", 0, [1, 2]),
    LISTING,
    elected({"t": [0, 1, 9], "nope": [0]}),
    elected({"t": [0]}, version=1),
    elected({"t": [0]}, version=0),
    elected({"t": [0]}, UNCLEAN),
    elected({"t": [0]}, 7),
    elected({}),
    elected(None),
    elected(None, UNCLEAN),
    marker("t", 0, 999, 3, 5),
    PRODUCERS,
    marker("t", 0, 999, 2, 5),
    marker("t", 0, 999, 3, 4),
    marker("t", 0, 999, 3, -1),
    marker("t", 0, 999, 4, 5),
    marker("t", 77, 999, 4, 5),
    marker("nope", 0, 999, 4, 5),
    marker("t", 1, 999, 4, 5),
    marker("t", 0, -1, 4, 5),
    PRODUCERS,
    moved("t", 0, [3, 1]),
    LISTING,
    REPLICAS,
    elected({"t": [0]}),
    REPLICAS,
]

ALICE: dict[str, str | None] = {"user": "alice"}
RATE: dict[str, float | None] = {"producer_byte_rate": 1_000_000.0}

QUOTA_STEPS: list[Step] = [
    quota((ALICE, RATE | {"consumer_byte_rate": 2e6})),
    quota(({"user": None}, {"request_percentage": 50.5})),
    quota(({"user": "alice", "client-id": "c"}, {"producer_byte_rate": 7.0})),
    quota(({"client-id": None}, {"consumer_byte_rate": 77.0})),
    quota(({"ip": "10.0.0.1"}, {"connection_creation_rate": 9.0})),
    quota((ALICE, {"nope": 1.0})),
    quota((ALICE, {"connection_creation_rate": 1.0})),
    quota((ALICE, {"producer_byte_rate": 1.5})),
    quota(({"user": "n"}, {"producer_byte_rate": -1.0})),
    quota(({"user": "x"}, RATE), ({"user": "x"}, RATE)),
    quota(({}, RATE)),
    quota(({"nope": "x"}, RATE)),
    quota(({"user": ""}, RATE)),
    quota(({"user": "u", "ip": "1.1.1.1"}, RATE)),
    quota(({"ip": "no such host !"}, {"connection_creation_rate": 1.0})),
    quota(({"user": "u"}, {})),
    quota(({"user": "u"}, {"producer_byte_rate": None})),
    quota(({"user": "v"}, RATE), validate=True),
    quotas_of(),
    quotas_of(("user", ANY, None)),
    quotas_of(("user", ANY, None), strict=True),
    quotas_of(("user", DEFAULT, None)),
    quotas_of(("user", EXACT, "alice")),
    quotas_of(("client-id", ANY, None)),
    quotas_of(("user", EXACT, "alice"), ("client-id", ANY, None)),
    quotas_of(("nope", EXACT, "alice")),
    quotas_of(("", EXACT, "alice")),
    quotas_of(("user", EXACT, "alice"), ("user", DEFAULT, None)),
    quotas_of(("user", EXACT, "alice"), ("ip", DEFAULT, None)),
    quotas_of(("user", 5, "alice")),
    quotas_of(("user", EXACT, None)),
    quotas_of(("user", DEFAULT, "x")),
    quotas_of(("user", ANY, "x")),
]

CLUSTER_STEPS: list[Step] = [
    updated(("nope", 1, UPGRADE), version=0),
    updated(("nope", 1, UPGRADE)),
    updated(("nope", 1, UPGRADE), version=2),
    updated(("nope", 0, UPGRADE)),
    updated(("", 1, UPGRADE)),
    updated(("share.version", 9, UPGRADE)),
    updated(("share.version", -1, UPGRADE)),
    updated(("share.version", 0, 7)),
    updated(("share.version", 0, 0)),
    updated(("share.version", 1, SAFE)),
    updated(("transaction.version", 1, UPGRADE)),
    updated(("metadata.version", 29, UPGRADE)),
    updated(("metadata.version", 29, SAFE), validate=True),
    updated(("metadata.version", 7, UNSAFE), validate=True),
    updated(("metadata.version", 1, SAFE)),
    updated(("metadata.version", 99, UPGRADE)),
    updated(("share.version", 0, SAFE), ("nope", 1, UPGRADE), validate=True),
    updated(("share.version", 0, SAFE), validate=True),
    updated(),
    updated(("kraft.version", 1, UPGRADE)),
    updated(("kraft.version", 0, UPGRADE)),
    updated(("share.version", 0, SAFE)),
    FEATURES,
    quorum("__cluster_metadata", 0, 0),
    quorum("__cluster_metadata", 0, 1),
    quorum("__cluster_metadata", 0, 2),
    quorum("x", 0),
    quorum("__cluster_metadata", 3),
    voter(1, SOME_UUID, "CONTROLLER"),
    voter(-1, SOME_UUID, "CONTROLLER"),
    voter(9, NO_UUID, "CONTROLLER"),
    voter(9, SOME_UUID),
    voter(9, SOME_UUID, "CONTROLLER", cluster_id="wrong"),
    no_voter(9, SOME_UUID),
    no_voter(9, NO_UUID),
    no_voter(1, SOME_UUID, "wrong"),
    ("unregister 9", unregister_broker.UnregisterBrokerRequest(broker_id=9), 0),
    endpoints(1),
    endpoints(2),
    endpoints(3),
    (
        "transactions (",
        list_transactions.ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], transactional_id_pattern="("
        ),
        2,
    ),
    (
        "create token",
        create_delegation_token.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
        3,
    ),
    (
        "renew token",
        renew_delegation_token.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
        2,
    ),
    (
        "expire token",
        expire_delegation_token.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
        2,
    ),
    (
        "describe tokens",
        describe_delegation_token.DescribeDelegationTokenRequest(owners=None),
        3,
    ),
    (
        "subscriptions",
        get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest(client_instance_id=NO_UUID),
        0,
    ),
    *(
        (
            f"push {instance.int}",
            push_telemetry.PushTelemetryRequest(
                client_instance_id=instance,
                subscription_id=1,
                terminating=False,
                compression_type=0,
                metrics=b"",
            ),
            0,
        )
        for instance in (NO_UUID, SOME_UUID)
    ),
]

SETTLING = (
    alter_partition_reassignments.AlterPartitionReassignmentsRequest,
    elect_leaders.ElectLeadersRequest,
    alter_client_quotas.AlterClientQuotasRequest,
    update_features.UpdateFeaturesRequest,
)
"""Changes that a real cluster carries out after its response."""


async def cluster_responses(address: Address, settle_s: float) -> dict[str, Any]:
    """Return the responses of the first node of a cluster with three nodes."""
    found: dict[str, Any] = {}
    transport = await RealRuntime().connect(address)
    client = RawClient(transport)
    try:
        topic = create_topics.CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
                for index, nodes in enumerate(([1, 2], [2, 3]))
            ],
            configs=[],
        )
        await client.call(create_topics.CreateTopicsRequest(topics=[topic]), 7)
        await anyio.sleep(SETTLE_S)
        for steps in (PARTITION_STEPS, QUOTA_STEPS, CLUSTER_STEPS):
            for position, (text, request, version) in enumerate(steps):
                response = await client.call(request, version)
                found[f"{len(found)}: {text}"] = comparable(to_json(response, version))
                follower = steps[position + 1][1] if position + 1 < len(steps) else None
                if isinstance(request, SETTLING) and not isinstance(follower, SETTLING):
                    await anyio.sleep(max(settle_s, SETTLE_S if steps is PARTITION_STEPS else 0))
    finally:
        await transport.aclose()
    return found


def comparable(value: Any) -> Any:
    """Return a response without what differs between clusters, its lists of objects sorted."""
    if isinstance(value, dict):
        shown = {name: comparable(each) for name, each in value.items() if name not in LEFT_OUT}
        if "isrNodes" in shown:
            shown["isrNodes"] = sorted(shown["isrNodes"])
        return shown
    if isinstance(value, list):
        each_shown = [comparable(each) for each in value]
        has_objects = bool(value) and isinstance(value[0], dict)
        return sorted(each_shown, key=json.dumps) if has_objects else each_shown
    return _without_chance(value) if isinstance(value, str) else value


def _without_chance(text: str) -> str:
    """Leave out random ids, and list voters by id: Kafka lists them in the order of a hash map."""
    return VOTERS.sub(
        lambda found: f"[{', '.join(sorted(VOTER.findall(found[0])))}]",
        RANDOM.sub("(random)", text),
    )


async def embedded_responses() -> dict[str, Any]:
    """Return the responses of the embedded broker."""
    async with Broker(
        nodes=3, replicate=True, as_of="4.3", min_insync_replicas=2, replica_fetch_wait_max_ms=50
    ) as broker:
        return await cluster_responses(broker.nodes[1], 0.0)


def recorded_responses() -> Mapping[str, Any]:
    """Return the recorded responses of Kafka 4.3.0."""
    found: Mapping[str, Any] = json.loads(RECORDING.read_text("utf-8"))
    return found
