"""AlterPartition: a leader changes the ISR of a partition (KIP-497). Key 56."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "AlterPartitionBrokerState",
    "AlterPartitionData",
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "AlterPartitionResult",
    "AlterPartitionTopicData",
    "AlterPartitionTopicResult",
)


@struct
class AlterPartitionBrokerState(Struct):
    broker_id: int32
    broker_epoch: int64 = -1


@struct
class AlterPartitionData(Struct):
    partition_index: int32
    leader_epoch: int32
    new_isr: list[int32] = field(versions="0-2", default_factory=list)
    new_isr_with_epochs: list[AlterPartitionBrokerState] = field(
        versions="3+", default_factory=list
    )
    leader_recovery_state: int8 = field(versions="1+", default=0)
    partition_epoch: int32


@struct
class AlterPartitionTopicData(Struct):
    topic_name: str = field(versions="0-1", default="", ignorable=True)
    topic_id: UUID = field(versions="2+", default=ZERO_UUID, ignorable=True)
    partitions: list[AlterPartitionData]


@request(key=56, versions="0-3", flexible="0+")
class AlterPartitionRequest(Request["AlterPartitionResponse"]):
    broker_id: int32
    broker_epoch: int64 = -1
    topics: list[AlterPartitionTopicData]


@struct
class AlterPartitionResult(Struct):
    partition_index: int32
    error_code: int16
    leader_id: int32
    leader_epoch: int32
    isr: list[int32]
    leader_recovery_state: int8 = field(versions="1+", default=0, ignorable=True)
    partition_epoch: int32


@struct
class AlterPartitionTopicResult(Struct):
    topic_name: str = field(versions="0-1", default="", ignorable=True)
    topic_id: UUID = field(versions="2+", default=ZERO_UUID, ignorable=True)
    partitions: list[AlterPartitionResult]


@response(key=56, versions="0-3", flexible="0+")
class AlterPartitionResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    topics: list[AlterPartitionTopicResult]
