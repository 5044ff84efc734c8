"""States and events of an assigned partition; see `partition`.

An event that carries a response names the state that requested it (`requested_in`), so that a
response that arrives after a seek or reset is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from aiokafkawire.cluster.metadata import LeaderAndEpoch
from aiokafkawire.config import reset_duration_ms
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NO_LEADER_EPOCH, OffsetAndMetadata

from .fetch_buffer import FetchBuffer

__all__ = (
    "AwaitingCommitted",
    "BeforeNow",
    "CommittedOffsetFetched",
    "CorruptionFound",
    "EpochEndFetched",
    "ErrorPending",
    "ErrorReported",
    "Event",
    "Fetching",
    "Halted",
    "LeaderChanged",
    "LookupFailed",
    "OffsetListed",
    "PartitionFailed",
    "PositionOutOfRange",
    "PositionTarget",
    "ResetOffset",
    "ResetReason",
    "Resetting",
    "Seek",
    "SeekToCommitted",
    "State",
    "TopicRecreated",
    "Validating",
    "reset_target",
)


class PositionTarget(IntEnum):
    """The end and the beginning of a log, as timestamps in ListOffsets."""

    LATEST = -1
    EARLIEST = -2


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """A timestamp relative to the time of the ListOffsets request."""

    milliseconds: int


class ResetReason(Enum):
    """Reason for looking up a position by time or end of the log."""

    SEEK = "seek"
    NOT_COMMITTED = "no committed offset"
    OUT_OF_RANGE = "offset out of range"
    TRUNCATED = "log truncated"
    RECREATED = "topic recreated"


def reset_target(policy: str) -> PositionTarget | BeforeNow | None:
    """Return the position to which `auto_offset_reset` resets; None for "none"."""
    duration_ms = reset_duration_ms(policy)
    if duration_ms is not None:
        return BeforeNow(duration_ms)
    return {"earliest": PositionTarget.EARLIEST, "latest": PositionTarget.LATEST}.get(policy)


# --- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class AwaitingCommitted:
    """The group's committed offset is needed; it is requested from `not_before` on."""

    not_before: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Resetting:
    """The offset of a timestamp (milliseconds) or of an `PositionTarget` is needed."""

    timestamp: int | BeforeNow
    not_before: float = 0.0
    reason: ResetReason = ResetReason.SEEK


@dataclass(frozen=True, slots=True, eq=False)
class Validating:
    """The position is compared with the log of `leader` (KIP-320); no records are delivered.

    `failures` counts failed attempts.
    """

    buffer: FetchBuffer
    leader: LeaderAndEpoch
    not_before: float = 0.0
    failures: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Fetching:
    """Records are fetched. The position is validated against `leader`, if one is known."""

    buffer: FetchBuffer
    leader: LeaderAndEpoch | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ErrorPending:
    """A broker returned an error that the application must see, such as a missing permission.

    It is raised once; after that the partition goes on in `resume_state`.
    """

    error: KafkaError
    resume_state: AwaitingCommitted | Resetting | Validating | Fetching


@dataclass(frozen=True, slots=True, eq=False)
class Halted:
    """Reading stopped until the next seek; each call of the application raises `error`.

    `buffer` has the last position, if there was one.
    """

    error: KafkaError
    buffer: FetchBuffer | None = None


State = AwaitingCommitted | Resetting | Validating | Fetching | ErrorPending | Halted


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedOffsetFetched:
    """The committed offset is `offset`; None if there is none."""

    requested_in: State
    offset: OffsetAndMetadata | None


@dataclass(frozen=True, slots=True)
class OffsetListed:
    """The leader returned an offset; None if no record is that young. Then the end is used."""

    requested_in: State
    offset: int | None
    leader_epoch: int = NO_LEADER_EPOCH
    leader: LeaderAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class LookupFailed:
    """A lookup failed. It is repeated at `retry_at`, if the error is retriable."""

    requested_in: State
    error: KafkaError
    retry_at: float


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class EpochEndFetched:
    """The leader returned where the epoch of the fetch offset ends in its log (KIP-320).

    `leader_epoch` is the largest epoch in the log up to the requested one. Both are -1 if there is
    none.
    """

    requested_in: State
    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Seek:
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ResetOffset:
    timestamp: int


@dataclass(frozen=True, slots=True)
class SeekToCommitted:
    pass


@dataclass(frozen=True, slots=True)
class PositionOutOfRange:
    """A fetch failed with OFFSET_OUT_OF_RANGE."""

    requested_in: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class CorruptionFound:
    """Fetched data cannot be decoded."""

    requested_in: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class PartitionFailed:
    """A broker returned an error for the partition that the application must see."""

    requested_in: State
    error: KafkaError


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """The pending error was raised in the application."""


@dataclass(frozen=True, slots=True)
class TopicRecreated:
    """The topic was deleted and created again: old offsets are invalid."""


Event = (
    CommittedOffsetFetched
    | OffsetListed
    | LookupFailed
    | LeaderChanged
    | EpochEndFetched
    | Seek
    | ResetOffset
    | SeekToCommitted
    | PositionOutOfRange
    | CorruptionFound
    | PartitionFailed
    | ErrorReported
    | TopicRecreated
)
