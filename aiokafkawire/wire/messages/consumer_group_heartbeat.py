"""ConsumerGroupHeartbeat: heartbeat of the consumer protocol (KIP-848). Key 68."""

from uuid import UUID

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "ConsumerGroupHeartbeatAssignment",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupHeartbeatTopicPartitions",
)


@struct
class ConsumerGroupHeartbeatTopicPartitions(Struct):
    topic_id: UUID
    partitions: list[int32]


@request(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """Epoch 0 joins, -1 leaves, -2 leaves temporarily as a static member.

    Null fields have not changed since the last request.
    """

    group_id: str
    member_id: str
    member_epoch: int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(versions="1+", default=None)
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = None


@struct
class ConsumerGroupHeartbeatAssignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions]


@response(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32
    heartbeat_interval_ms: int32
    assignment: ConsumerGroupHeartbeatAssignment | None = None
