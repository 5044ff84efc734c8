"""RenewDelegationToken: extend the expiry of a delegation token (KIP-48). Key 39."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("RenewDelegationTokenRequest", "RenewDelegationTokenResponse")


@request(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"]):
    hmac: bytes
    renew_period_ms: int64


@response(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse(Response):
    error_code: int16
    expiry_timestamp_ms: int64
    throttle_time_ms: int32
