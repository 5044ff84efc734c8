"""LeaderAndIsr: the controller assigns leaders and followers to a node."""

from __future__ import annotations

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.replication.messages import lead_errors, lead_order
from aiokafkawire.broker.request_context import RequestContext, require_replica_manager
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    order = lead_order(request, context.version)
    try:
        errors = require_replica_manager(context).lead_and_follow(order, context.state.clock.now())
    except ApiError as error:
        return lead_errors(order, {}, context.version, error.code)
    return lead_errors(order, errors, context.version, ErrorCode.NONE)


def error_response(request: LeaderAndIsrRequest, version: int, code: int) -> LeaderAndIsrResponse:
    order = lead_order(request, version)
    return lead_errors(order, dict.fromkeys(order.partitions, code), version, code)
