"""Envelope: a broker forwards a client's request to the controller (KIP-590). Key 58."""

from aiokafkawire.wire.primitives import int16
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("EnvelopeRequest", "EnvelopeResponse")


@request(key=58, versions="0", flexible="0+")
class EnvelopeRequest(Request["EnvelopeResponse"]):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


@response(key=58, versions="0", flexible="0+")
class EnvelopeResponse(Response):
    response_data: bytes | None = None
    error_code: int16
