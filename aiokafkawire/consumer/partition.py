"""One assigned partition: where reading stands, and how a position is found.

A machine without I/O. An answer names the state that asked for it (`asked`), so that one that comes
after a seek or another reset is told from the one that is waited for.

A position bears the leader epoch of the record before it. When another leader is known, the leader
is asked where that epoch ended in its log (KIP-320) before anything more is fetched or given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from aiokafkawire.cluster.metadata import Leader
from aiokafkawire.config import reset_duration_ms
from aiokafkawire.errors import (
    BrokerError,
    KafkaError,
    LogTruncated,
    NoOffset,
    UnsupportedVersion,
)
from aiokafkawire.logs import NO_FIELDS, fields_of
from aiokafkawire.runtime.transitions import transition
from aiokafkawire.types import ANY_LEADER_EPOCH, NodeId, OffsetAndMetadata, TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode

from .fetch_buffer import FetchBuffer

__all__ = (
    "TRANSITIONS",
    "AssignedPartition",
    "AwaitingCommitted",
    "BeforeNow",
    "CommittedOffsetFetched",
    "CorruptionFound",
    "EpochEndFetched",
    "ErrorPending",
    "ErrorReported",
    "Fetching",
    "Halted",
    "LeaderChanged",
    "LookupFailed",
    "OffsetListed",
    "OffsetOutOfRange",
    "OffsetSpec",
    "PartitionFailed",
    "PreferredReadReplica",
    "ResetOffset",
    "ResetReason",
    "Resetting",
    "Seek",
    "SeekToCommitted",
    "TopicRecreated",
    "Validating",
    "reset_target",
)

logger = logging.getLogger("aiokafkawire.consumer")

NO_OFFSET = -1


class OffsetSpec(IntEnum):
    """The ends of a log, as ListOffsets has them in place of a timestamp."""

    LATEST = -1
    EARLIEST = -2


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """A time before the one at which it is asked for."""

    milliseconds: int


class ResetReason(Enum):
    """Reason for looking up a position by time or end of the log."""

    SEEK = "seek"
    NOT_COMMITTED = "no committed offset"
    OUT_OF_RANGE = "offset out of range"
    TRUNCATED = "log truncated"
    RECREATED = "topic recreated"


class PreferredReadReplica(NamedTuple):
    """The node that a leader would have a reader fetch from (KIP-392), until a time."""

    node: NodeId
    until: float


def reset_target(policy: str) -> OffsetSpec | BeforeNow | None:
    """Where `auto_offset_reset` begins; None for "none"."""
    duration_ms = reset_duration_ms(policy)
    if duration_ms is not None:
        return BeforeNow(duration_ms)
    return {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}.get(policy)


# --- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class AwaitingCommitted:
    """The group's committed offset is needed; asked for from `not_before` on."""

    not_before: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Resetting:
    """The offset of a timestamp (milliseconds), or of an end of the log, is needed."""

    timestamp: int | BeforeNow
    not_before: float = 0.0
    reason: ResetReason = ResetReason.SEEK


@dataclass(frozen=True, slots=True, eq=False)
class Validating:
    """Whether `leader` has what was read up to here is to be found out; nothing is given.

    `failures` counts how often that was tried in vain.
    """

    buffer: FetchBuffer
    leader: Leader
    not_before: float = 0.0
    failures: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Fetching:
    """Reading. The buffer holds the position, which fits the log of `leader`, if one is known."""

    buffer: FetchBuffer
    leader: Leader | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ErrorPending:
    """A broker refused something for a reason that may go away: the application has to hear it.

    It is raised once, and then `resume_state` is tried again.
    """

    error: KafkaError
    resume_state: AwaitingCommitted | Resetting | Validating | Fetching


@dataclass(frozen=True, slots=True, eq=False)
class Halted:
    """Reading cannot go on by itself; each call of the application raises `error`.

    `buffer` is where it had come to, if it had begun.
    """

    error: KafkaError
    buffer: FetchBuffer | None = None


State = AwaitingCommitted | Resetting | Validating | Fetching | ErrorPending | Halted


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedOffsetFetched:
    asked: State
    offset: OffsetAndMetadata | None


@dataclass(frozen=True, slots=True)
class OffsetListed:
    """`offset` is None if no record is that young: reading then begins at the end."""

    asked: State
    offset: int | None
    leader_epoch: int = ANY_LEADER_EPOCH
    leader: Leader | None = None


@dataclass(frozen=True, slots=True)
class LookupFailed:
    """Asking failed; the same is asked again at `retry_at`, unless that cannot help."""

    asked: State
    error: KafkaError
    retry_at: float


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    leader: Leader


@dataclass(frozen=True, slots=True)
class EpochEndFetched:
    """Where the epoch of the fetch offset ended in the leader's log.

    `leader_epoch` is the largest epoch there up to the one asked for; both are -1 if there is none.
    """

    asked: State
    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Seek:
    offset: int
    leader_epoch: int = ANY_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ResetOffset:
    timestamp: int


@dataclass(frozen=True, slots=True)
class SeekToCommitted:
    pass


@dataclass(frozen=True, slots=True)
class OffsetOutOfRange:
    """The log has not the offset that was fetched."""

    asked: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class CorruptionFound:
    """What was fetched cannot be read."""

    asked: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class PartitionFailed:
    """The partition cannot be read at present."""

    asked: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """The application has heard of the refusal."""


@dataclass(frozen=True, slots=True)
class TopicRecreated:
    """The topic was deleted and made anew: old offsets mean nothing."""


Event = (
    CommittedOffsetFetched
    | OffsetListed
    | LookupFailed
    | LeaderChanged
    | EpochEndFetched
    | Seek
    | ResetOffset
    | SeekToCommitted
    | OffsetOutOfRange
    | CorruptionFound
    | PartitionFailed
    | ErrorReported
    | TopicRecreated
)


class AssignedPartition:
    """One partition from its assignment to its end.

    `policy` is auto_offset_reset. `excluded` partitions were left out by the last call for
    records, which named others. `pending_revocation` partitions give and fetch nothing any more,
    and may still be committed. `high_watermark` and `last_stable_offset` are as the last fetch
    told, `readable_end` the one of them where the log ends for this reader. `not_before` is when it
    may be fetched again after `failures` in a row, `max_bytes` a limit of its own for a message
    that is larger than the usual one, `preferred_replica` a follower to fetch from. `committed` is
    the offset that the coordinator is known to keep. `fields` are the consumer's, for log lines.
    """

    __slots__ = (
        "_delivered",
        "_failed",
        "committed",
        "excluded",
        "failures",
        "fields",
        "high_watermark",
        "last_stable_offset",
        "max_bytes",
        "not_before",
        "paused",
        "pending_revocation",
        "policy",
        "preferred_replica",
        "readable_end",
        "state",
        "tp",
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
        self._delivered: tuple[int, int] | None = None  # out of buffers that are gone
        self._failed: dict[AssignedPartition, None] | None = None
        self.committed: int | None = None
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.readable_end: int | None = None
        self.not_before = 0.0
        self.failures = 0
        self.max_bytes: int | None = None
        self.preferred_replica: PreferredReadReplica | None = None

    def handle(self, event: Event) -> None:
        """Go to the next state. An answer to a state that is over has no effect."""
        asked = getattr(event, "asked", self.state)
        # mutation: stale-response-accepted-after-seek
        if asked is not self.state:
            return
        self._delivered = self.delivered
        self.state = transition(TRANSITIONS, self.state, event)(self, self.state, event)
        if not isinstance(self.state, Fetching):
            self.max_bytes = None
        self._update_failed()

    def track_failure_in(self, failed: dict[AssignedPartition, None] | None) -> None:
        """Be among `failed` whenever the application has to hear of this partition."""
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

    def update_leader(self, leader: Leader | None) -> None:
        """Have the position validated, if it is not known to fit the log of this leader."""
        state = self.state
        if not isinstance(state, Fetching | Validating) or leader is None:
            return
        if state.leader != leader:
            self.handle(LeaderChanged(leader))

    def take_error(self) -> KafkaError | None:
        """What the application has to hear of this partition now, if anything."""
        state = self.state
        if self.paused or self.pending_revocation or not isinstance(state, Halted | ErrorPending):
            return None
        if isinstance(state, ErrorPending):
            self.handle(ErrorReported())
        return state.error

    @property
    def buffer(self) -> FetchBuffer | None:
        """What is known of the position; it gives records only while `Fetching`."""
        state = self.state.resume_state if isinstance(self.state, ErrorPending) else self.state
        return None if isinstance(state, AwaitingCommitted | Resetting) else state.buffer

    @property
    def readable(self) -> FetchBuffer | None:
        """The buffer to give records from, if any may be given."""
        # mutation: paused-partition-read
        if self.paused or self.pending_revocation or not isinstance(self.state, Fetching):
            return None
        return self.state.buffer

    @property
    def position(self) -> int | None:
        """The offset of the next record to give, once it is known."""
        buffer = self.buffer
        return None if buffer is None else buffer.position

    @property
    def lag(self) -> int | None:
        """How far the position is behind the end as of the last fetch, if both are known."""
        position, end = self.position, self.readable_end
        return None if position is None or end is None else max(end - position, 0)

    @property
    def delivered(self) -> tuple[int, int] | None:
        """The range of offsets that the application was given."""
        buffer = self.buffer
        now = None if buffer is None else buffer.delivered
        if now is None or self._delivered is None:
            return now or self._delivered
        return min(now[0], self._delivered[0]), max(now[1], self._delivered[1])

    def forget_delivered(self) -> None:
        """What was given was of another log."""
        self._delivered = None
        if self.buffer is not None:
            self.buffer.forget_delivered()

    def offset_to_commit(self, asked: OffsetAndMetadata | None = None) -> OffsetAndMetadata | None:
        """What of it is processed, unless the coordinator is known to keep as much already.

        Or was `asked` to: a commit by hand may have been of more, as long as it was given.
        """
        buffer = self.buffer
        if buffer is None:
            return None
        known = self.committed if asked is None else asked.offset
        # mutation: seek-back-not-committed
        if known is not None and buffer.processed <= known <= buffer.position:
            return None
        # mutation: commit-off-by-one
        return OffsetAndMetadata(buffer.processed, leader_epoch=buffer.leader_epoch)

    def delivered_offset(self) -> OffsetAndMetadata | None:
        """All that was given, processed or not."""
        buffer = self.buffer
        if buffer is None:
            return None
        return OffsetAndMetadata(buffer.position, leader_epoch=buffer.leader_epoch)

    @property
    def has_uncommitted(self) -> bool:
        """Whether the application was given something that is not known to be committed.

        Not what it went back behind since: that it is given anew.
        """
        given, position = self.delivered, self.position
        if given is None or position is None:
            return False
        read = min(given[1], position)
        return self.committed is None or self.committed < read


def _apply_reset_policy(p: AssignedPartition, reason: ResetReason, text: str) -> State:
    point = reset_target(p.policy)
    if point is not None:
        return Resetting(point, reason=reason)
    return Halted(
        NoOffset(
            f"{text}, and auto_offset_reset is 'none': seek to go on",
            partitions=(p.tp,),
            topic=p.tp.topic,
            partition=p.tp.partition,
            offset=p.position,
        ),
        p.buffer,
    )


def _start_at_committed(p: AssignedPartition, state: State, event: CommittedOffsetFetched) -> State:
    if event.offset is None:
        return _apply_reset_policy(p, ResetReason.NOT_COMMITTED, "nothing is committed")
    p.committed = event.offset.offset
    return Fetching(FetchBuffer(event.offset.offset, event.offset.leader_epoch))


def _start_at_listed(p: AssignedPartition, state: Resetting, event: OffsetListed) -> State:
    if event.offset is None:
        return Resetting(OffsetSpec.LATEST, reason=state.reason)
    return Fetching(FetchBuffer(event.offset, event.leader_epoch), event.leader)


def _on_seek(p: AssignedPartition, state: State, event: Seek) -> State:
    return Fetching(FetchBuffer(event.offset, event.leader_epoch))


def _on_reset(p: AssignedPartition, state: State, event: ResetOffset) -> State:
    return Resetting(event.timestamp)


def _on_seek_to_committed(p: AssignedPartition, state: State, event: SeekToCommitted) -> State:
    return AwaitingCommitted()


def _retry_committed(p: AssignedPartition, state: AwaitingCommitted, event: LookupFailed) -> State:
    # mutation: reset-to-latest-after-lookup-error
    again = AwaitingCommitted(event.retry_at)
    return again if event.error.retriable else ErrorPending(event.error, again)


def _retry_reset(p: AssignedPartition, state: Resetting, event: LookupFailed) -> State:
    again = replace(state, not_before=event.retry_at)
    return again if event.error.retriable else ErrorPending(event.error, again)


def _retry_validation(p: AssignedPartition, state: Validating, event: LookupFailed) -> State:
    if _is_validation_unsupported(event.error):
        return Fetching(state.buffer, state.leader)
    again = Validating(state.buffer, state.leader, event.retry_at, state.failures + 1)
    return again if event.error.retriable else ErrorPending(event.error, again)


def _is_validation_unsupported(error: KafkaError) -> bool:
    """Whether a broker does not tell a consumer where epochs end (before 2.3 only to brokers)."""
    refused = (
        isinstance(error, BrokerError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    return refused or isinstance(error, UnsupportedVersion)


def _on_leader_changed(
    p: AssignedPartition, state: Fetching | Validating, event: LeaderChanged
) -> State:
    p.preferred_replica = None
    p.not_before = 0.0
    return _validate_if_possible(state.buffer, event.leader)


def _validate_if_possible(buffer: FetchBuffer, leader: Leader) -> State:
    """Have a position validated, where that can be done."""
    if ANY_LEADER_EPOCH in {buffer.fetch_epoch, leader.epoch}:
        return Fetching(buffer, leader)
    return Validating(buffer, leader)


def _compare_epoch_end(
    p: AssignedPartition, state: Fetching | Validating, event: EpochEndFetched
) -> State:
    """Whether the leader's log has what was fetched, as far as its epochs tell."""
    buffer, leader = state.buffer, state.leader
    if event.end_offset >= buffer.fetch_offset and event.leader_epoch != ANY_LEADER_EPOCH:
        buffer.correct_epoch(min(event.leader_epoch, buffer.fetch_epoch))
        return Fetching(buffer, leader)
    if buffer.fetch_offset > buffer.position:
        # It may be that only what was not given yet is gone.
        buffer.discard()
        return Fetching(buffer) if leader is None else _validate_if_possible(buffer, leader)
    return _on_truncated(p, state, event)


def _on_truncated(
    p: AssignedPartition, state: Fetching | Validating, event: EpochEndFetched
) -> State:
    position = state.buffer.position
    known = NO_OFFSET not in {event.end_offset, event.leader_epoch}
    what = f"the log was cut: its leader has other records before offset {position}"
    if known:
        what += f", from {event.end_offset} on"
    if p.policy == "none":
        error = LogTruncated(
            f"{what}, and auto_offset_reset is 'none': seek to go on",
            topic=p.tp.topic,
            partition=p.tp.partition,
            offset=position,
            diverging_offset=event.end_offset if known else None,
            leader_epoch=event.leader_epoch if known else None,
        )
        return Halted(error, state.buffer)
    if not known:
        logger.warning(
            "%s: %s; continuing by auto_offset_reset=%s",
            p.tp,
            what,
            p.policy,
            extra=fields_of(p.fields, tp=p.tp, offset=position),
        )
        return _apply_reset_policy(p, ResetReason.TRUNCATED, what)
    logger.warning(
        "%s: %s; continuing there",
        p.tp,
        what,
        extra=fields_of(p.fields, tp=p.tp, offset=event.end_offset),
    )
    return Fetching(FetchBuffer(event.end_offset, event.leader_epoch), state.leader)


def _on_out_of_range(p: AssignedPartition, state: Fetching, event: OffsetOutOfRange) -> State:
    # mutation: fetched-records-dropped-when-out-of-range
    if not state.buffer.empty:
        # What was fetched before is still given; the next fetch finds out again.
        return state
    return _apply_reset_policy(
        p, ResetReason.OUT_OF_RANGE, f"the log has no offset {state.buffer.position}"
    )


def _halt(p: AssignedPartition, state: Fetching, event: CorruptionFound) -> State:
    return Halted(event.error, state.buffer)


def _hold_error(
    p: AssignedPartition, state: Resetting | Validating | Fetching, event: PartitionFailed
) -> State:
    return ErrorPending(event.error, replace(state))


def _resume(p: AssignedPartition, state: ErrorPending, event: ErrorReported) -> State:
    return state.resume_state


def _restart(p: AssignedPartition, state: State, event: TopicRecreated) -> State:
    p.committed = None
    p.forget_delivered()
    p.preferred_replica = None
    return _apply_reset_policy(p, ResetReason.RECREATED, "the topic was deleted and made anew")


TRANSITIONS: Mapping[tuple[type, type], Callable[[AssignedPartition, Any, Any], State]] = {
    **{
        (state, event): handler
        for state in (AwaitingCommitted, Resetting, Validating, Fetching, ErrorPending, Halted)
        for event, handler in (
            (Seek, _on_seek),
            (ResetOffset, _on_reset),
            (SeekToCommitted, _on_seek_to_committed),
            (TopicRecreated, _restart),
        )
    },
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
    (Fetching, OffsetOutOfRange): _on_out_of_range,
    (Fetching, CorruptionFound): _halt,
    (Fetching, PartitionFailed): _hold_error,
    (ErrorPending, ErrorReported): _resume,
}
