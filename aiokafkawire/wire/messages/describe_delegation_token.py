"""DescribeDelegationToken: list the delegation tokens of owners (KIP-48). Key 41."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DescribeDelegationTokenOwner",
    "DescribeDelegationTokenRequest",
    "DescribeDelegationTokenResponse",
    "DescribedDelegationToken",
    "DescribedDelegationTokenRenewer",
)


@struct
class DescribeDelegationTokenOwner(Struct):
    principal_type: str
    principal_name: str


@request(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest(Request["DescribeDelegationTokenResponse"]):
    owners: list[DescribeDelegationTokenOwner] | None


@struct
class DescribedDelegationTokenRenewer(Struct):
    principal_type: str
    principal_name: str


@struct
class DescribedDelegationToken(Struct):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = field(versions="3+", default="")
    token_requester_principal_name: str = field(versions="3+", default="")
    issue_timestamp: int64
    expiry_timestamp: int64
    max_timestamp: int64
    token_id: str
    hmac: bytes
    renewers: list[DescribedDelegationTokenRenewer]


@response(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse(Response):
    error_code: int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: int32
