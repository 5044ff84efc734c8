"""Common parts of the APIs of delegation tokens."""

from __future__ import annotations

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import ANONYMOUS, RequestContext
from aiokafkawire.wire import ErrorCode

__all__ = ("NO_TIMESTAMP", "check_request", "split_principal")

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


def split_principal(principal: str) -> tuple[str, str]:
    """Return type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
