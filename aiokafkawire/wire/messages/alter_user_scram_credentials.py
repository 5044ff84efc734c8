"""AlterUserScramCredentials: set and delete SCRAM credentials (KIP-554). Key 51."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "AlterUserScramCredentialsResult",
    "ScramCredentialDeletion",
    "ScramCredentialUpsertion",
)


@struct
class ScramCredentialDeletion(Struct):
    name: str
    mechanism: int8


@struct
class ScramCredentialUpsertion(Struct):
    """Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    name: str
    mechanism: int8
    iterations: int32
    salt: bytes
    salted_password: bytes


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult(Struct):
    user: str
    error_code: int16
    error_message: str | None


@response(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(Response):
    throttle_time_ms: int32
    results: list[AlterUserScramCredentialsResult]
