"""Records of __consumer_offsets for offsets and for groups of the classic protocol."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int32, int64
from aiokafkawire.wire.schema import Message, Struct, data, field, struct

__all__ = (
    "GroupMetadataKey",
    "GroupMetadataValue",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
)


@data(name="GroupMetadataKey", versions="0", flexible="none")
class GroupMetadataKey(Message):
    group: str


@struct
class MemberMetadata(Struct):
    member_id: str
    group_instance_id: str | None = field(versions="3+", default=None, ignorable=True)
    client_id: str
    client_host: str
    rebalance_timeout: int32 = field(versions="1+", default=-1, ignorable=True)
    session_timeout: int32
    subscription: bytes
    assignment: bytes


@data(name="GroupMetadataValue", versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    protocol_type: str
    generation: int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: int64 = field(versions="2+", default=-1, ignorable=True)
    members: list[MemberMetadata]


@data(name="OffsetCommitKey", versions="0", flexible="none")
class OffsetCommitKey(Message):
    group: str
    topic: str
    partition: int32


@data(name="OffsetCommitValue", versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    offset: int64
    leader_epoch: int32 = field(versions="3+", default=-1, ignorable=True)
    metadata: str
    commit_timestamp: int64
    expire_timestamp: int64 = field(versions="1", default=-1, ignorable=True)
    topic_id: UUID = field(versions="4+", default=ZERO_UUID, tag=0, ignorable=True)


@data(name="LegacyOffsetCommitKey", versions="0", flexible="none")
class LegacyOffsetCommitKey(Message):
    group: str
    topic: str
    partition: int32


@data(name="LegacyOffsetCommitValue", versions="0", flexible="none")
class LegacyOffsetCommitValue(Message):
    offset: int64
    metadata: str
    commit_timestamp: int64
