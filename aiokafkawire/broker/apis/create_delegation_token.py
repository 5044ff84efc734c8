"""CreateDelegationToken: a token for the client, or for another user (KIP-48, KIP-373)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.delegation_token_requests import (
    FIRST_REQUESTER_VERSION,
    NO_TIMESTAMP,
    check_request,
    split_principal,
)
from aiokafkawire.broker.authentication.principals import USER_TYPE
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    owner = context.principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    response = _response(context, owner)
    tokens = context.cluster.metadata.tokens
    try:
        check_request(context)
        if owner != context.principal and not context.is_authorized(
            AclOperation.CREATE_TOKENS, ResourceType.USER, owner
        ):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(each.principal_type != USER_TYPE for each in request.renewers):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        token = tokens.create(
            owner,
            context.principal,
            [f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
            request.max_lifetime_ms,
            now_ms=context.state.clock.wall_ms(),
            rng=context.state.rng,
        )
    except ApiError as error:
        response.error_code = error.code
        return response
    context.cluster.save_if_possible()
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id, response.hmac = token.token_id, token.hmac
    return response


def error_response(
    request: CreateDelegationTokenRequest, version: int, code: int
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type="",
        principal_name="",
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


def _response(context: RequestContext, owner: str) -> CreateDelegationTokenResponse:
    """Return a response with the owner and the client, but without a token."""
    owner_type, owner_name = split_principal(owner)
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )
    if context.version >= FIRST_REQUESTER_VERSION:
        requester_type, requester_name = split_principal(context.principal)
        response.token_requester_principal_type = requester_type
        response.token_requester_principal_name = requester_name
    return response
