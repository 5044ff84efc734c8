"""ExpireDelegationToken: set the expiry of a token, or remove it (KIP-48)."""

from __future__ import annotations

from aiokafkawire.broker.apis.delegation_token_requests import NO_TIMESTAMP, change_expiry
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    change = context.cluster.metadata.tokens.expire
    code, expiry_ms = change_expiry(context, change, request.hmac, request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0
    )


def error_response(
    request: ExpireDelegationTokenRequest, version: int, code: int
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=NO_TIMESTAMP, throttle_time_ms=0
    )
