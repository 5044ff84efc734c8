"""Produce: append record batches to partitions. Key 0."""

from typing import ClassVar
from uuid import UUID

from aiokafkawire.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aiokafkawire.wire.primitives import ZERO_UUID, RecordBytes, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "BatchIndexAndErrorMessage",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
)


@struct
class PartitionProduceData(Struct):
    index: int32
    records: RecordBytes | None


@struct
class TopicProduceData(Struct):
    name: str = field(versions="0-12", default="", ignorable=True)
    topic_id: UUID = field(versions="13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


@request(key=0, versions="0-13", flexible="9+")
class ProduceRequest(Request["ProduceResponse"]):
    """Versions 0 to 2 carry message sets, version 3 and later record batches.

    With `acks` 0 there is no response.
    """

    decoded_in_place: ClassVar[bool] = True

    transactional_id: str | None = field(versions="3+", default=None)
    acks: int16
    timeout_ms: int32
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage(Struct):
    batch_index: int32
    batch_index_error_message: str | None = None


@struct
class PartitionProduceResponse(Struct):
    index: int32
    error_code: int16
    base_offset: int64
    log_append_time_ms: int64 = field(versions="2+", default=-1, ignorable=True)
    log_start_offset: int64 = field(versions="5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        versions="8+", default_factory=list, ignorable=True
    )
    error_message: str | None = field(versions="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(
        versions="10+", default_factory=LeaderIdAndEpoch, tag=0
    )


@struct
class TopicProduceResponse(Struct):
    name: str = field(versions="0-12", default="", ignorable=True)
    topic_id: UUID = field(versions="13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


@response(key=0, versions="0-13", flexible="9+")
class ProduceResponse(Response):
    responses: list[TopicProduceResponse]
    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(versions="10+", default_factory=list, tag=0)
