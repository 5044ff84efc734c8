"""DescribeProducers: describe the active producers of partitions (KIP-664). Key 61."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "DescribeProducersPartitionResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeProducersTopicRequest",
    "ProducerState",
    "TopicResponse",
)


@struct
class DescribeProducersTopicRequest(Struct):
    name: str
    partition_indexes: list[int32]


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    topics: list[DescribeProducersTopicRequest]


@struct
class ProducerState(Struct):
    producer_id: int64
    producer_epoch: int32
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32
    current_txn_start_offset: int64 = -1


@struct
class DescribeProducersPartitionResponse(Struct):
    partition_index: int32
    error_code: int16
    error_message: str | None = None
    active_producers: list[ProducerState]


@struct
class TopicResponse(Struct):
    name: str
    partitions: list[DescribeProducersPartitionResponse]


@response(key=61, versions="0", flexible="0+")
class DescribeProducersResponse(Response):
    throttle_time_ms: int32
    topics: list[TopicResponse]
