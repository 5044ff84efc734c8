"""RenewDelegationToken: prolong a token (KIP-48)."""

from __future__ import annotations

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.delegation_token_requests import NO_TIMESTAMP, check_request
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        check_request(context)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    try:
        expiry_ms = context.cluster.metadata.tokens.renew(
            bytes(request.hmac),
            context.principal,
            request.renew_period_ms,
            context.state.clock.wall_ms(),
        )
    except ApiError as error:
        # The controller refuses with the time 0, other brokers with -1.
        return RenewDelegationTokenResponse(
            error_code=error.code, expiry_timestamp_ms=0, throttle_time_ms=0
        )
    context.cluster.save_if_possible()
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0
    )


def error_response(
    request: RenewDelegationTokenRequest, version: int, code: int
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=NO_TIMESTAMP, throttle_time_ms=0
    )
