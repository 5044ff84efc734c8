"""FetchSnapshot: read a snapshot of the metadata log (KIP-630). Key 59."""

from typing import ClassVar
from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, RecordBytes, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "FetchSnapshotId",
    "FetchSnapshotLeaderIdAndEpoch",
    "FetchSnapshotNodeEndpoint",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "PartitionSnapshot",
    "PartitionSnapshotResult",
    "TopicSnapshot",
    "TopicSnapshotResult",
)


@struct
class FetchSnapshotId(Struct):
    end_offset: int64
    epoch: int32


@struct
class PartitionSnapshot(Struct):
    partition: int32
    current_leader_epoch: int32
    snapshot_id: FetchSnapshotId
    position: int64
    replica_directory_id: UUID = field(versions="1+", default=ZERO_UUID, tag=0, ignorable=True)


@struct
class TopicSnapshot(Struct):
    name: str
    partitions: list[PartitionSnapshot]


@request(key=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest(Request["FetchSnapshotResponse"]):
    cluster_id: str | None = field(default=None, tag=0)
    replica_id: int32 = -1
    max_bytes: int32 = 0x7FFFFFFF
    topics: list[TopicSnapshot]


@struct
class FetchSnapshotLeaderIdAndEpoch(Struct):
    leader_id: int32 = 0
    leader_epoch: int32 = 0


@struct
class PartitionSnapshotResult(Struct):
    index: int32
    error_code: int16
    snapshot_id: FetchSnapshotId
    current_leader: FetchSnapshotLeaderIdAndEpoch = field(
        default_factory=FetchSnapshotLeaderIdAndEpoch, tag=0
    )
    size: int64
    position: int64
    unaligned_records: RecordBytes


@struct
class TopicSnapshotResult(Struct):
    name: str
    partitions: list[PartitionSnapshotResult]


@struct
class FetchSnapshotNodeEndpoint(Struct):
    node_id: int32
    host: str
    port: uint16


@response(key=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse(Response):
    decoded_in_place: ClassVar[bool] = True

    throttle_time_ms: int32
    error_code: int16
    topics: list[TopicSnapshotResult]
    node_endpoints: list[FetchSnapshotNodeEndpoint] = field(
        versions="1+", default_factory=list, tag=0
    )
