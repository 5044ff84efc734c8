"""DescribeDelegationToken: tokens that the client owns, renews, or may describe (KIP-48)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.delegation_token_requests import (
    FIRST_REQUESTER_VERSION,
    check_request,
    split_principal,
)
from aiokafkawire.broker.authentication.delegation_tokens import StoredToken
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    tokens = context.cluster.metadata.tokens
    try:
        check_request(context)
        tokens.require_enabled()
    except ApiError as error:
        return error_response(request, context.version, error.code)
    owners = (
        None
        if request.owners is None
        else [f"{each.principal_type}:{each.principal_name}" for each in request.owners]
    )
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        tokens=[
            _described(token, context.version)
            for token in tokens
            if _is_visible(context, token, owners)
        ],
        throttle_time_ms=0,
    )


def error_response(
    request: DescribeDelegationTokenRequest, version: int, code: int
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code, tokens=[], throttle_time_ms=0)


def _is_visible(context: RequestContext, token: StoredToken, owners: list[str] | None) -> bool:
    """Return True if the token was requested, and the client may describe it."""
    if owners is not None and not any(token.is_owned_or_renewed_by(each) for each in owners):
        return False
    return (
        token.is_owned_or_renewed_by(context.principal)
        or context.is_authorized(
            AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
        )
        or context.is_authorized(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(token: StoredToken, version: int) -> DescribedDelegationToken:
    owner_type, owner_name = split_principal(token.owner)
    described = DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(split_principal, token.renewers)
        ],
    )
    if version >= FIRST_REQUESTER_VERSION:
        requester_type, requester_name = split_principal(token.requester)
        described.token_requester_principal_type = requester_type
        described.token_requester_principal_name = requester_name
    return described
