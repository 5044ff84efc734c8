"""CreateTopics: create topics, or only validate the request. Key 19."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
)


@struct
class CreatableReplicaAssignment(Struct):
    partition_index: int32
    broker_ids: list[int32]


@struct
class CreatableTopicConfig(Struct):
    name: str
    value: str | None


@struct
class CreatableTopic(Struct):
    """Both counts are -1 with `assignments`, and for the broker's defaults (v4+)."""

    name: str
    num_partitions: int32
    replication_factor: int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@request(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    topics: list[CreatableTopic]
    timeout_ms: int32 = 60_000
    validate_only: bool = field(versions="1+", default=False)


@struct
class CreatableTopicConfigs(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: int8 = field(default=-1, ignorable=True)
    is_sensitive: bool


@struct
class CreatableTopicResult(Struct):
    name: str
    topic_id: UUID = field(versions="7+", default=ZERO_UUID, ignorable=True)
    error_code: int16
    error_message: str | None = field(versions="1+", default="", ignorable=True)
    topic_config_error_code: int16 = field(versions="5+", default=0, tag=0, ignorable=True)
    num_partitions: int32 = field(versions="5+", default=-1, ignorable=True)
    replication_factor: int16 = field(versions="5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        versions="5+", default_factory=list, ignorable=True
    )


@response(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse(Response):
    throttle_time_ms: int32 = field(versions="2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult]
