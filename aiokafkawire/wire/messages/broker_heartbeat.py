"""BrokerHeartbeat: a broker renews its session with the controller (KIP-631). Key 63."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, field, request, response

__all__ = ("BrokerHeartbeatRequest", "BrokerHeartbeatResponse")


@request(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"]):
    broker_id: int32
    broker_epoch: int64 = -1
    current_metadata_offset: int64
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[UUID] = field(versions="1+", default_factory=list, tag=0)
    cordoned_log_dirs: list[UUID] | None = field(versions="2+", default=None, tag=1)


@response(key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool
