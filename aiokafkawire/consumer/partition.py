"""One assigned partition: where reading stands, and how a position is found.

A machine without I/O. An answer names the state that asked for it (`asked`), so that one that comes
after a seek or another reset is told from the one that is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from aiokafkawire.errors import KafkaError, NoOffset
from aiokafkawire.types import ANY_LEADER_EPOCH, OffsetAndMetadata, TopicPartition

from .buffer import FetchBuffer

__all__ = (
    "TRANSITIONS",
    "AwaitingCommitted",
    "Broken",
    "CommittedKnown",
    "Damaged",
    "Listed",
    "LogPoint",
    "LookupFailed",
    "OutOfRange",
    "Partition",
    "Positioned",
    "Renewed",
    "ResetTo",
    "Resetting",
    "SoughtTo",
    "ToCommitted",
    "reset_point",
)


class LogPoint(IntEnum):
    """The ends of a log, as ListOffsets has them in place of a timestamp."""

    LATEST = -1
    EARLIEST = -2


def reset_point(policy: str) -> LogPoint | None:
    """Where `auto_offset_reset` begins; None for "none"."""
    return {"earliest": LogPoint.EARLIEST, "latest": LogPoint.LATEST}.get(policy)


# --- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class AwaitingCommitted:
    """The group's committed offset is needed; asked for from `not_before` on."""

    not_before: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Resetting:
    """The offset of a timestamp (milliseconds), or of an end of the log, is needed."""

    timestamp: int
    not_before: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Positioned:
    """Reading. The buffer holds the position."""

    buffer: FetchBuffer


@dataclass(frozen=True, slots=True, eq=False)
class Broken:
    """Reading cannot go on by itself; each call of the application raises `error`.

    `buffer` is where it had come to, if it had begun.
    """

    error: KafkaError
    buffer: FetchBuffer | None = None


State = AwaitingCommitted | Resetting | Positioned | Broken


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


@dataclass(frozen=True, slots=True)
class LookupFailed:
    """Asking for the offset failed; if that passes, it is asked for again at `again_at`."""

    asked: State
    error: KafkaError
    again_at: float


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
class Renewed:
    """The topic was deleted and made anew: old offsets mean nothing."""


Event = (
    CommittedKnown
    | Listed
    | LookupFailed
    | SoughtTo
    | ResetTo
    | ToCommitted
    | OutOfRange
    | Damaged
    | Renewed
)


class Partition:
    """One partition from its assignment to its end.

    `policy` is auto_offset_reset. `revoked` partitions give and fetch nothing any more, and may
    still be committed. `high_watermark` is where the log ended for this reader at the last fetch,
    `not_before` when it may be fetched again after a failure, `max_bytes` a limit of its own for a
    message that is larger than the usual one. `given` is the range of offsets that the application
    was given, `acknowledged` the offset that the coordinator is known to keep.
    """

    __slots__ = (
        "acknowledged",
        "given",
        "high_watermark",
        "max_bytes",
        "not_before",
        "paused",
        "policy",
        "revoked",
        "state",
        "tp",
    )

    def __init__(self, tp: TopicPartition, policy: str, state: State) -> None:
        self.tp = tp
        self.policy = policy
        self.state = state
        self.paused = False
        self.revoked = False
        self.given: tuple[int, int] | None = None
        self.acknowledged: int | None = None
        self.high_watermark: int | None = None
        self.not_before = 0.0
        self.max_bytes: int | None = None

    def handle(self, event: Event) -> None:
        """Go to the next state. An answer to a state that is over has no effect."""
        asked = getattr(event, "asked", self.state)
        if asked is not self.state:
            return
        self.state = TRANSITIONS[type(self.state), type(event)](self, self.state, event)
        if not isinstance(self.state, Positioned):
            self.max_bytes = None

    @property
    def buffer(self) -> FetchBuffer | None:
        """What is known of the position; it gives records only while `Positioned`."""
        return self.state.buffer if isinstance(self.state, Positioned | Broken) else None

    @property
    def readable(self) -> FetchBuffer | None:
        """The buffer to give records from, if any may be given."""
        if self.paused or self.revoked or not isinstance(self.state, Positioned):
            return None
        return self.state.buffer

    @property
    def position(self) -> int | None:
        """The offset of the next record to give, once it is known."""
        buffer = self.buffer
        return None if buffer is None else buffer.position

    def gave(self, first: int, next_offset: int) -> None:
        """Note what the application was given."""
        low, high = self.given or (first, next_offset)
        self.given = min(low, first), max(high, next_offset)

    def to_commit(self) -> OffsetAndMetadata | None:
        """What of it is processed, unless the coordinator is known to keep it already."""
        buffer = self.buffer
        if buffer is None or buffer.processed == self.acknowledged:
            return None
        return OffsetAndMetadata(buffer.processed, leader_epoch=buffer.leader_epoch)

    def read_up_to(self) -> OffsetAndMetadata | None:
        """All that was given, processed or not."""
        buffer = self.buffer
        if buffer is None:
            return None
        return OffsetAndMetadata(buffer.position, leader_epoch=buffer.leader_epoch)

    @property
    def uncommitted(self) -> bool:
        """Whether the application was given something that is not known to be committed."""
        if self.given is None:
            return False
        return self.acknowledged is None or self.acknowledged < self.given[1]


def _by_policy(p: Partition, why: str) -> State:
    point = reset_point(p.policy)
    if point is not None:
        return Resetting(point)
    return Broken(
        NoOffset(
            f"{why}, and auto_offset_reset is 'none': seek to go on",
            partitions=(p.tp,),
            topic=p.tp.topic,
            partition=p.tp.partition,
            offset=p.position,
        ),
        p.buffer,
    )


def _start_at_committed(p: Partition, state: State, event: CommittedKnown) -> State:
    if event.offset is None:
        return _by_policy(p, "nothing is committed")
    p.acknowledged = event.offset.offset
    return Positioned(FetchBuffer(event.offset.offset, event.offset.leader_epoch))


def _start_at_listed(p: Partition, state: Resetting, event: Listed) -> State:
    if event.offset is None:
        return Resetting(LogPoint.LATEST)
    return Positioned(FetchBuffer(event.offset, event.leader_epoch))


def _seek(p: Partition, state: State, event: SoughtTo) -> State:
    return Positioned(FetchBuffer(event.offset, event.leader_epoch))


def _reset(p: Partition, state: State, event: ResetTo) -> State:
    return Resetting(event.timestamp)


def _ask_committed(p: Partition, state: State, event: ToCommitted) -> State:
    return AwaitingCommitted()


def _ask_again(p: Partition, state: AwaitingCommitted, event: LookupFailed) -> State:
    if event.error.retriable:
        return AwaitingCommitted(event.again_at)
    return Broken(event.error)


def _list_again(p: Partition, state: Resetting, event: LookupFailed) -> State:
    if event.error.retriable:
        return Resetting(state.timestamp, event.again_at)
    return Broken(event.error)


def _out_of_range(p: Partition, state: Positioned, event: OutOfRange) -> State:
    if not state.buffer.empty:
        # What was fetched before is still given; the next fetch finds out again.
        return state
    return _by_policy(p, f"the log has no offset {state.buffer.position}")


def _break(p: Partition, state: Positioned, event: Damaged) -> State:
    return Broken(event.error, state.buffer)


def _start_over(p: Partition, state: State, event: Renewed) -> State:
    p.acknowledged = None
    p.given = None
    return _by_policy(p, "the topic was deleted and made anew")


TRANSITIONS: Mapping[tuple[type, type], Callable[[Partition, Any, Any], State]] = {
    **{
        (state, event): handler
        for state in (AwaitingCommitted, Resetting, Positioned, Broken)
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
    (Positioned, OutOfRange): _out_of_range,
    (Positioned, Damaged): _break,
}
