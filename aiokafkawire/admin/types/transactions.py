"""Arguments and results of the operations on producers and transactions (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from aiokafkawire.types import NodeId, TopicPartition

__all__ = (
    "AbortTransactionSpec",
    "HangingTransaction",
    "ProducerState",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
)


class TransactionState(StrEnum):
    """State of a transactional id at its coordinator."""

    UNKNOWN = "Unknown"
    ONGOING = "Ongoing"
    PREPARE_ABORT = "PrepareAbort"
    PREPARE_COMMIT = "PrepareCommit"
    COMPLETE_ABORT = "CompleteAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    EMPTY = "Empty"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        text = str(value).lower()
        return next((each for each in cls if each.value.lower() == text), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that the leader of a partition knows.

    Attributes:
        producer_id: Id of the producer.
        producer_epoch: Epoch of its last batch.
        last_sequence: Sequence number of its last record; None after a transaction marker.
        last_timestamp_ms: Timestamp of its last batch, in milliseconds since 1970; None if unknown.
        coordinator_epoch: Epoch of the transaction coordinator; None without a transaction.
        current_transaction_start_offset: First offset of its open transaction; None without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """State of a transactional id.

    Attributes:
        coordinator_id: Node id of the transaction coordinator.
        state: State of the transaction.
        producer_id: Id of the producer.
        producer_epoch: Epoch of the producer.
        transaction_timeout_ms: Time in milliseconds after which the coordinator aborts it.
        transaction_start_time_ms: Start of the transaction, in milliseconds since 1970; None
            without one.
        topic_partitions: Partitions of the transaction.
    """

    coordinator_id: NodeId
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    topic_partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in `list_transactions`."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """The open transaction of a producer in one partition, from `describe_producers`.

    Attributes:
        topic_partition: The partition.
        producer_id: Id of the producer.
        producer_epoch: Epoch of the producer's last batch.
        coordinator_epoch: Epoch of the transaction coordinator; 0 if the partition has none.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in a partition that its coordinator does not know.

    It holds back the last stable offset of the partition for good. `spec` is the argument for
    `abort_transaction`.

    Attributes:
        topic_partition: The partition.
        producer: The producer's state there.
        transactional_id: Transactional id of the producer; None if no coordinator knows it.
    """

    topic_partition: TopicPartition
    producer: ProducerState
    transactional_id: str | None = None

    @property
    def spec(self) -> AbortTransactionSpec:
        """The argument for `abort_transaction`."""
        coordinator_epoch = self.producer.coordinator_epoch
        return AbortTransactionSpec(
            self.topic_partition,
            self.producer.producer_id,
            self.producer.producer_epoch,
            0 if coordinator_epoch is None else max(coordinator_epoch, 0),
        )
