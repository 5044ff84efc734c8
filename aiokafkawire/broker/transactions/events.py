"""What a transaction can be told, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from aiokafkawire.broker.groups.offsets import CommittedOffset
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = (
    "NO_PRODUCER",
    "AddToTransaction",
    "CommitOffsets",
    "EndTransaction",
    "EpochFenced",
    "Event",
    "ExpireTransactionalId",
    "InitProducerId",
    "MarkersWritten",
    "TransactionDeadlineReached",
    "TransactionResult",
    "TransactionScope",
    "TransactionState",
    "VerifyInTransaction",
)

NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


class TransactionState(Enum):
    """Kafka's states; the values are the names that DescribeTransactions gives."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class TransactionResult(NamedTuple):
    """Result of an event; `producer` is set by `InitProducerId` and `EndTransaction`."""

    code: ErrorCode = ErrorCode.NONE
    producer: ProducerIdAndEpoch = NO_PRODUCER


class TransactionScope(NamedTuple):
    """Where a transaction writes: partitions, and the offsets of groups."""

    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """InitProducerId. `expected`: who the producer is, when it only bumps its epoch (KIP-360)."""

    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddToTransaction:
    """AddPartitionsToTxn, AddOffsetsToTxn, or a write that adds by itself (KIP-890)."""

    producer: ProducerIdAndEpoch
    scope: TransactionScope


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyInTransaction:
    """Was all of this added before? Asked at each write that cannot add by itself."""

    producer: ProducerIdAndEpoch
    scope: TransactionScope


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """TxnOffsetCommit: keep offsets that count once the transaction is committed."""

    producer: ProducerIdAndEpoch
    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """EndTxn. `bumps_epoch`: the producer gets a new epoch with the answer (KIP-890)."""

    producer: ProducerIdAndEpoch
    commit: bool
    bumps_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFenced:
    """The epoch that fences the producer is kept: abort what it began."""

    bumps_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """This part of the transaction has its end in the logs."""

    scope: TransactionScope = TransactionScope()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDeadlineReached:
    """Time has passed: see what is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireTransactionalId:
    """Nobody has used the transactional id for long; refused while it is in use."""


Event = (
    InitProducerId
    | AddToTransaction
    | VerifyInTransaction
    | CommitOffsets
    | EndTransaction
    | EpochFenced
    | MarkersWritten
    | TransactionDeadlineReached
    | ExpireTransactionalId
)
