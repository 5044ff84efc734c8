"""Events and effects of `CommitMachine`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aiokafkawire.errors import KafkaError
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .membership.effects import ForgetCoordinator

__all__ = (
    "ChunkCommitted",
    "CommitDue",
    "CommitEffect",
    "CommitEvent",
    "CommitRequestFailed",
    "CommitResponseReceived",
    "CommitSubmitted",
    "CompleteCommit",
    "Offsets",
    "OwnershipEnded",
    "Rejoined",
    "ReportCommitted",
    "SendCommit",
    "VerifyMembership",
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitSubmitted:
    """Offsets were submitted. After a commit `before_revocation` no other can follow."""

    commit_id: int
    offsets: Offsets
    before_revocation: bool


@dataclass(frozen=True, slots=True)
class CommitDue:
    """The deadline of the machine has passed. The member is in `generation`.

    `rebalancing`: it owns no partitions, or is rejoining and keeps them (KIP-429).
    """

    generation: int
    rebalancing: bool = False


@dataclass(frozen=True, slots=True)
class CommitResponseReceived:
    """Error codes per partition.

    `in_cooperative_rejoin`: the member is rejoining and keeps its partitions (KIP-429).
    `broker` is the name of the coordinator.
    """

    request: int
    codes: Mapping[TopicPartition, int]
    in_cooperative_rejoin: bool = False
    broker: str | None = None


@dataclass(frozen=True, slots=True)
class ChunkCommitted:
    """One of several requests of a large commit succeeded; the others follow."""

    request: int
    partitions: Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class CommitRequestFailed:
    request: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class OwnershipEnded:
    """The partitions were revoked or `lost`."""

    partitions: Collection[TopicPartition]
    lost: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Rejoined:
    generation: int
    owned: Collection[TopicPartition]


CommitEvent = (
    CommitSubmitted
    | CommitDue
    | ChunkCommitted
    | CommitResponseReceived
    | CommitRequestFailed
    | OwnershipEnded
    | Rejoined
)


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendCommit:
    request: int
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class ReportCommitted:
    """The coordinator stored these offsets."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class CompleteCommit:
    """A commit completed. `error` is None if all its offsets, or newer ones, are committed."""

    commit_id: int
    error: KafkaError | None


@dataclass(frozen=True, slots=True)
class VerifyMembership:
    """The coordinator rejected the member: send a heartbeat to find out why."""


CommitEffect = SendCommit | ReportCommitted | CompleteCommit | VerifyMembership | ForgetCoordinator
