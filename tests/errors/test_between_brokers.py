"""What brokers answer each other, to somebody who asks in their place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import ApiKey, Broker
from aiokafkawire.cli.client_session import admin_options, open_session
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

from .seeing import WITHIN_S, Seen
from .table import ROWS, Does, Row

CONTROLLER, EPOCH = 1, 1

APIS_BETWEEN = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)


@pytest.fixture(scope="module")
async def replicating(anyio_backend: object) -> AsyncIterator[Broker]:
    """A cluster of a time when a controller told the others what to do."""
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


def tell(tp: TopicPartition) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=CONTROLLER, controller_epoch=EPOCH, live_brokers=[])


def leave(tp: TopicPartition) -> ControlledShutdownRequest:
    return ControlledShutdownRequest(broker_id=2)


REQUESTS: dict[ApiKey, Callable[[TopicPartition], Request[Any]]] = {
    ApiKey.LEADER_AND_ISR: lead,
    ApiKey.STOP_REPLICA: stop,
    ApiKey.UPDATE_METADATA: tell,
    ApiKey.CONTROLLED_SHUTDOWN: leave,
}


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.api in APIS_BETWEEN],
    ids=lambda row: f"{APIS[row.api].name}-{row.name}",
)
async def test_what_brokers_answer_each_other(replicating: Broker, row: Row) -> None:
    seen = Seen(replicating)
    seen.fault(row)
    options = admin_options(replicating.bootstrap_servers, ()) | {"client_id": seen.client_id}
    async with open_session(options) as session:
        with anyio.fail_after(WITHIN_S):
            response = await session.request(REQUESTS[row.api](seen.partition), ToNode(2))
    assert row.does is Does.FAIL
    assert set(error_codes(response)) == {row.code}
    assert not error_for(row.code).retriable or row.code.invalidates_metadata
    assert seen.after(row.api) == [], "it is asked once"
    replicating.clear_faults()
