"""The data of a transaction, and the states, requests and events of its state machine."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiokafkawire.errors import KafkaError
from aiokafkawire.producer.transactions.actions import RequestKind, TransactionAction
from aiokafkawire.types import (
    GroupMetadata,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
)

__all__ = (
    "AbortTransaction",
    "AbortableError",
    "Aborting",
    "AddOffsetsToTxn",
    "AddPartition",
    "AddPartitionsToTxn",
    "BeginTransaction",
    "CommitTransaction",
    "Committing",
    "DetachTransaction",
    "Detached",
    "Detaching",
    "EndTxn",
    "EpochBumpRequired",
    "FatalError",
    "Flushed",
    "InTransaction",
    "InitTransactions",
    "Initialising",
    "OffsetCommit",
    "OffsetsAddedToTxn",
    "PartitionsAddedToTxn",
    "ProducerFailed",
    "ProducerIdReceived",
    "Ready",
    "RecordsFailed",
    "RecordsSent",
    "RequestProducerId",
    "SendOffsetsToTransaction",
    "Transaction",
    "TransactionCall",
    "TransactionEvent",
    "TransactionRequest",
    "TransactionState",
    "TransactionVersion",
    "TxnEnded",
    "TxnOffsetCommit",
    "TxnOffsetsCommitted",
    "TxnRequestFailed",
    "Uninitialised",
)


class TransactionVersion(enum.IntEnum):
    """The level of the cluster feature `transaction.version` (KIP-890).

    TV_0: the producer adds partitions to the transaction before it writes to them (KIP-98). TV_1
    differs from it in the brokers only. TV_2: brokers add the partitions, and every end bumps the
    epoch.
    """

    TV_0 = 0  # the producer, before it sends (KIP-98)
    TV_2 = 2  # the brokers, and each end raises the epoch (KIP-890, part 2)


@dataclass(slots=True, eq=False)
class OffsetCommit:
    """Offsets of a group that the transaction commits.

    `done`: the group coordinator has them. `on_committed` is called after the commit.
    """

    group: GroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] | None = None
    done: bool = False


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction.

    Attributes:
        number: Counts the producer's transactions, from 1.
        identity: The producer id and epoch.
        transaction_version: The protocol of the transaction.
        began_at: Time of its begin, in seconds.
        partitions: Partitions that records may be sent to.
        pending_partitions: Partitions that AddPartitionsToTxn must add first.
        added_groups: Groups that AddOffsetsToTxn has added.
        pending_offsets: Offsets that are not sent yet, in the order of the calls.
        accepted_offsets: Offsets that their group coordinators have.
        started: The coordinator has, or may have, a transaction that must be ended.
        epoch_bump_required: The epoch must be bumped after it.
        skip_end_txn: The coordinator no longer knows the producer id: there is nothing to end.
        end_requested: A call wants to commit, abort or detach it.
        committed: True after a commit, False after an abort, None before.
        abort_failure: Why the coordinator rejected the abort.
    """

    number: int
    identity: ProducerIdAndEpoch
    transaction_version: TransactionVersion
    began_at: float
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    pending_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    added_groups: dict[str, None] = field(default_factory=dict)
    pending_offsets: deque[OffsetCommit] = field(default_factory=deque)
    accepted_offsets: list[OffsetCommit] = field(default_factory=list)
    started: bool = False
    epoch_bump_required: bool = False
    skip_end_txn: bool = False
    end_requested: bool = False
    committed: bool | None = None
    abort_failure: KafkaError | None = None


# --- states ---


@dataclass(frozen=True, slots=True)
class Uninitialised:
    """No producer id was requested yet."""


@dataclass(frozen=True, slots=True)
class Initialising:
    """InitProducerId is in progress, for a new producer id or the next epoch of `previous`.

    `last_version` and `committed` are as in `Ready`.
    """

    previous: ProducerIdAndEpoch | None
    last_version: TransactionVersion | None = None
    committed: bool | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A transaction may begin.

    `last_version` is the version of the previous transaction and `committed` its end; both are None
    before the first. `epoch_bump_required`: the epoch must be bumped first.
    """

    identity: ProducerIdAndEpoch
    last_version: TransactionVersion | None = None
    committed: bool | None = None
    epoch_bump_required: bool = False


@dataclass(frozen=True, slots=True)
class InTransaction:
    """A transaction is open for records and offsets."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Committing:
    """Buffered records and offsets are sent; then EndTxn commits, retried until it is answered."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Aborting:
    """Unsent records are aborted; then EndTxn aborts, retried until it is answered."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Detaching:
    """Buffered records and offsets are sent; then the transaction is left open."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class AbortableError:
    """The transaction failed and can only be aborted."""

    transaction: Transaction
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Detached:
    """Another process ends the transaction; this producer begins no other one."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class FatalError:
    """The producer failed permanently."""

    error: KafkaError


TransactionState = (
    Uninitialised
    | Initialising
    | Ready
    | InTransaction
    | Committing
    | Aborting
    | Detaching
    | AbortableError
    | Detached
    | FatalError
)


# --- requests ---


@dataclass(frozen=True, slots=True)
class RequestProducerId:
    """InitProducerId: a producer id that fences earlier ones, or the next epoch of `previous`."""

    previous: ProducerIdAndEpoch | None
    kind = RequestKind.INIT_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn:
    """AddPartitionsToTxn, for all pending partitions."""

    identity: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]
    kind = RequestKind.ADD_PARTITIONS_TO_TXN


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn:
    """AddOffsetsToTxn."""

    identity: ProducerIdAndEpoch
    group_id: str
    kind = RequestKind.ADD_OFFSETS_TO_TXN


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    """TxnOffsetCommit."""

    identity: ProducerIdAndEpoch
    transaction_version: TransactionVersion
    commit: OffsetCommit
    kind = RequestKind.TXN_OFFSET_COMMIT


@dataclass(frozen=True, slots=True)
class EndTxn:
    """EndTxn."""

    identity: ProducerIdAndEpoch
    transaction_version: TransactionVersion
    committed: bool
    kind = RequestKind.END_TXN


TransactionRequest = (
    RequestProducerId | AddPartitionsToTxn | AddOffsetsToTxn | TxnOffsetCommit | EndTxn
)


# --- events: calls ---


@dataclass(frozen=True, slots=True)
class InitTransactions:
    """Request a producer id, or a higher epoch."""


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """Begin a transaction."""

    transaction_version: TransactionVersion


@dataclass(frozen=True, slots=True)
class AddPartition:
    """Add the partition of a record."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class SendOffsetsToTransaction:
    """Commit offsets of a group with the transaction."""

    commit: OffsetCommit


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Commit the transaction."""


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """Abort the transaction."""


@dataclass(frozen=True, slots=True)
class DetachTransaction:
    """Leave the transaction open for another process to end."""


TransactionCall = (
    InitTransactions
    | BeginTransaction
    | AddPartition
    | SendOffsetsToTransaction
    | CommitTransaction
    | AbortTransaction
    | DetachTransaction
)


# --- events: responses and results ---


@dataclass(frozen=True, slots=True)
class RecordsSent:
    """Records of the transaction were sent to a broker."""


@dataclass(frozen=True, slots=True)
class RecordsFailed:
    """Records of the transaction will not be delivered."""

    error: Exception


@dataclass(frozen=True, slots=True)
class EpochBumpRequired:
    """A partition cannot continue its sequence numbers under this epoch."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """No record is buffered or in flight; `sequence_gap`: a partition has a sequence gap."""

    sequence_gap: bool


@dataclass(frozen=True, slots=True)
class ProducerIdReceived:
    """The coordinator returned a producer id and epoch."""

    identity: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class PartitionsAddedToTxn:
    """The coordinator added these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetsAddedToTxn:
    """The coordinator added this group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TxnOffsetsCommitted:
    """The group coordinator has the offsets."""

    commit: OffsetCommit


@dataclass(frozen=True, slots=True)
class TxnEnded:
    """The coordinator ended the transaction; with TV_2, `identity` is the next one."""

    identity: ProducerIdAndEpoch | None


@dataclass(frozen=True, slots=True)
class TxnRequestFailed:
    """A request was rejected, and only an abort helps."""

    kind: RequestKind
    action: TransactionAction
    error: KafkaError


@dataclass(frozen=True, slots=True)
class ProducerFailed:
    """The producer failed permanently."""

    error: KafkaError


TransactionEvent = (
    TransactionCall
    | RecordsSent
    | RecordsFailed
    | EpochBumpRequired
    | Flushed
    | ProducerIdReceived
    | PartitionsAddedToTxn
    | OffsetsAddedToTxn
    | TxnOffsetsCommitted
    | TxnEnded
    | TxnRequestFailed
    | ProducerFailed
)
