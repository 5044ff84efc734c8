"""Metadata: list brokers, topics, partitions and their leaders. Key 3."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32
from aiokafkawire.wire.schema import (
    LazyStruct,
    Request,
    Response,
    Struct,
    field,
    request,
    response,
    struct,
)

__all__ = (
    "AUTHORIZED_OPERATIONS_OMITTED",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
)

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)
"""Value of the bit field of authorized operations if the request did not ask for them."""


@struct
class MetadataRequestTopic(Struct):
    topic_id: UUID = field(versions="10+", default=ZERO_UUID, ignorable=True)
    name: str | None = field(nullable="10+")


@request(key=3, versions="0-13", flexible="9+")
class MetadataRequest(Request["MetadataResponse"]):
    """All topics: an empty list in version 0, null in v1+ (where an empty list is no topic)."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: bool = field(versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(versions="8-10", default=False)
    include_topic_authorized_operations: bool = field(versions="8+", default=False)


@struct
class MetadataResponseBroker(Struct):
    node_id: int32
    host: str
    port: int32
    rack: str | None = field(versions="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition(Struct):
    error_code: int16
    partition_index: int32
    leader_id: int32
    leader_epoch: int32 = field(versions="7+", default=-1, ignorable=True)
    replica_nodes: list[int32]
    isr_nodes: list[int32]
    offline_replicas: list[int32] = field(versions="5+", default_factory=list, ignorable=True)


@struct
class MetadataResponseTopic(LazyStruct):
    error_code: int16
    name: str | None = field(nullable="12+")
    topic_id: UUID = field(versions="10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(versions="1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int32 = field(versions="8+", default=AUTHORIZED_OPERATIONS_OMITTED)


@response(key=3, versions="0-13", flexible="9+")
class MetadataResponse(Response):
    throttle_time_ms: int32 = field(versions="3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None = field(versions="2+", default=None, ignorable=True)
    controller_id: int32 = field(versions="1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int32 = field(
        versions="8-10", default=AUTHORIZED_OPERATIONS_OMITTED
    )
    error_code: int16 = field(versions="13+", default=0, ignorable=True)
