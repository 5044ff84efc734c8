"""DeleteRecords: advance the log start offset. Key 21."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
)


@struct
class DeleteRecordsPartition(Struct):
    """Offset -1 stands for the high watermark."""

    partition_index: int32
    offset: int64


@struct
class DeleteRecordsTopic(Struct):
    name: str
    partitions: list[DeleteRecordsPartition]


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    topics: list[DeleteRecordsTopic]
    timeout_ms: int32


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: int32
    low_watermark: int64
    error_code: int16


@struct
class DeleteRecordsTopicResult(Struct):
    name: str
    partitions: list[DeleteRecordsPartitionResult]


@response(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse(Response):
    throttle_time_ms: int32
    topics: list[DeleteRecordsTopicResult]
