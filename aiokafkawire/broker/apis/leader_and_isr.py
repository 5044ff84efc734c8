"""LeaderAndIsr: the controller says what a node leads, and what it follows."""

from __future__ import annotations

from aiokafkawire.broker.call import Call, replicas_of
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.replication.messages import lead_errors, lead_order
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

__all__ = ("failed", "handle")


async def handle(call: Call, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    order = lead_order(request, call.version)
    try:
        errors = replicas_of(call).lead_and_follow(order, call.state.clock.now())
    except Refusal as refusal:
        return lead_errors(order, {}, call.version, refusal.code)
    return lead_errors(order, errors, call.version, ErrorCode.NONE)


def failed(request: LeaderAndIsrRequest, version: int, code: int) -> LeaderAndIsrResponse:
    order = lead_order(request, version)
    return lead_errors(order, dict.fromkeys(order.partitions, code), version, code)
