"""CreatePartitions: add partitions to topics. Key 37."""

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
)


@struct
class CreatePartitionsAssignment(Struct):
    """The replicas of one new partition; the first is the preferred leader."""

    broker_ids: list[int32]


@struct
class CreatePartitionsTopic(Struct):
    """`count` is the new total of partitions. Null assignments: the broker assigns replicas."""

    name: str
    count: int32
    assignments: list[CreatePartitionsAssignment] | None


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    topics: list[CreatePartitionsTopic]
    timeout_ms: int32
    validate_only: bool


@struct
class CreatePartitionsTopicResult(Struct):
    name: str
    error_code: int16
    error_message: str | None = None


@response(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Response):
    throttle_time_ms: int32
    results: list[CreatePartitionsTopicResult]
