"""DescribeUserScramCredentials: list the users with SCRAM credentials (KIP-554). Key 50."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "CredentialInfo",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribeUserScramCredentialsResult",
    "UserName",
)


@struct
class UserName(Struct):
    name: str


@request(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    users: list[UserName] | None


@struct
class CredentialInfo(Struct):
    mechanism: int8
    iterations: int32


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: str
    error_code: int16
    error_message: str | None
    credential_infos: list[CredentialInfo]


@response(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
    results: list[DescribeUserScramCredentialsResult]
