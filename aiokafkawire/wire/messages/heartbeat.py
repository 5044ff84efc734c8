"""Heartbeat: keep a group membership alive and detect rebalances. Key 12."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, field, request, response

__all__ = ("HeartbeatRequest", "HeartbeatResponse")


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request["HeartbeatResponse"]):
    group_id: str
    generation_id: int32
    member_id: str
    group_instance_id: str | None = field(versions="3+", default=None)


@response(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse(Response):
    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    error_code: int16
