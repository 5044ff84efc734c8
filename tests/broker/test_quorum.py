"""DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UnregisterBroker and DescribeCluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.wire import ZERO_UUID, ErrorCode, Request
from aiokafkawire.wire.messages.add_raft_voter import AddRaftVoterListener, AddRaftVoterRequest
from aiokafkawire.wire.messages.describe_cluster import DescribeClusterRequest
from aiokafkawire.wire.messages.describe_quorum import (
    DescribeQuorumPartitionData,
    DescribeQuorumRequest,
    DescribeQuorumTopicData,
)
from aiokafkawire.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from aiokafkawire.wire.messages.unregister_broker import UnregisterBrokerRequest
from aiokafkawire.wire.messages.unregister_controller import UnregisterControllerRequest
from aiokafkawire.wire.primitives import uuid_to_text

from .raw_client import connected

E = ErrorCode
OTHER = UUID(int=5)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=3) as broker:
        yield broker


async def call(broker: Broker, request: Request[Any], version: int) -> Any:
    async with connected(broker) as client:
        return await client.call(request, version)


async def describe(
    broker: Broker, version: int = 2, topic: str = "__cluster_metadata", index: int = 0
) -> tuple[Any, Any]:
    """Return the response and its only partition."""
    partition = DescribeQuorumPartitionData(partition_index=index)
    request = DescribeQuorumRequest(
        topics=[DescribeQuorumTopicData(topic_name=topic, partitions=[partition])]
    )
    response = await call(broker, request, version)
    return response, response.topics[0].partitions[0]


async def voters(broker: Broker) -> dict[int, UUID]:
    _, partition = await describe(broker)
    return {each.replica_id: each.replica_directory_id for each in partition.current_voters}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_node_is_a_voter(broker: Broker, version: int) -> None:
    await broker.kill(3)
    response, partition = await describe(broker, version)
    assert (response.error_code, partition.error_code) == (E.NONE, E.NONE)
    assert partition.leader_id == broker.controller_id
    assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
    assert partition.observers == []
    ends = [each.log_end_offset for each in partition.current_voters]
    assert ends == [partition.high_watermark, partition.high_watermark, -1]
    if version:
        assert partition.current_voters[0].last_fetch_timestamp > 0
    if version == 2:
        assert [each.node_id for each in response.nodes] == [1, 2, 3]
        assert response.nodes[0].listeners[0].port == broker.nodes[1].port


async def test_the_high_watermark_rises_with_each_change(broker: Broker) -> None:
    _, before = await describe(broker)
    await broker.create_topic("t")
    _, after = await describe(broker)
    assert after.high_watermark > before.high_watermark


@pytest.mark.parametrize(("topic", "index"), [("x", 0), ("__cluster_metadata", 3)])
async def test_other_partitions_are_unknown(broker: Broker, topic: str, index: int) -> None:
    response, partition = await describe(broker, topic=topic, index=index)
    assert (partition.error_code, partition.error_message) == (
        E.UNKNOWN_TOPIC_OR_PARTITION,
        "This server does not host this topic-partition.",
    )
    assert (response.error_code, response.nodes) == (E.NONE, [])


def addition(voter: int, directory: UUID, cluster_id: str | None = None) -> AddRaftVoterRequest:
    listener = AddRaftVoterListener(name="CONTROLLER", host="127.0.0.1", port=1)
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=1_000,
        voter_id=voter,
        voter_directory_id=directory,
        listeners=[listener],
    )


def removal(voter: int, directory: UUID, cluster_id: str | None = None) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=voter, voter_directory_id=directory
    )


async def test_a_voter_is_removed_and_added(tmp_path: Path) -> None:
    async with Broker(nodes=3, data_dir=tmp_path) as broker:
        before = await voters(broker)
        removed = await call(broker, removal(1, before[1]), 0)
        assert (removed.error_code, removed.error_message) == (E.NONE, None)
        response, partition = await describe(broker)
        assert (partition.leader_id, [each.replica_id for each in partition.observers]) == (2, [1])
        assert [each.node_id for each in response.nodes] == [2, 3]
    async with Broker(nodes=3, data_dir=tmp_path) as broker:
        assert list(await voters(broker)) == [2, 3]
        added = await call(broker, addition(1, before[1], broker.cluster_id), 1)
        assert (added.error_code, added.error_message) == (E.NONE, None)
        assert await voters(broker) == before


async def test_errors_and_texts_of_kafka_4_3(broker: Broker) -> None:
    known = await voters(broker)
    keys = [
        f"ReplicaKey(id={node}, directoryId={uuid_to_text(each)})" for node, each in known.items()
    ]
    everyone = f"[{', '.join(keys)}]"
    other = uuid_to_text(OTHER)
    without_listener = addition(9, OTHER)
    without_listener.listeners = []
    wrong_id = f'The given id "x" doesn\'t match the cluster id "{broker.cluster_id}"'
    cases: list[tuple[Request[Any], ErrorCode, str]] = [
        (
            addition(1, OTHER),
            E.DUPLICATE_VOTER,
            f"The voter id for ReplicaKey(id=1, directoryId={other}) is already part of the set of"
            f" voters {everyone}.",
        ),
        (addition(-1, OTHER), E.INVALID_REQUEST, "Add voter request didn't include a valid voter"),
        (
            addition(9, ZERO_UUID),
            E.INVALID_REQUEST,
            "Add voter request didn't include a valid voter",
        ),
        (
            without_listener,
            E.INVALID_REQUEST,
            "Add voter request didn't include the endpoint (Endpoints(endpoints={})) for the"
            " default listener ListenerName(CONTROLLER)",
        ),
        (
            addition(9, OTHER),
            E.REQUEST_TIMED_OUT,
            "Aborted add voter operation for since API_VERSIONS returned an error"
            " BROKER_NOT_AVAILABLE",
        ),
        (addition(9, OTHER, "x"), E.INCONSISTENT_CLUSTER_ID, wrong_id),
        (
            removal(9, OTHER),
            E.VOTER_NOT_FOUND,
            f"Cannot remove voter ReplicaKey(id=9, directoryId={other}) from the set of voters"
            f" {everyone}",
        ),
        (
            removal(9, ZERO_UUID),
            E.INVALID_REQUEST,
            "Remove voter request didn't include a valid voter",
        ),
        (removal(1, OTHER, "x"), E.INCONSISTENT_CLUSTER_ID, wrong_id),
    ]
    for request, code, text in cases:
        version = 1 if isinstance(request, AddRaftVoterRequest) else 0
        response = await call(broker, request, version)
        assert (response.error_code, response.error_message) == (code, text)


async def test_the_last_voter_stays() -> None:
    async with Broker() as broker:
        (directory,) = (await voters(broker)).values()
        response = await call(broker, removal(1, directory), 0)
        assert response.error_code == E.VOTER_NOT_FOUND


async def nodes_of(broker: Broker, *, fenced: bool) -> dict[int, bool]:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, include_fenced_brokers=fenced
    )
    response = await call(broker, request, 2)
    return {each.broker_id: each.is_fenced for each in response.brokers}


async def test_a_node_that_is_down_can_be_unregistered(broker: Broker) -> None:
    unknown = await call(broker, UnregisterBrokerRequest(broker_id=9), 0)
    assert (unknown.error_code, unknown.error_message) == (
        E.BROKER_ID_NOT_REGISTERED,
        "Broker ID 9 is not currently registered",
    )
    await broker.kill(3)
    assert await nodes_of(broker, fenced=True) == {1: False, 2: False, 3: True}
    assert await nodes_of(broker, fenced=False) == {1: False, 2: False}
    done = await call(broker, UnregisterBrokerRequest(broker_id=3), 0)
    assert (done.error_code, done.error_message) == (E.NONE, "")
    assert await nodes_of(broker, fenced=True) == {1: False, 2: False}
    again = await call(broker, UnregisterBrokerRequest(broker_id=3), 0)
    assert again.error_code == E.BROKER_ID_NOT_REGISTERED
    await broker.restart(3)
    assert await nodes_of(broker, fenced=True) == {1: False, 2: False, 3: False}


async def test_a_live_node_registers_again(broker: Broker) -> None:
    assert (await call(broker, UnregisterBrokerRequest(broker_id=3), 0)).error_code == E.NONE
    assert await nodes_of(broker, fenced=True) == {1: False, 2: False, 3: False}


async def test_a_controller_that_is_down_can_be_unregistered(broker: Broker) -> None:
    unknown = await call(broker, UnregisterControllerRequest(controller_id=9), 0)
    assert (unknown.error_code, unknown.error_message) == (
        E.CONTROLLER_ID_NOT_REGISTERED,
        "Controller ID 9 is not currently registered.",
    )
    await broker.kill(3)
    request = UnregisterControllerRequest(controller_id=3)
    assert (await call(broker, request, 0)).error_code == E.NONE
    assert (await call(broker, request, 0)).error_code == E.CONTROLLER_ID_NOT_REGISTERED
    await broker.restart(3)
    assert (await call(broker, request, 0)).error_code == E.NONE


@pytest.mark.parametrize(
    ("endpoint_type", "code", "text"),
    [
        (
            2,
            E.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type"
            " CONTROLLER",
        ),
        (3, E.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
    ],
)
async def test_endpoint_types(broker: Broker, endpoint_type: int, code: int, text: str) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=endpoint_type
    )
    response = await call(broker, request, 2)
    assert (response.error_code, response.error_message, response.brokers) == (code, text, [])


async def test_permissions_on_the_cluster_are_needed() -> None:
    async with Broker(acls=[Acl("User:x", "All", cluster=True)]) as broker:
        request = DescribeQuorumRequest(topics=[])
        assert (await call(broker, request, 2)).error_code == E.CLUSTER_AUTHORIZATION_FAILED
        for change, version in (
            (addition(1, OTHER), 1),
            (removal(1, OTHER), 0),
            (UnregisterBrokerRequest(broker_id=1), 0),
        ):
            response = await call(broker, change, version)
            assert response.error_code == E.CLUSTER_AUTHORIZATION_FAILED
