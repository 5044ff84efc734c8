"""UpdateMetadata: the controller sends metadata to a broker. Key 6."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "UpdateMetadataBroker",
    "UpdateMetadataEndpoint",
    "UpdateMetadataPartitionState",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
    "UpdateMetadataTopicState",
)


@struct
class UpdateMetadataPartitionState(Struct):
    topic_name: str = field(versions="0-4", default="", ignorable=True)
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    zk_version: int32
    replicas: list[int32]
    offline_replicas: list[int32] = field(versions="4+", default_factory=list, ignorable=True)


@struct
class UpdateMetadataTopicState(Struct):
    topic_name: str
    topic_id: UUID = field(versions="7+", default=ZERO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState]


@struct
class UpdateMetadataEndpoint(Struct):
    port: int32
    host: str
    listener: str = field(versions="3+", default="", ignorable=True)
    security_protocol: int16


@struct
class UpdateMetadataBroker(Struct):
    id: int32
    v0_host: str = field(versions="0", default="", ignorable=True)
    v0_port: int32 = field(versions="0", default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field(
        versions="1+", default_factory=list, ignorable=True
    )
    rack: str | None = field(versions="2+", default="", ignorable=True)


@request(key=6, versions="0-8", flexible="6+")
class UpdateMetadataRequest(Request["UpdateMetadataResponse"]):
    """Partitions are one list in versions 0 to 4, grouped by topic later."""

    controller_id: int32
    is_kraft_controller: bool = field(versions="8+", default=False, name="isKRaftController")
    type: int8 = field(versions="8+", default=0, tag=0)
    controller_epoch: int32
    broker_epoch: int64 = field(versions="5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(
        versions="0-4", default_factory=list
    )
    topic_states: list[UpdateMetadataTopicState] = field(versions="5+", default_factory=list)
    live_brokers: list[UpdateMetadataBroker]


@response(key=6, versions="0-8", flexible="6+")
class UpdateMetadataResponse(Response):
    error_code: int16
