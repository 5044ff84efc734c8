"""SaslHandshake: choose the mechanism of an authentication."""

from __future__ import annotations

from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    authenticator = context.connection.authenticator
    if authenticator is None:
        return error_response(request, context.version, ErrorCode.ILLEGAL_SASL_STATE)
    return authenticator.handshake(request.mechanism, context.version)


def error_response(request: SaslHandshakeRequest, version: int, code: int) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code, mechanisms=[])
