"""Requests about a group, with defaults for the fields that most tests do not vary."""

from __future__ import annotations

from aiokafkawire.wire.messages import join_group, offset_commit, offset_fetch, sync_group
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest

__all__ = ["commit", "heartbeat", "join", "offset_fetch_request", "sync"]


def join(
    member_id: str = "",
    *,
    group: str = "g",
    session_ms: int = 10_000,
    metadata: bytes = b"",
    protocol_type: str = "consumer",
    instance_id: str | None = None,
) -> join_group.JoinGroupRequest:
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def sync(
    member_id: str = "m", generation: int = 1, **assignments: bytes
) -> sync_group.SyncGroupRequest:
    return sync_group.SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            sync_group.SyncGroupRequestAssignment(member_id=member, assignment=data)
            for member, data in assignments.items()
        ],
    )


def heartbeat(member_id: str = "m", generation: int = 1, group: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)


def commit(*topics: str) -> offset_commit.OffsetCommitRequest:
    """Commit offset 5 of the first partition of each topic, without a member."""
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    return offset_commit.OffsetCommitRequest(
        group_id="g",
        topics=[
            offset_commit.OffsetCommitRequestTopic(name=name, partitions=[partition])
            for name in topics
        ],
    )


def offset_fetch_request(*topics: str) -> offset_fetch.OffsetFetchRequest:
    return offset_fetch.OffsetFetchRequest(
        group_id="g",
        topics=[
            offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0])
            for name in topics
        ],
    )
