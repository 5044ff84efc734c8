"""CreateDelegationToken: create a delegation token (KIP-48). Key 38."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("CreatableRenewers", "CreateDelegationTokenRequest", "CreateDelegationTokenResponse")


@struct
class CreatableRenewers(Struct):
    principal_type: str
    principal_name: str


@request(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"]):
    owner_principal_type: str | None = field(versions="3+", default="")
    owner_principal_name: str | None = field(versions="3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: int64


@response(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenResponse(Response):
    error_code: int16
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = field(versions="3+", default="")
    token_requester_principal_name: str = field(versions="3+", default="")
    issue_timestamp_ms: int64
    expiry_timestamp_ms: int64
    max_timestamp_ms: int64
    token_id: str
    hmac: bytes
    throttle_time_ms: int32
