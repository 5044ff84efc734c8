"""PushTelemetry: metrics of a client (KIP-714)."""

from __future__ import annotations

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.telemetry import ClientMetrics
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    pushed = ClientMetrics(
        client_instance_id=request.client_instance_id,
        client_id=context.client_id,
        node_id=context.node_id,
        terminating=request.terminating,
        metrics=bytes(request.metrics),
    )
    try:
        context.state.telemetry.push(
            pushed,
            request.subscription_id,
            request.compression_type,
            context.client_attributes,
            context.state.clock.now(),
        )
    except ApiError as error:
        return error_response(request, context.version, error.code)
    return error_response(request, context.version, ErrorCode.NONE)


def error_response(request: PushTelemetryRequest, version: int, code: int) -> PushTelemetryResponse:
    return PushTelemetryResponse(throttle_time_ms=0, error_code=code)
