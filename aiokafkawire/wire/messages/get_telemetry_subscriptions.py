"""GetTelemetrySubscriptions: get the metrics that a broker subscribes to (KIP-714). Key 71."""

from uuid import UUID

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("GetTelemetrySubscriptionsRequest", "GetTelemetrySubscriptionsResponse")


@request(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest(Request["GetTelemetrySubscriptionsResponse"]):
    client_instance_id: UUID


@response(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    client_instance_id: UUID
    subscription_id: int32
    accepted_compression_types: list[int8]
    push_interval_ms: int32
    telemetry_max_bytes: int32
    delta_temporality: bool
    requested_metrics: list[str]
