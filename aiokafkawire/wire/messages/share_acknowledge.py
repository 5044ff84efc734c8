"""ShareAcknowledge: acknowledge records of a share group (KIP-932). Key 79."""

from uuid import UUID

from aiokafkawire.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aiokafkawire.wire.primitives import int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "AcknowledgePartition",
    "AcknowledgeTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "ShareAcknowledgePartitionData",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareAcknowledgeTopicResponse",
    "ShareAcknowledgementBatch",
)


@struct
class ShareAcknowledgementBatch(Struct):
    """Types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew; one for all, or one a record."""

    first_offset: int64
    last_offset: int64
    acknowledge_types: list[int8]


@struct
class AcknowledgePartition(Struct):
    partition_index: int32
    acknowledgement_batches: list[ShareAcknowledgementBatch]


@struct
class AcknowledgeTopic(Struct):
    topic_id: UUID
    partitions: list[AcknowledgePartition]


@request(key=79, versions="0-2", flexible="0+")
class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"]):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: int32
    is_renew_ack: bool = field(versions="2+", default=False)
    topics: list[AcknowledgeTopic]


@struct
class ShareAcknowledgePartitionData(Struct):
    partition_index: int32
    error_code: int16
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch


@struct
class ShareAcknowledgeTopicResponse(Struct):
    topic_id: UUID
    partitions: list[ShareAcknowledgePartitionData]


@response(key=79, versions="0-2", flexible="0+")
class ShareAcknowledgeResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = field(versions="2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]
