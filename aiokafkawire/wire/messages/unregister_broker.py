"""UnregisterBroker: unregister a broker (KIP-631). Key 64."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("UnregisterBrokerRequest", "UnregisterBrokerResponse")


@request(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    broker_id: int32


@response(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
