"""One assigned partition: its position, and how the position is found and validated.

A state machine without I/O; `partition_states` has its states and events.

A position has the leader epoch of the record before it. When the leader changes, the new leader is
asked where that epoch ends in its log (KIP-320) before more records are fetched or delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from aiokafkawire.cluster.metadata import LeaderAndEpoch
from aiokafkawire.errors import (
    BrokerError,
    KafkaError,
    LogTruncated,
    NoOffsetForPartition,
    UnsupportedVersion,
)
from aiokafkawire.logs import NO_FIELDS, log_fields
from aiokafkawire.runtime.state_machine import each_of, transition
from aiokafkawire.types import NO_LEADER_EPOCH, NodeId, OffsetAndMetadata, TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode

from .fetch_buffer import FetchBuffer
from .partition_states import (
    AwaitingCommitted,
    CommittedOffsetFetched,
    CorruptionFound,
    EpochEndFetched,
    ErrorPending,
    ErrorReported,
    Event,
    Fetching,
    Halted,
    LeaderChanged,
    LookupFailed,
    OffsetListed,
    PartitionFailed,
    PositionOutOfRange,
    PositionTarget,
    ResetOffset,
    ResetReason,
    Resetting,
    Seek,
    SeekToCommitted,
    State,
    TopicRecreated,
    Validating,
    reset_target,
)

__all__ = ("TRANSITIONS", "AssignedPartition", "PreferredReadReplica", "Watermarks")

logger = logging.getLogger("aiokafkawire.consumer")

NO_OFFSET = -1


class PreferredReadReplica(NamedTuple):
    """A follower that the leader has named to fetch from (KIP-392), until a time."""

    node: NodeId
    until: float


class Watermarks(NamedTuple):
    """The ends of a log as of the last fetch; None where the broker did not say.

    Attributes:
        high: The high watermark.
        last_stable: The last stable offset.
        readable_end: The one of these two at which the log ends for this consumer.
    """

    high: int | None
    last_stable: int | None
    readable_end: int | None


UNKNOWN_WATERMARKS = Watermarks(None, None, None)


class AssignedPartition:
    """One partition, from its assignment until it is revoked.

    Attributes:
        policy: `auto_offset_reset`.
        excluded: The last call for records was limited to other partitions.
        pending_revocation: Nothing is fetched or delivered any more, but offsets may be committed.
        paused: No records are delivered until `resume`.
        committed_offset: The last offset that the coordinator has acknowledged.
        watermarks: The ends of the log as of the last fetch.
        not_before: Time of the next fetch, after `failures` in a row.
        failures: Failed fetches in a row.
        max_bytes: Fetch size for a message larger than `max_partition_fetch_bytes`.
        preferred_replica: A follower to fetch from.
        fields: Log fields of the consumer.
    """

    __slots__ = (
        "_delivered_range",
        "_failed",
        "committed_offset",
        "excluded",
        "failures",
        "fields",
        "max_bytes",
        "not_before",
        "paused",
        "pending_revocation",
        "policy",
        "preferred_replica",
        "state",
        "tp",
        "watermarks",
    )

    def __init__(
        self,
        tp: TopicPartition,
        policy: str,
        state: State,
        fields: Mapping[str, object] = NO_FIELDS,
    ) -> None:
        self.tp = tp
        self.fields = fields
        self.policy = policy
        self.state = state
        self.paused = False
        self.excluded = False
        self.pending_revocation = False
        self._delivered_range: tuple[int, int] | None = None  # from earlier buffers
        self._failed: dict[AssignedPartition, None] | None = None
        self.committed_offset: int | None = None
        self.watermarks = UNKNOWN_WATERMARKS
        self.not_before = 0.0
        self.failures = 0
        self.max_bytes: int | None = None
        self.preferred_replica: PreferredReadReplica | None = None

    def handle(self, event: Event) -> None:
        """Change the state. A response that an earlier state has requested is ignored."""
        requested_in = getattr(event, "requested_in", self.state)
        # mutation: stale-response-accepted-after-seek
        if requested_in is not self.state:
            return
        self._delivered_range = self.delivered_range
        self.state = transition(TRANSITIONS, self.state, event)(self, self.state, event)
        if not isinstance(self.state, Fetching):
            self.max_bytes = None
        self._update_failed()

    def track_failure_in(self, failed: dict[AssignedPartition, None] | None) -> None:
        """Keep this partition in `failed` while it has an error to raise."""
        if self._failed is not None:
            self._failed.pop(self, None)
        self._failed = failed
        self._update_failed()

    def _update_failed(self) -> None:
        if self._failed is None:
            return
        if isinstance(self.state, Halted | ErrorPending):
            self._failed[self] = None
        else:
            self._failed.pop(self, None)

    def update_leader(self, leader: LeaderAndEpoch | None) -> None:
        """Validate the position, unless it was validated against this leader (KIP-320)."""
        state = self.state
        if not isinstance(state, Fetching | Validating) or leader is None:
            return
        if state.leader != leader:
            self.handle(LeaderChanged(leader))

    def take_error(self) -> KafkaError | None:
        """Return the error to raise for this partition now, if any; a pending one only once."""
        state = self.state
        if self.paused or self.pending_revocation or not isinstance(state, Halted | ErrorPending):
            return None
        if isinstance(state, ErrorPending):
            self.handle(ErrorReported())
        return state.error

    @property
    def buffer(self) -> FetchBuffer | None:
        """The buffer with the position. Records are delivered in state `Fetching` only."""
        state = self.state.resume_state if isinstance(self.state, ErrorPending) else self.state
        return None if isinstance(state, AwaitingCommitted | Resetting) else state.buffer

    @property
    def readable_buffer(self) -> FetchBuffer | None:
        """The buffer, if its records may be delivered now."""
        # mutation: paused-partition-read
        if self.paused or self.pending_revocation or not isinstance(self.state, Fetching):
            return None
        return self.state.buffer

    @property
    def position(self) -> int | None:
        """The offset of the next record to deliver, once it is known."""
        buffer = self.buffer
        return None if buffer is None else buffer.position

    @property
    def lag(self) -> int | None:
        """Distance of the position from the end as of the last fetch, if both are known."""
        position, end = self.position, self.watermarks.readable_end
        return None if position is None or end is None else max(end - position, 0)

    @property
    def delivered_range(self) -> tuple[int, int] | None:
        """The range of offsets delivered since the assignment: first, and one past the last."""
        buffer = self.buffer
        now = None if buffer is None else buffer.delivered_range
        if now is None or self._delivered_range is None:
            return now or self._delivered_range
        return min(now[0], self._delivered_range[0]), max(now[1], self._delivered_range[1])

    def clear_delivered_range(self) -> None:
        """Forget which offsets were delivered, because the topic was recreated."""
        self._delivered_range = None
        if self.buffer is not None:
            self.buffer.clear_delivered_range()

    def offset_to_commit(
        self, pending: OffsetAndMetadata | None = None
    ) -> OffsetAndMetadata | None:
        """Return the offset after the processed records, unless it is committed already.

        `pending` is an offset whose commit has no response yet. A manual commit may be ahead of the
        processed records, but not of the delivered ones.
        """
        buffer = self.buffer
        if buffer is None:
            return None
        known = self.committed_offset if pending is None else pending.offset
        # mutation: seek-back-not-committed
        if known is not None and buffer.processed_offset <= known <= buffer.position:
            return None
        # mutation: commit-off-by-one
        return OffsetAndMetadata(buffer.processed_offset, leader_epoch=buffer.leader_epoch)

    def delivered_offset(self) -> OffsetAndMetadata | None:
        """Return the offset after all delivered records, unless it is committed already."""
        buffer = self.buffer
        if buffer is None or buffer.position == self.committed_offset:
            return None
        return OffsetAndMetadata(buffer.position, leader_epoch=buffer.leader_epoch)

    @property
    def has_uncommitted(self) -> bool:
        """True if delivered records are not committed.

        Records after the position do not count: after a seek backwards they are delivered again.
        """
        delivered, position = self.delivered_range, self.position
        if delivered is None or position is None:
            return False
        read = min(delivered[1], position)
        return self.committed_offset is None or self.committed_offset < read


def _apply_reset_policy(partition: AssignedPartition, reason: ResetReason, cause: str) -> State:
    target = reset_target(partition.policy)
    if target is not None:
        return Resetting(target, reason=reason)
    return Halted(
        NoOffsetForPartition(
            f"{cause}, and auto_offset_reset is 'none'; seek to continue",
            partitions=(partition.tp,),
            topic=partition.tp.topic,
            partition=partition.tp.partition,
            offset=partition.position,
        ),
        partition.buffer,
    )


def _start_at_committed(
    partition: AssignedPartition, state: State, event: CommittedOffsetFetched
) -> State:
    if event.offset is None:
        return _apply_reset_policy(partition, ResetReason.NOT_COMMITTED, "no offset is committed")
    partition.committed_offset = event.offset.offset
    return Fetching(FetchBuffer(event.offset.offset, event.offset.leader_epoch))


def _start_at_listed(partition: AssignedPartition, state: Resetting, event: OffsetListed) -> State:
    if event.offset is None:
        return Resetting(PositionTarget.LATEST, reason=state.reason)
    return Fetching(FetchBuffer(event.offset, event.leader_epoch), event.leader)


def _on_seek(partition: AssignedPartition, state: State, event: Seek) -> State:
    return Fetching(FetchBuffer(event.offset, event.leader_epoch))


def _on_reset(partition: AssignedPartition, state: State, event: ResetOffset) -> State:
    return Resetting(event.timestamp)


def _on_seek_to_committed(
    partition: AssignedPartition, state: State, event: SeekToCommitted
) -> State:
    return AwaitingCommitted()


def _retry_committed(
    partition: AssignedPartition, state: AwaitingCommitted, event: LookupFailed
) -> State:
    # mutation: reset-to-latest-after-lookup-error
    retry_state = AwaitingCommitted(event.retry_at)
    return retry_state if event.error.retriable else ErrorPending(event.error, retry_state)


def _retry_reset(partition: AssignedPartition, state: Resetting, event: LookupFailed) -> State:
    retry_state = replace(state, not_before=event.retry_at)
    return retry_state if event.error.retriable else ErrorPending(event.error, retry_state)


def _retry_validation(
    partition: AssignedPartition, state: Validating, event: LookupFailed
) -> State:
    if _is_validation_unsupported(event.error):
        return Fetching(state.buffer, state.leader)
    retry_state = Validating(state.buffer, state.leader, event.retry_at, state.failures + 1)
    return retry_state if event.error.retriable else ErrorPending(event.error, retry_state)


def _is_validation_unsupported(error: KafkaError) -> bool:
    """Return whether the broker lacks OffsetForLeaderEpoch for consumers (before 2.3)."""
    refused = (
        isinstance(error, BrokerError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    return refused or isinstance(error, UnsupportedVersion)


def _on_leader_changed(
    partition: AssignedPartition, state: Fetching | Validating, event: LeaderChanged
) -> State:
    partition.preferred_replica = None
    partition.not_before = 0.0
    return _validate_if_possible(state.buffer, event.leader)


def _validate_if_possible(buffer: FetchBuffer, leader: LeaderAndEpoch) -> State:
    """Return `Validating` if both epochs are known, else `Fetching`."""
    if NO_LEADER_EPOCH in {buffer.last_fetched_epoch, leader.epoch}:
        return Fetching(buffer, leader)
    return Validating(buffer, leader)


def _compare_epoch_end(
    partition: AssignedPartition, state: Fetching | Validating, event: EpochEndFetched
) -> State:
    """Compare the fetch offset with the end of its epoch in the leader's log."""
    buffer, leader = state.buffer, state.leader
    if event.end_offset >= buffer.fetch_offset and event.leader_epoch != NO_LEADER_EPOCH:
        buffer.correct_epoch(min(event.leader_epoch, buffer.last_fetched_epoch))
        return Fetching(buffer, leader)
    if buffer.fetch_offset > buffer.position:
        # Perhaps only undelivered records were truncated: fetch them again.
        buffer.discard()
        return Fetching(buffer) if leader is None else _validate_if_possible(buffer, leader)
    return _on_truncated(partition, state, event)


def _on_truncated(
    partition: AssignedPartition, state: Fetching | Validating, event: EpochEndFetched
) -> State:
    position = state.buffer.position
    known = NO_OFFSET not in {event.end_offset, event.leader_epoch}
    description = (
        f"the log was truncated: the leader has different records before offset {position}"
    )
    if known:
        description += f", from {event.end_offset} on"
    if partition.policy == "none":
        error = LogTruncated(
            f"{description}, and auto_offset_reset is 'none'; seek to continue",
            topic=partition.tp.topic,
            partition=partition.tp.partition,
            offset=position,
            diverging_offset=event.end_offset if known else None,
            leader_epoch=event.leader_epoch if known else None,
        )
        return Halted(error, state.buffer)
    if not known:
        logger.warning(
            "%s: %s; continuing by auto_offset_reset=%s",
            partition.tp,
            description,
            partition.policy,
            extra=log_fields(partition.fields, tp=partition.tp, offset=position),
        )
        return _apply_reset_policy(partition, ResetReason.TRUNCATED, description)
    logger.warning(
        "%s: %s; continuing there",
        partition.tp,
        description,
        extra=log_fields(partition.fields, tp=partition.tp, offset=event.end_offset),
    )
    return Fetching(FetchBuffer(event.end_offset, event.leader_epoch), state.leader)


def _on_out_of_range(
    partition: AssignedPartition, state: Fetching, event: PositionOutOfRange
) -> State:
    # mutation: fetched-records-dropped-when-out-of-range
    if not state.buffer.is_empty:
        # Buffered records are delivered first; the next fetch fails again.
        return state
    return _apply_reset_policy(
        partition, ResetReason.OUT_OF_RANGE, f"the log has no offset {state.buffer.position}"
    )


def _halt(partition: AssignedPartition, state: Fetching, event: CorruptionFound) -> State:
    return Halted(event.error, state.buffer)


def _hold_error(
    partition: AssignedPartition, state: Resetting | Validating | Fetching, event: PartitionFailed
) -> State:
    return ErrorPending(event.error, replace(state))


def _resume(partition: AssignedPartition, state: ErrorPending, event: ErrorReported) -> State:
    return state.resume_state


def _on_topic_recreated(partition: AssignedPartition, state: State, event: TopicRecreated) -> State:
    partition.committed_offset = None
    partition.clear_delivered_range()
    partition.preferred_replica = None
    return _apply_reset_policy(
        partition, ResetReason.RECREATED, "the topic was deleted and created again"
    )


TRANSITIONS: Mapping[tuple[type, type], Callable[[AssignedPartition, Any, Any], State]] = {
    **each_of(
        (AwaitingCommitted, Resetting, Validating, Fetching, ErrorPending, Halted),
        {
            Seek: _on_seek,
            ResetOffset: _on_reset,
            SeekToCommitted: _on_seek_to_committed,
            TopicRecreated: _on_topic_recreated,
        },
    ),
    (AwaitingCommitted, CommittedOffsetFetched): _start_at_committed,
    (AwaitingCommitted, LookupFailed): _retry_committed,
    (Resetting, OffsetListed): _start_at_listed,
    (Resetting, LookupFailed): _retry_reset,
    (Resetting, PartitionFailed): _hold_error,
    (Validating, LeaderChanged): _on_leader_changed,
    (Validating, EpochEndFetched): _compare_epoch_end,
    (Validating, LookupFailed): _retry_validation,
    (Validating, PartitionFailed): _hold_error,
    (Fetching, LeaderChanged): _on_leader_changed,
    (Fetching, EpochEndFetched): _compare_epoch_end,
    (Fetching, PositionOutOfRange): _on_out_of_range,
    (Fetching, CorruptionFound): _halt,
    (Fetching, PartitionFailed): _hold_error,
    (ErrorPending, ErrorReported): _resume,
}
