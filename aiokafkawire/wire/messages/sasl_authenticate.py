"""SaslAuthenticate: exchange one SASL token. Key 36."""

from aiokafkawire.wire.primitives import int16, int64
from aiokafkawire.wire.schema import Request, Response, field, request, response

__all__ = ("SaslAuthenticateRequest", "SaslAuthenticateResponse")


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: bytes


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Response):
    error_code: int16
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int64 = field(versions="1+", default=0, ignorable=True)
