"""What a transaction is made of: its data, the states, the events, and the requests."""

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
    """Who tells the coordinator what a transaction writes to; the level of transaction.version
    from which on brokers have it."""

    TV_0 = 0  # the producer, before it sends (KIP-98)
    TV_2 = 2  # the brokers, and each end raises the epoch (KIP-890, part 2)


@dataclass(slots=True, eq=False)
class OffsetCommit:
    """Positions of a group that are committed with the transaction.

    `done`: the group's coordinator has them. `kept` is called when the transaction is committed.
    """

    group: GroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] | None = None
    done: bool = False


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction. `number` rises from one to the next.

    `partitions` may be written to; `wanted` are to be added first, and so are groups that are not
    in `groups`. `known`: the coordinator knows of it, so that it must be ended there. `bump`: the
    epoch must be raised after it; `forgotten`: the coordinator has nothing to end. `offsets` wait
    to be sent, `taken` are with their groups' coordinators. `asked`: a call wants it ended or given
    away; `committed` is how it ended, once that is known, and `refusal` why an abort was refused.
    Bounds: partitions as many as are written to, offsets as many as calls gave.
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


# --- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Uninitialised:
    """There is no producer id yet."""


@dataclass(frozen=True, slots=True)
class Initialising:
    """A producer id, or a higher epoch of `previous`, is asked for. `last` and `committed` are as
    in `Ready`."""

    previous: ProducerIdAndEpoch | None
    last_version: TransactionVersion | None = None
    committed: bool | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A transaction may begin.

    `last` is the protocol of the transaction before, and `committed` how it ended; None: there was
    none. `stale`: the epoch must be raised first.
    """

    identity: ProducerIdAndEpoch
    last_version: TransactionVersion | None = None
    committed: bool | None = None
    epoch_bump_required: bool = False


@dataclass(frozen=True, slots=True)
class InTransaction:
    """Records and offsets are taken."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Committing:
    """What was taken goes out; then the coordinator is told to commit, until it answers."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Aborting:
    """What was not sent is dropped; then the coordinator is told to abort, until it answers."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Detaching:
    """What was taken goes out; then the transaction is left open for somebody else to end."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class AbortableError:
    """Something failed: the transaction can only be aborted."""

    transaction: Transaction
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Detached:
    """The transaction is somebody else's, and this producer is done."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class FatalError:
    """This producer cannot go on."""

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


# --- requests ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestProducerId:
    """InitProducerId: an identity that fences all earlier ones, or the next epoch of one."""

    previous: ProducerIdAndEpoch | None
    kind = RequestKind.INIT_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn:
    """AddPartitionsToTxn, for all that are not added yet."""

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


# --- events: what callers want ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitTransactions:
    """Ask for a producer id, or for a higher epoch."""


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """A transaction begins."""

    transaction_version: TransactionVersion


@dataclass(frozen=True, slots=True)
class AddPartition:
    """A record goes to a partition."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class SendOffsetsToTransaction:
    """A group's positions go with the transaction."""

    commit: OffsetCommit


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """EndTxn the transaction, so that all of it is visible."""


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """EndTxn the transaction, so that nothing of it is visible."""


@dataclass(frozen=True, slots=True)
class DetachTransaction:
    """Leave the transaction open for somebody else to end."""


TransactionCall = (
    InitTransactions
    | BeginTransaction
    | AddPartition
    | SendOffsetsToTransaction
    | CommitTransaction
    | AbortTransaction
    | DetachTransaction
)


# --- events: what happened --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordsSent:
    """Records of the transaction went to a broker."""


@dataclass(frozen=True, slots=True)
class RecordsFailed:
    """Records of the transaction will not be delivered."""

    error: Exception


@dataclass(frozen=True, slots=True)
class EpochBumpRequired:
    """A partition's sequence numbers cannot go on under this epoch."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Nothing waits any more and nothing is under way; `gap`: some partition's numbers ended."""

    sequence_gap: bool


@dataclass(frozen=True, slots=True)
class ProducerIdReceived:
    """The coordinator gave an identity."""

    identity: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class PartitionsAddedToTxn:
    """The coordinator knows of these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetsAddedToTxn:
    """The coordinator knows that offsets of this group will come."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TxnOffsetsCommitted:
    """The group's coordinator has the positions."""

    commit: OffsetCommit


@dataclass(frozen=True, slots=True)
class TxnEnded:
    """The coordinator ended the transaction; with KIP-890 it gives the next identity."""

    identity: ProducerIdAndEpoch | None


@dataclass(frozen=True, slots=True)
class TxnRequestFailed:
    """A request was refused in a way that only an abort mends."""

    kind: RequestKind
    action: TransactionAction
    error: KafkaError


@dataclass(frozen=True, slots=True)
class ProducerFailed:
    """This producer cannot go on."""

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
