from __future__ import annotations

from uuid import UUID

import pytest

from aiokafkawire import wire
from aiokafkawire.broker.replication.controller_commands import (
    LeaderAndIsr,
    LeaderAndIsrCommand,
    LiveNode,
    StopReplicaCommand,
    UpdateMetadataCommand,
    build_leader_and_isr_request,
    build_leader_and_isr_response,
    build_stop_replica_request,
    build_update_metadata_request,
    parse_leader_and_isr,
    parse_stop_replica,
    parse_update_metadata,
)
from aiokafkawire.runtime import Address
from aiokafkawire.wire import APIS, ZERO_UUID, ApiKey
from aiokafkawire.wire.messages.leader_and_isr import LeaderAndIsrRequest
from aiokafkawire.wire.messages.stop_replica import StopReplicaRequest
from aiokafkawire.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)

ID = UUID(int=7)
FIRST, SECOND = LeaderAndIsr(1, 4, (1, 2), (1, 2, 3)), LeaderAndIsr(2, 0, (2,), (2, 3))
PARTITIONS = {("a", 0): FIRST, ("a", 5): SECOND, ("b", 0): SECOND}
ONE, TWO = Address("one", 9092), Address("two", 9093)
CONTROLLER = {"controller_id": 3, "controller_epoch": 8}


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
def test_leader_and_isr_is_equal_in_every_version(version: int) -> None:
    command = LeaderAndIsrCommand(
        **CONTROLLER,
        partitions=PARTITIONS,
        leaders={1: ONE, 2: TWO},
        topic_ids={"a": ID, "b": ZERO_UUID},
    )
    data = wire.encode(build_leader_and_isr_request(command, version), version)
    read = parse_leader_and_isr(wire.decode(LeaderAndIsrRequest, version, data), version)
    assert (read.partitions, read.leaders) == (command.partitions, command.leaders)
    assert (read.controller_id, read.controller_epoch) == (3, 8)
    if version >= 5:
        assert read.topic_ids == command.topic_ids


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
def test_leader_and_isr_is_answered_by_name_or_by_id(version: int) -> None:
    command = LeaderAndIsrCommand(
        **CONTROLLER, partitions=PARTITIONS, leaders={}, topic_ids={"a": ID}
    )
    response = build_leader_and_isr_response(command, {("a", 0): 0, ("a", 5): 11}, version, 0)
    wire.encode(response, version)
    if version < 5:
        received = [
            (error.topic_name, error.partition_index, error.error_code)
            for error in response.partition_errors
        ]
        assert received == [("a", 0, 0), ("a", 5, 11)]
    else:
        [topic] = response.topics
        assert topic.topic_id == ID
        assert [error.error_code for error in topic.partition_errors] == [0, 11]


@pytest.mark.parametrize("version", versions(ApiKey.STOP_REPLICA))
@pytest.mark.parametrize("delete", [True, False])
def test_stop_replica_is_equal_in_every_version(version: int, delete: bool) -> None:
    command = StopReplicaCommand(**CONTROLLER, partitions=dict.fromkeys(PARTITIONS, delete))
    data = wire.encode(build_stop_replica_request(command, version), version)
    assert parse_stop_replica(wire.decode(StopReplicaRequest, version, data), version) == command


def test_stop_replica_can_delete_some_of_them_since_version_3() -> None:
    command = StopReplicaCommand(**CONTROLLER, partitions={("a", 0): True, ("a", 1): False})
    data = wire.encode(build_stop_replica_request(command, 3), 3)
    assert parse_stop_replica(wire.decode(StopReplicaRequest, 3, data), 3) == command


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
def test_update_metadata_is_equal_in_every_version(version: int) -> None:
    rack = "west" if version >= 2 else None
    command = UpdateMetadataCommand(
        **CONTROLLER,
        partitions=PARTITIONS,
        live={1: LiveNode(ONE, rack), 2: LiveNode(TWO)},
        topic_ids={"a": ID},
    )
    data = wire.encode(build_update_metadata_request(command, version), version)
    read = parse_update_metadata(wire.decode(UpdateMetadataRequest, version, data), version)
    assert (read.partitions, read.live) == (command.partitions, command.live)
    assert (read.controller_id, read.controller_epoch) == (3, 8)


def test_a_node_without_a_client_listener_is_not_in_metadata() -> None:
    hidden = UpdateMetadataEndpoint(port=1, host="tls", security_protocol=1)
    plain = UpdateMetadataEndpoint(port=2, host="plain", security_protocol=0)
    request = UpdateMetadataRequest(
        **CONTROLLER,
        live_brokers=[
            UpdateMetadataBroker(id=1, endpoints=[hidden]),
            UpdateMetadataBroker(id=2, endpoints=[hidden, plain]),
        ],
    )
    assert parse_update_metadata(request, 1).live == {2: LiveNode(Address("plain", 2))}
