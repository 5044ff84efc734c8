"""LeaderAndIsr: the controller assigns leaders and followers to a node."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.replication.controller_commands import (
    build_leader_and_isr_response,
    parse_leader_and_isr,
)
from aiokafkawire.broker.request_context import RequestContext, require_replica_manager
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    command = parse_leader_and_isr(request, context.version)
    try:
        context.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        errors = require_replica_manager(context).become_leader_or_follower(
            command, context.state.clock.now()
        )
    except ApiError as error:
        return build_leader_and_isr_response(command, {}, context.version, error.code)
    return build_leader_and_isr_response(command, errors, context.version, ErrorCode.NONE)


def error_response(request: LeaderAndIsrRequest, version: int, code: int) -> LeaderAndIsrResponse:
    command = parse_leader_and_isr(request, version)
    return build_leader_and_isr_response(
        command, dict.fromkeys(command.partitions, code), version, code
    )
