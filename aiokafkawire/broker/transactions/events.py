"""Events of a transactional id, and their results."""

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
    "CommitTxnOffsets",
    "EndTransaction",
    "EpochFenced",
    "Event",
    "ExpireTransactionalId",
    "InitProducerId",
    "MarkersWritten",
    "TransactionContents",
    "TransactionDeadlineReached",
    "TransactionResult",
    "TransactionState",
    "VerifyInTransaction",
)

NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


class TransactionState(Enum):
    """Kafka's states; values are the names in DescribeTransactions."""

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


class TransactionContents(NamedTuple):
    """Partitions and groups of a transaction."""

    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """InitProducerId. `expected` is the current producer, if it only bumps its epoch (KIP-360)."""

    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddToTransaction:
    """AddPartitionsToTxn, AddOffsetsToTxn, or a write that adds implicitly (KIP-890)."""

    producer: ProducerIdAndEpoch
    scope: TransactionContents


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyInTransaction:
    """Verify before a write without implicit adding that the scope was added (KIP-890)."""

    producer: ProducerIdAndEpoch
    scope: TransactionContents


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTxnOffsets:
    """TxnOffsetCommit: offsets that apply once the transaction commits."""

    producer: ProducerIdAndEpoch
    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """EndTxn. With `bumps_epoch` the response has a new epoch (KIP-890)."""

    producer: ProducerIdAndEpoch
    commit: bool
    bumps_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFenced:
    """The fencing epoch is stored: abort the open transaction."""

    bumps_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """The markers of this part of the transaction are written."""

    scope: TransactionContents = TransactionContents()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDeadlineReached:
    """A deadline may have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireTransactionalId:
    """Delete a transactional id that was unused for long; fails while it is in use."""


Event = (
    InitProducerId
    | AddToTransaction
    | VerifyInTransaction
    | CommitTxnOffsets
    | EndTransaction
    | EpochFenced
    | MarkersWritten
    | TransactionDeadlineReached
    | ExpireTransactionalId
)
