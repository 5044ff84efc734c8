"""DescribeUserScramCredentials: the users with SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections import Counter

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.security import ScramCredential
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

__all__ = ("SCRAM_MECHANISMS", "error_response", "handle")

SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""SCRAM mechanisms by their number in the protocol."""


async def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    stored = context.state.credentials.scram_users()
    names = [user.name for user in request.users or []]
    times = Counter(names or list(stored))
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message="",
        results=[_describe(name, count, stored.get(name, {})) for name, count in times.items()],
    )


def error_response(
    request: DescribeUserScramCredentialsRequest, version: int, code: int
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message=None,
        # Kafka leaves the names out, and does not answer at all if the users are null.
        results=[
            DescribeUserScramCredentialsResult(
                user="", error_code=code, error_message=None, credential_infos=[]
            )
            for _ in request.users or []
        ],
    )


def _describe(
    name: str, count: int, credentials: dict[str, ScramCredential]
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.NONE, error_message="", credential_infos=[]
    )
    if count > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif not credentials:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        result.credential_infos = [
            CredentialInfo(mechanism=number, iterations=credentials[mechanism].iterations)
            for number, mechanism in SCRAM_MECHANISMS.items()
            if mechanism in credentials
        ]
    return result
