"""WriteTxnMarkers: a coordinator writes commit or abort markers. Key 27."""

from aiokafkawire.wire.primitives import int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
)


@struct
class WritableTxnMarkerTopic(Struct):
    name: str
    partition_indexes: list[int32]


@struct
class WritableTxnMarker(Struct):
    producer_id: int64
    producer_epoch: int16
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int32
    transaction_version: int8 = field(versions="2+", default=0, ignorable=True)


@request(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int32
    error_code: int16


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: int64
    topics: list[WritableTxnMarkerTopicResult]


@response(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse(Response):
    markers: list[WritableTxnMarkerResult]
