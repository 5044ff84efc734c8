"""Records of __share_group_state (KIP-932)."""

from uuid import UUID

from aiokafkawire.wire.primitives import int8, int16, int32, int64
from aiokafkawire.wire.schema import Message, Struct, data, field, struct

__all__ = (
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareStateBatch",
    "ShareUpdateKey",
    "ShareUpdateValue",
)


@data(name="ShareSnapshotKey", versions="0", flexible="none")
class ShareSnapshotKey(Message):
    group_id: str
    topic_id: UUID
    partition: int32


@struct
class ShareStateBatch(Struct):
    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


@data(name="ShareSnapshotValue", versions="0", flexible="0+")
class ShareSnapshotValue(Message):
    snapshot_epoch: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(default=-1, tag=0)
    create_timestamp: int64
    write_timestamp: int64
    state_batches: list[ShareStateBatch]


@data(name="ShareUpdateKey", versions="0", flexible="none")
class ShareUpdateKey(Message):
    group_id: str
    topic_id: UUID
    partition: int32


@data(name="ShareUpdateValue", versions="0", flexible="0+")
class ShareUpdateValue(Message):
    snapshot_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(default=-1, tag=0)
    state_batches: list[ShareStateBatch]
