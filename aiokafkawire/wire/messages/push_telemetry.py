"""PushTelemetry: push the metrics of a client to a broker (KIP-714). Key 72."""

from uuid import UUID

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("PushTelemetryRequest", "PushTelemetryResponse")


@request(key=72, versions="0", flexible="0+")
class PushTelemetryRequest(Request["PushTelemetryResponse"]):
    client_instance_id: UUID
    subscription_id: int32
    terminating: bool
    compression_type: int8
    metrics: bytes


@response(key=72, versions="0", flexible="0+")
class PushTelemetryResponse(Response):
    throttle_time_ms: int32
    error_code: int16
