"""The consumer protocol: metadata of members and the leader in JoinGroup and SyncGroup."""

from aiokafkawire.wire.primitives import int32
from aiokafkawire.wire.schema import Message, Struct, data, field, struct

__all__ = (
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "ConsumerProtocolTopicPartition",
)


@struct
class ConsumerProtocolTopicPartition(Struct):
    topic: str
    partitions: list[int32]


@data(name="ConsumerProtocolSubscription", versions="0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    topics: list[str]
    user_data: bytes | None = None
    owned_partitions: list[ConsumerProtocolTopicPartition] = field(
        versions="1+", default_factory=list, ignorable=True
    )
    generation_id: int32 = field(versions="2+", default=-1, ignorable=True)
    rack_id: str | None = field(versions="3+", default=None, ignorable=True)


@data(name="ConsumerProtocolAssignment", versions="0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[ConsumerProtocolTopicPartition]
    user_data: bytes | None = None
