"""SaslAuthenticate: exchange one SASL token. Key 36."""

from aiokafkawire.wire.primitives import int16, int64
from aiokafkawire.wire.schema import Request, Response, field, request, response

__all__ = ("SaslAuthenticateRequest", "SaslAuthenticateResponse")


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: bytes

    def __repr__(self) -> str:
        # The token has a password, or the proof of one.
        return f"{type(self).__name__}(auth_bytes=***)"


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Response):
    error_code: int16
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int64 = field(versions="1+", default=0, ignorable=True)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(error_code={self.error_code},"
            f" error_message={self.error_message!r}, auth_bytes=***,"
            f" session_lifetime_ms={self.session_lifetime_ms})"
        )
