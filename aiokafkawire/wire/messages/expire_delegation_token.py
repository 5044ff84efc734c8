"""ExpireDelegationToken: change the expiry of a delegation token (KIP-48). Key 40."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("ExpireDelegationTokenRequest", "ExpireDelegationTokenResponse")


@request(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"]):
    hmac: bytes
    expiry_time_period_ms: int64


@response(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse(Response):
    error_code: int16
    expiry_timestamp_ms: int64
    throttle_time_ms: int32
