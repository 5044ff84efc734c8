"""Error responses of inter-broker APIs to a request from outside the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import ApiKey, Broker
from aiokafkawire.cli.admin_command import admin_options
from aiokafkawire.cli.client_session import open_session
from aiokafkawire.cluster import ToNode, error_codes
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import APIS, Request, error_for
from aiokafkawire.wire.messages.controlled_shutdown import ControlledShutdownRequest
from aiokafkawire.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from aiokafkawire.wire.messages.stop_replica import StopReplicaPartitionV0, StopReplicaRequest
from aiokafkawire.wire.messages.update_metadata import UpdateMetadataRequest

from .observer import WITHIN_S, Observer
from .table import ROWS, Reaction, Row

CONTROLLER, EPOCH = 1, 1

APIS_BETWEEN = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)


@pytest.fixture(scope="module")
async def replicating(anyio_backend: object) -> AsyncIterator[Broker]:
    """Cluster of a release whose controller sends LeaderAndIsr and UpdateMetadata."""
    async with Broker(nodes=2, as_of="0.10.2", replicate=True) as broker:
        yield broker


def lead(tp: TopicPartition) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        topic_name=tp.topic,
        partition_index=tp.partition,
        controller_epoch=EPOCH,
        leader=1,
        leader_epoch=1,
        isr=[1],
        partition_epoch=0,
        replicas=[1],
    )
    return LeaderAndIsrRequest(
        controller_id=CONTROLLER,
        controller_epoch=EPOCH,
        ungrouped_partition_states=[state],
        live_leaders=[],
    )


def stop(tp: TopicPartition) -> StopReplicaRequest:
    partition = StopReplicaPartitionV0(topic_name=tp.topic, partition_index=tp.partition)
    return StopReplicaRequest(
        controller_id=CONTROLLER, controller_epoch=EPOCH, ungrouped_partitions=[partition]
    )


def update_metadata(tp: TopicPartition) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=CONTROLLER, controller_epoch=EPOCH, live_brokers=[])


def leave(tp: TopicPartition) -> ControlledShutdownRequest:
    return ControlledShutdownRequest(broker_id=2)


REQUESTS: dict[ApiKey, Callable[[TopicPartition], Request[Any]]] = {
    ApiKey.LEADER_AND_ISR: lead,
    ApiKey.STOP_REPLICA: stop,
    ApiKey.UPDATE_METADATA: update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: leave,
}


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.api in APIS_BETWEEN],
    ids=lambda row: f"{APIS[row.api].name}-{row.name}",
)
async def test_inter_broker_error_codes_are_returned_without_retry(
    replicating: Broker, row: Row
) -> None:
    observer = Observer(replicating)
    observer.fault(row)
    options = admin_options(replicating.bootstrap_servers, ()) | {"client_id": observer.client_id}
    async with open_session(options) as session:
        with anyio.fail_after(WITHIN_S):
            deadline = session.runtime.clock.now() + WITHIN_S
            response = await session.cluster.request(
                REQUESTS[row.api](observer.partition), to=ToNode(2), deadline=deadline
            )
    assert row.reaction is Reaction.RAISE
    assert set(error_codes(response)) == {row.code}
    assert not error_for(row.code).retriable or row.code.invalidates_metadata
    assert observer.after(row.api) == [], "it is sent once"
    replicating.clear_faults()
