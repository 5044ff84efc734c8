"""UnregisterController: unregister a controller of the quorum. Key 94."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, request, response

__all__ = ("UnregisterControllerRequest", "UnregisterControllerResponse")


@request(key=94, versions="0", flexible="0+")
class UnregisterControllerRequest(Request["UnregisterControllerResponse"]):
    controller_id: int32


@response(key=94, versions="0", flexible="0+")
class UnregisterControllerResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
