"""Fetch: read record batches of partitions. Key 1."""

from typing import ClassVar
from uuid import UUID

from aiokafkawire.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aiokafkawire.wire.primitives import ZERO_UUID, RecordBytes, int8, int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "AbortedTransaction",
    "DivergingEpoch",
    "FetchPartition",
    "FetchPartitionData",
    "FetchReplicaState",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "SnapshotId",
)

NO_HIGH_WATERMARK = 2**63 - 1
"""High watermark of a replica that does not know it."""


@struct
class FetchReplicaState(Struct):
    replica_id: int32 = -1
    replica_epoch: int64 = -1


@struct
class FetchPartition(Struct):
    partition: int32
    current_leader_epoch: int32 = field(versions="9+", default=-1, ignorable=True)
    fetch_offset: int64
    last_fetched_epoch: int32 = field(versions="12+", default=-1)
    log_start_offset: int64 = field(versions="5+", default=-1, ignorable=True)
    partition_max_bytes: int32
    replica_directory_id: UUID = field(versions="17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: int64 = field(versions="18+", default=NO_HIGH_WATERMARK, tag=1, ignorable=True)


@struct
class FetchTopic(Struct):
    topic: str = field(versions="0-12", default="", ignorable=True)
    topic_id: UUID = field(versions="13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic(Struct):
    topic: str = field(versions="7-12", default="", ignorable=True)
    topic_id: UUID = field(versions="13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int32]


@request(key=1, versions="0-18", flexible="12+")
class FetchRequest(Request["FetchResponse"]):
    """Session id 0 with epoch -1: a fetch without a session (KIP-227)."""

    cluster_id: str | None = field(versions="12+", default=None, tag=0, ignorable=True)
    replica_id: int32 = field(versions="0-14", default=-1)
    replica_state: FetchReplicaState = field(
        versions="15+", default_factory=FetchReplicaState, tag=1
    )
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = field(versions="3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int8 = field(versions="4+", default=0, ignorable=True)
    session_id: int32 = field(versions="7+", default=0, ignorable=True)
    session_epoch: int32 = field(versions="7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(versions="7+", default_factory=list)
    rack_id: str = field(versions="11+", default="", ignorable=True)


@struct
class DivergingEpoch(Struct):
    """The epoch and end offset at which the log of the fetcher diverges from the leader's."""

    epoch: int32 = -1
    end_offset: int64 = -1


@struct
class SnapshotId(Struct):
    end_offset: int64 = -1
    epoch: int32 = -1


@struct
class AbortedTransaction(Struct):
    producer_id: int64
    first_offset: int64


@struct
class FetchPartitionData(Struct):
    partition_index: int32
    error_code: int16
    high_watermark: int64
    last_stable_offset: int64 = field(versions="4+", default=-1, ignorable=True)
    log_start_offset: int64 = field(versions="5+", default=-1, ignorable=True)
    diverging_epoch: DivergingEpoch = field(versions="12+", default_factory=DivergingEpoch, tag=0)
    current_leader: LeaderIdAndEpoch = field(
        versions="12+", default_factory=LeaderIdAndEpoch, tag=1
    )
    snapshot_id: SnapshotId = field(versions="12+", default_factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        versions="4+", default_factory=list, ignorable=True
    )
    preferred_read_replica: int32 = field(versions="11+", default=-1)
    records: RecordBytes | None


@struct
class FetchableTopicResponse(Struct):
    topic: str = field(versions="0-12", default="", ignorable=True)
    topic_id: UUID = field(versions="13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartitionData]


@response(key=1, versions="0-18", flexible="12+")
class FetchResponse(Response):
    decoded_in_place: ClassVar[bool] = True

    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    error_code: int16 = field(versions="7+", default=0, ignorable=True)
    session_id: int32 = field(versions="7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(versions="16+", default_factory=list, tag=0)
