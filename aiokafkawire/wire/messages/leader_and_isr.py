"""LeaderAndIsr: the controller sets the leaders and ISRs of a broker's replicas. Key 4."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "LeaderAndIsrLiveLeader",
    "LeaderAndIsrPartitionError",
    "LeaderAndIsrPartitionState",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "LeaderAndIsrTopicError",
    "LeaderAndIsrTopicState",
)


@struct
class LeaderAndIsrPartitionState(Struct):
    topic_name: str = field(versions="0-1", default="", ignorable=True)
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    partition_epoch: int32
    replicas: list[int32]
    adding_replicas: list[int32] = field(versions="3+", default_factory=list, ignorable=True)
    removing_replicas: list[int32] = field(versions="3+", default_factory=list, ignorable=True)
    is_new: bool = field(versions="1+", default=False, ignorable=True)
    leader_recovery_state: int8 = field(versions="6+", default=0)


@struct
class LeaderAndIsrTopicState(Struct):
    topic_name: str
    topic_id: UUID = field(versions="5+", default=ZERO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState]


@struct
class LeaderAndIsrLiveLeader(Struct):
    broker_id: int32
    host_name: str
    port: int32


@request(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrRequest(Request["LeaderAndIsrResponse"]):
    """Partitions are one list in versions 0 and 1, grouped by topic later."""

    controller_id: int32
    is_kraft_controller: bool = field(versions="7+", default=False, name="isKRaftController")
    controller_epoch: int32
    broker_epoch: int64 = field(versions="2+", default=-1, ignorable=True)
    type: int8 = field(versions="5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(
        versions="0-1", default_factory=list
    )
    topic_states: list[LeaderAndIsrTopicState] = field(versions="2+", default_factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


@struct
class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field(versions="0-4", default="", ignorable=True)
    partition_index: int32
    error_code: int16


@struct
class LeaderAndIsrTopicError(Struct):
    topic_id: UUID
    partition_errors: list[LeaderAndIsrPartitionError]


@response(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrResponse(Response):
    error_code: int16
    partition_errors: list[LeaderAndIsrPartitionError] = field(versions="0-4", default_factory=list)
    topics: list[LeaderAndIsrTopicError] = field(versions="5+", default_factory=list)
