"""StopReplica: the controller removes replicas from a node."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.replication.controller_commands import Key, parse_stop_replica
from aiokafkawire.broker.request_context import RequestContext, require_replica_manager
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    try:
        context.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        errors = require_replica_manager(context).stop_replicas(
            parse_stop_replica(request, context.version), context.state.clock.now()
        )
    except ApiError as error:
        return _answer({}, error.code)
    return _answer(errors, ErrorCode.NONE)


def error_response(request: StopReplicaRequest, version: int, code: int) -> StopReplicaResponse:
    return _answer(dict.fromkeys(parse_stop_replica(request, version).partitions, code), code)


def _answer(errors: Mapping[Key, int], code: int) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=code,
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=error)
            for (topic, index), error in errors.items()
        ],
    )
