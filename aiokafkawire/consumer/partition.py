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

from .buffer import FetchBuffer

__all__ = (
    "TRANSITIONS",
    "Ago",
    "AwaitingCommitted",
    "Broken",
    "CommittedKnown",
    "Damaged",
    "EpochEnded",
    "LeaderChanged",
    "Listed",
    "LogPoint",
    "LookupFailed",
    "OutOfRange",
    "Partition",
    "Positioned",
    "ReadReplica",
    "Refusal",
    "Refused",
    "Renewed",
    "ResetReason",
    "ResetTo",
    "Resetting",
    "SoughtTo",
    "ToCommitted",
    "Told",
    "Validating",
    "reset_point",
)

logger = logging.getLogger("aiokafkawire.consumer")

NO_OFFSET = -1


class LogPoint(IntEnum):
    """The ends of a log, as ListOffsets has them in place of a timestamp."""

    LATEST = -1
    EARLIEST = -2


@dataclass(frozen=True, slots=True)
class Ago:
    """A time before the one at which it is asked for."""

    milliseconds: int


class ResetReason(Enum):
    """Reason for looking up a position by time or end of the log."""

    SEEK = "seek"
    NOT_COMMITTED = "no committed offset"
    OUT_OF_RANGE = "offset out of range"
    TRUNCATED = "log truncated"
    RECREATED = "topic recreated"


class ReadReplica(NamedTuple):
    """The node that a leader would have a reader fetch from (KIP-392), until a time."""

    node: NodeId
    until: float


def reset_point(policy: str) -> LogPoint | Ago | None:
    """Where `auto_offset_reset` begins; None for "none"."""
    duration_ms = reset_duration_ms(policy)
    if duration_ms is not None:
        return Ago(duration_ms)
    return {"earliest": LogPoint.EARLIEST, "latest": LogPoint.LATEST}.get(policy)


# --- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class AwaitingCommitted:
    """The group's committed offset is needed; asked for from `not_before` on."""

    not_before: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Resetting:
    """The offset of a timestamp (milliseconds), or of an end of the log, is needed."""

    timestamp: int | Ago
    not_before: float = 0.0
    why: ResetReason = ResetReason.SEEK


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
class Positioned:
    """Reading. The buffer holds the position, which fits the log of `leader`, if one is known."""

    buffer: FetchBuffer
    leader: Leader | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """A broker refused something for a reason that may go away: the application has to hear it.

    It is raised once, and then `then` is tried again.
    """

    error: KafkaError
    then: AwaitingCommitted | Resetting | Validating | Positioned


@dataclass(frozen=True, slots=True, eq=False)
class Broken:
    """Reading cannot go on by itself; each call of the application raises `error`.

    `buffer` is where it had come to, if it had begun.
    """

    error: KafkaError
    buffer: FetchBuffer | None = None


State = AwaitingCommitted | Resetting | Validating | Positioned | Refused | Broken


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedKnown:
    asked: State
    offset: OffsetAndMetadata | None


@dataclass(frozen=True, slots=True)
class Listed:
    """`offset` is None if no record is that young: reading then begins at the end."""

    asked: State
    offset: int | None
    leader_epoch: int = ANY_LEADER_EPOCH
    leader: Leader | None = None


@dataclass(frozen=True, slots=True)
class LookupFailed:
    """Asking failed; the same is asked again at `again_at`, unless that cannot help."""

    asked: State
    error: KafkaError
    again_at: float


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    leader: Leader


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """Where the epoch of the fetch offset ended in the leader's log.

    `leader_epoch` is the largest epoch there up to the one asked for; both are -1 if there is none.
    """

    asked: State
    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class SoughtTo:
    offset: int
    leader_epoch: int = ANY_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ResetTo:
    timestamp: int


@dataclass(frozen=True, slots=True)
class ToCommitted:
    pass


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The log has not the offset that was fetched."""

    asked: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Damaged:
    """What was fetched cannot be read."""

    asked: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Refusal:
    """The partition cannot be read at present."""

    asked: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Told:
    """The application has heard of the refusal."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The topic was deleted and made anew: old offsets mean nothing."""


Event = (
    CommittedKnown
    | Listed
    | LookupFailed
    | LeaderChanged
    | EpochEnded
    | SoughtTo
    | ResetTo
    | ToCommitted
    | OutOfRange
    | Damaged
    | Refusal
    | Told
    | Renewed
)


class Partition:
    """One partition from its assignment to its end.

    `policy` is auto_offset_reset. `passed_over` partitions were left out by the last call for
    records, which named others. `revoked` partitions give and fetch nothing any more, and may
    still be committed. `high_watermark` and `last_stable_offset` are as the last fetch told,
    `known_end` the one of them where the log ends for this reader. `not_before` is when it may be
    fetched again after `failures` in a row, `max_bytes` a limit of its own for a message that is
    larger than the usual one, `replica` a follower to fetch from. `acknowledged` is the offset
    that the coordinator is known to keep. `fields` are the consumer's, for log lines.
    """

    __slots__ = (
        "_given",
        "_troubles",
        "acknowledged",
        "failures",
        "fields",
        "high_watermark",
        "known_end",
        "last_stable_offset",
        "max_bytes",
        "not_before",
        "passed_over",
        "paused",
        "policy",
        "replica",
        "revoked",
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
        self.passed_over = False
        self.revoked = False
        self._given: tuple[int, int] | None = None  # out of buffers that are gone
        self._troubles: dict[Partition, None] | None = None
        self.acknowledged: int | None = None
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.known_end: int | None = None
        self.not_before = 0.0
        self.failures = 0
        self.max_bytes: int | None = None
        self.replica: ReadReplica | None = None

    def handle(self, event: Event) -> None:
        """Go to the next state. An answer to a state that is over has no effect."""
        asked = getattr(event, "asked", self.state)
        # mutation: stale-response-accepted-after-seek
        if asked is not self.state:
            return
        self._given = self.given
        self.state = transition(TRANSITIONS, self.state, event)(self, self.state, event)
        if not isinstance(self.state, Positioned):
            self.max_bytes = None
        self._tell()

    def tell(self, troubles: dict[Partition, None] | None) -> None:
        """Be among `troubles` whenever the application has to hear of this partition."""
        if self._troubles is not None:
            self._troubles.pop(self, None)
        self._troubles = troubles
        self._tell()

    def _tell(self) -> None:
        if self._troubles is None:
            return
        if isinstance(self.state, Broken | Refused):
            self._troubles[self] = None
        else:
            self._troubles.pop(self, None)

    def follow(self, leader: Leader | None) -> None:
        """Have the position validated, if it is not known to fit the log of this leader."""
        state = self.state
        if not isinstance(state, Positioned | Validating) or leader is None:
            return
        if state.leader != leader:
            self.handle(LeaderChanged(leader))

    def hear(self) -> KafkaError | None:
        """What the application has to hear of this partition now, if anything."""
        state = self.state
        if self.paused or self.revoked or not isinstance(state, Broken | Refused):
            return None
        if isinstance(state, Refused):
            self.handle(Told())
        return state.error

    @property
    def buffer(self) -> FetchBuffer | None:
        """What is known of the position; it gives records only while `Positioned`."""
        state = self.state.then if isinstance(self.state, Refused) else self.state
        return None if isinstance(state, AwaitingCommitted | Resetting) else state.buffer

    @property
    def readable(self) -> FetchBuffer | None:
        """The buffer to give records from, if any may be given."""
        # mutation: paused-partition-read
        if self.paused or self.revoked or not isinstance(self.state, Positioned):
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
        position, end = self.position, self.known_end
        return None if position is None or end is None else max(end - position, 0)

    @property
    def given(self) -> tuple[int, int] | None:
        """The range of offsets that the application was given."""
        buffer = self.buffer
        now = None if buffer is None else buffer.given
        if now is None or self._given is None:
            return now or self._given
        return min(now[0], self._given[0]), max(now[1], self._given[1])

    def forget_given(self) -> None:
        """What was given was of another log."""
        self._given = None
        if self.buffer is not None:
            self.buffer.forget_given()

    def to_commit(self, asked: OffsetAndMetadata | None = None) -> OffsetAndMetadata | None:
        """What of it is processed, unless the coordinator is known to keep as much already.

        Or was `asked` to: a commit by hand may have been of more, as long as it was given.
        """
        buffer = self.buffer
        if buffer is None:
            return None
        known = self.acknowledged if asked is None else asked.offset
        # mutation: seek-back-not-committed
        if known is not None and buffer.processed <= known <= buffer.position:
            return None
        # mutation: commit-off-by-one
        return OffsetAndMetadata(buffer.processed, leader_epoch=buffer.leader_epoch)

    def read_up_to(self) -> OffsetAndMetadata | None:
        """All that was given, processed or not."""
        buffer = self.buffer
        if buffer is None:
            return None
        return OffsetAndMetadata(buffer.position, leader_epoch=buffer.leader_epoch)

    @property
    def uncommitted(self) -> bool:
        """Whether the application was given something that is not known to be committed.

        Not what it went back behind since: that it is given anew.
        """
        given, position = self.given, self.position
        if given is None or position is None:
            return False
        read = min(given[1], position)
        return self.acknowledged is None or self.acknowledged < read


def _by_policy(p: Partition, why: ResetReason, text: str) -> State:
    point = reset_point(p.policy)
    if point is not None:
        return Resetting(point, why=why)
    return Broken(
        NoOffset(
            f"{text}, and auto_offset_reset is 'none': seek to go on",
            partitions=(p.tp,),
            topic=p.tp.topic,
            partition=p.tp.partition,
            offset=p.position,
        ),
        p.buffer,
    )


def _start_at_committed(p: Partition, state: State, event: CommittedKnown) -> State:
    if event.offset is None:
        return _by_policy(p, ResetReason.NOT_COMMITTED, "nothing is committed")
    p.acknowledged = event.offset.offset
    return Positioned(FetchBuffer(event.offset.offset, event.offset.leader_epoch))


def _start_at_listed(p: Partition, state: Resetting, event: Listed) -> State:
    if event.offset is None:
        return Resetting(LogPoint.LATEST, why=state.why)
    return Positioned(FetchBuffer(event.offset, event.leader_epoch), event.leader)


def _seek(p: Partition, state: State, event: SoughtTo) -> State:
    return Positioned(FetchBuffer(event.offset, event.leader_epoch))


def _reset(p: Partition, state: State, event: ResetTo) -> State:
    return Resetting(event.timestamp)


def _ask_committed(p: Partition, state: State, event: ToCommitted) -> State:
    return AwaitingCommitted()


def _ask_again(p: Partition, state: AwaitingCommitted, event: LookupFailed) -> State:
    # mutation: reset-to-latest-after-lookup-error
    again = AwaitingCommitted(event.again_at)
    return again if event.error.retriable else Refused(event.error, again)


def _list_again(p: Partition, state: Resetting, event: LookupFailed) -> State:
    again = replace(state, not_before=event.again_at)
    return again if event.error.retriable else Refused(event.error, again)


def _validate_again(p: Partition, state: Validating, event: LookupFailed) -> State:
    if _cannot_be_asked(event.error):
        return Positioned(state.buffer, state.leader)
    again = Validating(state.buffer, state.leader, event.again_at, state.failures + 1)
    return again if event.error.retriable else Refused(event.error, again)


def _cannot_be_asked(error: KafkaError) -> bool:
    """Whether a broker does not tell a consumer where epochs end (before 2.3 only to brokers)."""
    refused = (
        isinstance(error, BrokerError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    return refused or isinstance(error, UnsupportedVersion)


def _follow(p: Partition, state: Positioned | Validating, event: LeaderChanged) -> State:
    p.replica = None
    p.not_before = 0.0
    return _doubt(state.buffer, event.leader)


def _doubt(buffer: FetchBuffer, leader: Leader) -> State:
    """Have a position validated, where that can be done."""
    if ANY_LEADER_EPOCH in {buffer.fetch_epoch, leader.epoch}:
        return Positioned(buffer, leader)
    return Validating(buffer, leader)


def _compare(p: Partition, state: Positioned | Validating, event: EpochEnded) -> State:
    """Whether the leader's log has what was fetched, as far as its epochs tell."""
    buffer, leader = state.buffer, state.leader
    if event.end_offset >= buffer.fetch_offset and event.leader_epoch != ANY_LEADER_EPOCH:
        buffer.correct_epoch(min(event.leader_epoch, buffer.fetch_epoch))
        return Positioned(buffer, leader)
    if buffer.fetch_offset > buffer.position:
        # It may be that only what was not given yet is gone.
        buffer.drop()
        return Positioned(buffer) if leader is None else _doubt(buffer, leader)
    return _truncated(p, state, event)


def _truncated(p: Partition, state: Positioned | Validating, event: EpochEnded) -> State:
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
        return Broken(error, state.buffer)
    if not known:
        logger.warning(
            "%s: %s; continuing by auto_offset_reset=%s",
            p.tp,
            what,
            p.policy,
            extra=fields_of(p.fields, tp=p.tp, offset=position),
        )
        return _by_policy(p, ResetReason.TRUNCATED, what)
    logger.warning(
        "%s: %s; continuing there",
        p.tp,
        what,
        extra=fields_of(p.fields, tp=p.tp, offset=event.end_offset),
    )
    return Positioned(FetchBuffer(event.end_offset, event.leader_epoch), state.leader)


def _out_of_range(p: Partition, state: Positioned, event: OutOfRange) -> State:
    # mutation: fetched-records-dropped-when-out-of-range
    if not state.buffer.empty:
        # What was fetched before is still given; the next fetch finds out again.
        return state
    return _by_policy(p, ResetReason.OUT_OF_RANGE, f"the log has no offset {state.buffer.position}")


def _break(p: Partition, state: Positioned, event: Damaged) -> State:
    return Broken(event.error, state.buffer)


def _refuse(p: Partition, state: Resetting | Validating | Positioned, event: Refusal) -> State:
    return Refused(event.error, replace(state))


def _try_again(p: Partition, state: Refused, event: Told) -> State:
    return state.then


def _start_over(p: Partition, state: State, event: Renewed) -> State:
    p.acknowledged = None
    p.forget_given()
    p.replica = None
    return _by_policy(p, ResetReason.RECREATED, "the topic was deleted and made anew")


TRANSITIONS: Mapping[tuple[type, type], Callable[[Partition, Any, Any], State]] = {
    **{
        (state, event): handler
        for state in (AwaitingCommitted, Resetting, Validating, Positioned, Refused, Broken)
        for event, handler in (
            (SoughtTo, _seek),
            (ResetTo, _reset),
            (ToCommitted, _ask_committed),
            (Renewed, _start_over),
        )
    },
    (AwaitingCommitted, CommittedKnown): _start_at_committed,
    (AwaitingCommitted, LookupFailed): _ask_again,
    (Resetting, Listed): _start_at_listed,
    (Resetting, LookupFailed): _list_again,
    (Resetting, Refusal): _refuse,
    (Validating, LeaderChanged): _follow,
    (Validating, EpochEnded): _compare,
    (Validating, LookupFailed): _validate_again,
    (Validating, Refusal): _refuse,
    (Positioned, LeaderChanged): _follow,
    (Positioned, EpochEnded): _compare,
    (Positioned, OutOfRange): _out_of_range,
    (Positioned, Damaged): _break,
    (Positioned, Refusal): _refuse,
    (Refused, Told): _try_again,
}
