"""Common parts of the APIs of delegation tokens."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import ANONYMOUS, RequestContext
from aiokafkawire.wire import ErrorCode

__all__ = (
    "FIRST_REQUESTER_VERSION",
    "NO_TIMESTAMP",
    "change_expiry",
    "check_request",
    "split_principal",
)

FIRST_REQUESTER_VERSION = 3
"""First version of responses that name the client who created a token beside its owner."""

NO_TIMESTAMP = -1
"""Time in the response to a request that failed."""

PLAINTEXT, SSL = "PLAINTEXT", "SSL"


def check_request(context: RequestContext) -> None:
    """Raise `ApiError` unless the client is a user that did not authenticate with a token."""
    connection = context.connection
    is_anonymous = connection.principal == ANONYMOUS
    authenticator = connection.authenticator
    if (
        connection.listener == PLAINTEXT
        or (connection.listener == SSL and is_anonymous)
        or (authenticator is not None and authenticator.used_delegation_token)
    ):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def change_expiry(
    context: RequestContext,
    change: Callable[[bytes, str, int, int], int],
    hmac: bytes,
    period_ms: int,
) -> tuple[int, int]:
    """Renew or expire a token.

    Args:
        context: The request.
        change: `DelegationTokens.renew` or `DelegationTokens.expire`.
        hmac: HMAC of the token.
        period_ms: Period in milliseconds that the client asked for.

    Returns:
        Error code and new expiry in milliseconds since 1970.
    """
    try:
        check_request(context)
    except ApiError as error:
        return error.code, NO_TIMESTAMP
    try:
        expiry_ms = change(hmac, context.principal, period_ms, context.state.clock.wall_ms())
    except ApiError as error:
        # The controller refuses with the time 0, other brokers with -1.
        return error.code, 0
    context.cluster.save_if_possible()
    return ErrorCode.NONE, expiry_ms


def split_principal(principal: str) -> tuple[str, str]:
    """Return type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
