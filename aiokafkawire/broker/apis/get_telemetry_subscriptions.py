"""GetTelemetrySubscriptions: metrics that a client pushes (KIP-714)."""

from __future__ import annotations

from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.telemetry import ACCEPTED_COMPRESSION_TYPES, TELEMETRY_MAX_BYTES
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = context.state.telemetry
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = telemetry.new_instance_id()
    subscription = telemetry.subscribe(
        instance_id, context.client_attributes, context.state.clock.now()
    )
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        client_instance_id=instance_id,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=TELEMETRY_MAX_BYTES,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )


def error_response(
    request: GetTelemetrySubscriptionsRequest, version: int, code: int
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=code,
        client_instance_id=request.client_instance_id,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )
