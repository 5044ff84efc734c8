"""SaslAuthenticate: one token of an authentication."""

from __future__ import annotations

from aiokafkawire.broker.authentication import UNEXPECTED_AUTHENTICATE
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    authenticator = context.connection.authenticator
    if authenticator is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message=UNEXPECTED_AUTHENTICATE,
            auth_bytes=b"",
        )
    return authenticator.authenticate(request.auth_bytes)


def error_response(
    request: SaslAuthenticateRequest, version: int, code: int
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=None, auth_bytes=b"")
