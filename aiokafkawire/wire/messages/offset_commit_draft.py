"""OffsetCommit as specified before 0.8.2: with a timestamp, without generation and member.

No release speaks it: version 0 went without the time stamp, version 1 has a generation.
"""

from aiokafkawire.wire.primitives import int32, int64
from aiokafkawire.wire.schema import Message, Struct, data, struct

__all__ = ("OffsetCommitDraftPartition", "OffsetCommitDraftRequest", "OffsetCommitDraftTopic")


@struct
class OffsetCommitDraftPartition(Struct):
    """`commit_timestamp` -1: the broker uses the time at which it received the request."""

    partition_index: int32
    committed_offset: int64
    commit_timestamp: int64 = -1
    committed_metadata: str | None


@struct
class OffsetCommitDraftTopic(Struct):
    name: str
    partitions: list[OffsetCommitDraftPartition]


@data(name="OffsetCommitDraftRequest", versions="0", flexible="none")
class OffsetCommitDraftRequest(Message):
    """The response is OffsetCommitResponse v0."""

    group_id: str
    topics: list[OffsetCommitDraftTopic]
