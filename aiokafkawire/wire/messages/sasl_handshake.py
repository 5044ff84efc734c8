"""SaslHandshake: choose a SASL mechanism. Key 17."""

from aiokafkawire.wire.primitives import int16
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("SaslHandshakeRequest", "SaslHandshakeResponse")


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """After version 0, SASL tokens follow as bare frames; after version 1, in SaslAuthenticate."""

    mechanism: str


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse(Response):
    error_code: int16
    mechanisms: list[str]
