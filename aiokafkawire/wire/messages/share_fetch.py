"""ShareFetch: acquire records for a member of a share group (KIP-932). Key 78."""

from typing import ClassVar
from uuid import UUID

from aiokafkawire.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aiokafkawire.wire.primitives import RecordBytes, int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "AcquiredRecords",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "ShareFetchAcknowledgementBatch",
    "ShareFetchForgottenTopic",
    "ShareFetchPartition",
    "ShareFetchPartitionData",
    "ShareFetchRequest",
    "ShareFetchResponse",
    "ShareFetchTopic",
    "ShareFetchableTopicResponse",
)


@struct
class ShareFetchAcknowledgementBatch(Struct):
    """Types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew; one for all, or one a record."""

    first_offset: int64
    last_offset: int64
    acknowledge_types: list[int8]


@struct
class ShareFetchPartition(Struct):
    partition_index: int32
    partition_max_bytes: int32 = field(versions="0", default=0)
    acknowledgement_batches: list[ShareFetchAcknowledgementBatch]


@struct
class ShareFetchTopic(Struct):
    topic_id: UUID
    partitions: list[ShareFetchPartition]


@struct
class ShareFetchForgottenTopic(Struct):
    topic_id: UUID
    partitions: list[int32]


@request(key=78, versions="0-2", flexible="0+")
class ShareFetchRequest(Request["ShareFetchResponse"]):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: int32
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = 0x7FFFFFFF
    max_records: int32 = field(versions="1+", default=0)
    batch_size: int32 = field(versions="1+", default=0)
    share_acquire_mode: int8 = field(versions="2+", default=0, ignorable=True)
    is_renew_ack: bool = field(versions="2+", default=False)
    topics: list[ShareFetchTopic]
    forgotten_topics_data: list[ShareFetchForgottenTopic]


@struct
class AcquiredRecords(Struct):
    first_offset: int64
    last_offset: int64
    delivery_count: int16


@struct
class ShareFetchPartitionData(Struct):
    partition_index: int32
    error_code: int16
    error_message: str | None = None
    acknowledge_error_code: int16
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch
    records: RecordBytes | None = field(nullable="0")
    acquired_records: list[AcquiredRecords]


@struct
class ShareFetchableTopicResponse(Struct):
    topic_id: UUID
    partitions: list[ShareFetchPartitionData]


@response(key=78, versions="0-2", flexible="0+")
class ShareFetchResponse(Response):
    decoded_in_place: ClassVar[bool] = True

    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = field(versions="1+", default=0)
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
