"""OffsetFetch: get the committed offsets of groups. Key 9."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
)


@struct
class OffsetFetchRequestTopic(Struct):
    """A topic of the single group of versions 0 to 7."""

    name: str
    partition_indexes: list[int32]


@struct
class OffsetFetchRequestTopics(Struct):
    """A topic of one group of version 8 and later."""

    name: str = field(versions="8-9", default="", ignorable=True)
    topic_id: UUID = field(versions="10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int32]


@struct
class OffsetFetchRequestGroup(Struct):
    group_id: str
    member_id: str | None = field(versions="9+", default=None, ignorable=True)
    member_epoch: int32 = field(versions="9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None


@request(key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """One group in versions 0 to 7, several in v8+. Null `topics` requests all topics."""

    group_id: str = field(versions="0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        versions="0-7", nullable="2-7", default_factory=list
    )
    groups: list[OffsetFetchRequestGroup] = field(versions="8+", default_factory=list)
    require_stable: bool = field(versions="7+", default=False)


@struct
class OffsetFetchResponsePartition(Struct):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field(versions="5-7", default=-1, ignorable=True)
    metadata: str | None
    error_code: int16


@struct
class OffsetFetchResponseTopic(Struct):
    name: str
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions(Struct):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field(default=-1, ignorable=True)
    metadata: str | None
    error_code: int16


@struct
class OffsetFetchResponseTopics(Struct):
    name: str = field(versions="8-9", default="", ignorable=True)
    topic_id: UUID = field(versions="10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: int16 = 0


@response(key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse(Response):
    """No committed offset is -1: with error 3 in version 0, without error later."""

    throttle_time_ms: int32 = field(versions="3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(versions="0-7", default_factory=list)
    error_code: int16 = field(versions="2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(versions="8+", default_factory=list)
