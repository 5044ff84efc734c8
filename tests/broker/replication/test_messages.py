from __future__ import annotations

from uuid import UUID

import pytest

from aiokafkawire import wire
from aiokafkawire.broker.replication.messages import (
    Assignment,
    LeadOrder,
    LiveNode,
    MetadataOrder,
    StopOrder,
    lead_errors,
    lead_order,
    lead_request,
    metadata_order,
    metadata_request,
    stop_order,
    stop_request,
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
FIRST, SECOND = Assignment(1, 4, (1, 2), (1, 2, 3)), Assignment(2, 0, (2,), (2, 3))
PARTITIONS = {("a", 0): FIRST, ("a", 5): SECOND, ("b", 0): SECOND}
ONE, TWO = Address("one", 9092), Address("two", 9093)
CONTROLLER = {"controller_id": 3, "controller_epoch": 8}


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
def test_leader_and_isr_says_the_same_in_every_version(version: int) -> None:
    order = LeadOrder(
        **CONTROLLER,
        partitions=PARTITIONS,
        leaders={1: ONE, 2: TWO},
        topic_ids={"a": ID, "b": ZERO_UUID},
    )
    data = wire.encode(lead_request(order, version), version)
    read = lead_order(wire.decode(LeaderAndIsrRequest, version, data), version)
    assert (read.partitions, read.leaders) == (order.partitions, order.leaders)
    assert (read.controller_id, read.controller_epoch) == (3, 8)
    if version >= 5:
        assert read.topic_ids == order.topic_ids


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
def test_leader_and_isr_is_answered_by_name_or_by_id(version: int) -> None:
    order = LeadOrder(**CONTROLLER, partitions=PARTITIONS, leaders={}, topic_ids={"a": ID})
    response = lead_errors(order, {("a", 0): 0, ("a", 5): 11}, version, 0)
    wire.encode(response, version)
    if version < 5:
        told = [
            (error.topic_name, error.partition_index, error.error_code)
            for error in response.partition_errors
        ]
        assert told == [("a", 0, 0), ("a", 5, 11)]
    else:
        [topic] = response.topics
        assert topic.topic_id == ID
        assert [error.error_code for error in topic.partition_errors] == [0, 11]


@pytest.mark.parametrize("version", versions(ApiKey.STOP_REPLICA))
@pytest.mark.parametrize("delete", [True, False])
def test_stop_replica_says_the_same_in_every_version(version: int, delete: bool) -> None:
    order = StopOrder(**CONTROLLER, partitions=dict.fromkeys(PARTITIONS, delete))
    data = wire.encode(stop_request(order, version), version)
    assert stop_order(wire.decode(StopReplicaRequest, version, data), version) == order


def test_stop_replica_can_delete_some_of_them_since_version_3() -> None:
    order = StopOrder(**CONTROLLER, partitions={("a", 0): True, ("a", 1): False})
    data = wire.encode(stop_request(order, 3), 3)
    assert stop_order(wire.decode(StopReplicaRequest, 3, data), 3) == order


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
def test_update_metadata_says_the_same_in_every_version(version: int) -> None:
    rack = "west" if version >= 2 else None
    order = MetadataOrder(
        **CONTROLLER,
        partitions=PARTITIONS,
        live={1: LiveNode(ONE, rack), 2: LiveNode(TWO)},
        topic_ids={"a": ID},
    )
    data = wire.encode(metadata_request(order, version), version)
    read = metadata_order(wire.decode(UpdateMetadataRequest, version, data), version)
    assert (read.partitions, read.live) == (order.partitions, order.live)
    assert (read.controller_id, read.controller_epoch) == (3, 8)


def test_a_node_that_clients_cannot_reach_does_not_live_for_them() -> None:
    hidden = UpdateMetadataEndpoint(port=1, host="tls", security_protocol=1)
    plain = UpdateMetadataEndpoint(port=2, host="plain", security_protocol=0)
    request = UpdateMetadataRequest(
        **CONTROLLER,
        live_brokers=[
            UpdateMetadataBroker(id=1, endpoints=[hidden]),
            UpdateMetadataBroker(id=2, endpoints=[hidden, plain]),
        ],
    )
    assert metadata_order(request, 1).live == {2: LiveNode(Address("plain", 2))}
