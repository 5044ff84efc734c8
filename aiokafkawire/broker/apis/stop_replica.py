"""StopReplica: the controller takes partitions from a node."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.broker.call import Call, replicas_of
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.replication.messages import Key, stop_order
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

__all__ = ("failed", "handle")


async def handle(call: Call, request: StopReplicaRequest) -> StopReplicaResponse:
    try:
        errors = replicas_of(call).stop(stop_order(request, call.version), call.state.clock.now())
    except Refusal as refusal:
        return _answer({}, refusal.code)
    return _answer(errors, ErrorCode.NONE)


def failed(request: StopReplicaRequest, version: int, code: int) -> StopReplicaResponse:
    return _answer(dict.fromkeys(stop_order(request, version).partitions, code), code)


def _answer(errors: Mapping[Key, int], code: int) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=code,
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=error)
            for (topic, index), error in errors.items()
        ],
    )
