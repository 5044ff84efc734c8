"""ShareGroupHeartbeat: heartbeat of a member of a share group (KIP-932). Key 76."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "ShareGroupHeartbeatAssignment",
    "ShareGroupHeartbeatRequest",
    "ShareGroupHeartbeatResponse",
    "ShareGroupHeartbeatTopicPartitions",
)


@request(key=76, versions="0-1", flexible="0+")
class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"]):
    group_id: str
    member_id: str
    member_epoch: int32
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@struct
class ShareGroupHeartbeatTopicPartitions(Struct):
    topic_id: UUID
    partitions: list[int32]


@struct
class ShareGroupHeartbeatAssignment(Struct):
    topic_partitions: list[ShareGroupHeartbeatTopicPartitions]


@response(key=76, versions="0-1", flexible="0+")
class ShareGroupHeartbeatResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32
    heartbeat_interval_ms: int32
    assignment: ShareGroupHeartbeatAssignment | None = None
