"""DescribeLogDirs: describe the log directories of brokers (KIP-113). Key 35."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
)


@struct
class DescribableLogDirTopic(Struct):
    topic: str
    partitions: list[int32]


@request(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: int32
    partition_size: int64
    offset_lag: int64
    is_future_key: bool


@struct
class DescribeLogDirsTopic(Struct):
    name: str
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult(Struct):
    error_code: int16
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: int64 = field(versions="4+", default=-1, ignorable=True)
    usable_bytes: int64 = field(versions="4+", default=-1, ignorable=True)
    is_cordoned: bool = field(versions="5+", default=False, ignorable=True)


@response(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse(Response):
    throttle_time_ms: int32
    error_code: int16 = field(versions="3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]
