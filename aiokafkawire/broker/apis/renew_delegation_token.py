"""RenewDelegationToken: prolong a token (KIP-48)."""

from __future__ import annotations

from aiokafkawire.broker.apis.delegation_token_requests import NO_TIMESTAMP, change_expiry
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    change = context.cluster.metadata.tokens.renew
    code, expiry_ms = change_expiry(context, change, request.hmac, request.renew_period_ms)
    return RenewDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0
    )


def error_response(
    request: RenewDelegationTokenRequest, version: int, code: int
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=NO_TIMESTAMP, throttle_time_ms=0
    )
