"""Producer state of one partition: epochs, sequences, recent batches, transactions.

The rules are those of Kafka's ProducerStateManager since KIP-360.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.wire import ErrorCode

__all__ = (
    "MAX_PRODUCERS",
    "NO_PRODUCER_ID",
    "NUM_BATCHES_TO_RETAIN",
    "AbortedTxn",
    "ActiveProducer",
    "EndTransactionMarker",
    "ProducerStateManager",
    "SequencedBatch",
    "last_sequence",
)

NO_PRODUCER_ID = -1

NUM_BATCHES_TO_RETAIN = 5
"""Batches per producer that are checked for duplicates: its limit of requests in flight."""

MAX_PRODUCERS = 10_000
"""Limit of producers per partition; the one idle for longest is dropped first."""

MAX_SEQUENCE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SequencedBatch:
    """Sequence of a batch from an idempotent producer."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int = -1
    timestamp_ms: int = -1
    transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """Control batch that ends the transaction of a producer in this partition."""

    producer_id: int
    epoch: int
    offset: int
    commit: bool
    coordinator_epoch: int = 0
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    """An aborted transaction; `last_offset` is the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """State of a producer for DescribeProducers; -1 stands for none."""

    producer_id: int
    epoch: int
    last_sequence: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


@dataclass(slots=True)
class _ProducerStateEntry:
    """State of a producer; `last_offset` is the offset of its newest batch or marker."""

    epoch: int
    batches: deque[SequencedBatch] = field(
        default_factory=lambda: deque(maxlen=NUM_BATCHES_TO_RETAIN)
    )
    last_offset: int = -1
    timestamp_ms: int = -1
    coordinator_epoch: int = -1


def last_sequence(first: int, count: int) -> int:
    """Return the sequence of the last of `count` records; 0 follows 2^31-1."""
    return (first + count - 1) % (MAX_SEQUENCE + 1)


class ProducerStateManager:
    """Checks sequences and tracks transactions of one partition."""

    def __init__(self, *, refuse_unknown: bool = False) -> None:
        self._refuse_unknown = refuse_unknown
        self._producers: OrderedDict[int, _ProducerStateEntry] = OrderedDict()
        self._ongoing: dict[int, int] = {}
        self._aborted: list[AbortedTxn] = []

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """Start of the earliest open transaction."""
        # Transactions are ordered by first offset.
        return next(iter(self._ongoing.values()), None)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return True if a producer with this epoch has an open transaction."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch == epoch and producer_id in self._ongoing

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap the offsets from `start` up to `end`."""
        # Ordered by last offset.
        first = bisect_left(self._aborted, start, key=lambda entry: entry.last_offset)
        return [entry for entry in self._aborted[first:] if entry.first_offset < end]

    def active_producers(self) -> list[ActiveProducer]:
        """Return the state of every producer, ordered by id."""
        return [
            ActiveProducer(
                producer_id=producer_id,
                epoch=known.epoch,
                last_sequence=known.batches[-1].last_sequence if known.batches else -1,
                timestamp_ms=known.timestamp_ms,
                coordinator_epoch=known.coordinator_epoch,
                transaction_start=self._ongoing.get(producer_id, -1),
            )
            for producer_id, known in sorted(self._producers.items())
        ]

    def check(self, batch: SequencedBatch) -> SequencedBatch | None:
        """Check a batch before it is appended; return the earlier batch if it is a duplicate.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID or
                INVALID_TXN_STATE.
        """
        known = self._producers.get(batch.producer_id)
        if known is None:
            # Its records may have been deleted, so any sequence can be valid.
            if self._refuse_unknown and batch.first_sequence != 0:
                raise ApiError(ErrorCode.UNKNOWN_PRODUCER_ID)
            return None
        if batch.epoch < known.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {batch.epoch} of producer {batch.producer_id} is older than the current"
                f" epoch {known.epoch}",
            )
        if batch.epoch > known.epoch:
            if batch.first_sequence != 0:
                raise _out_of_order(batch, "0, the first of a new epoch")
            return None
        for earlier in known.batches:
            if (earlier.first_sequence, earlier.last_sequence) == (
                batch.first_sequence,
                batch.last_sequence,
            ):
                return earlier
        last = known.batches[-1].last_sequence if known.batches else -1
        expected = (last + 1) % (MAX_SEQUENCE + 1)
        if batch.first_sequence != expected:
            raise _out_of_order(batch, str(expected))
        if batch.producer_id in self._ongoing and not batch.transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has an open transaction in this partition",
            )
        return None

    def on_append(self, batch: SequencedBatch) -> None:
        """Record a batch that was appended."""
        known = self._entry(batch.producer_id, batch.epoch)
        known.batches.append(batch)
        known.last_offset = batch.first_offset
        known.timestamp_ms = batch.timestamp_ms
        if batch.transactional:
            self._ongoing.setdefault(batch.producer_id, batch.first_offset)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, bumps_epoch: bool
    ) -> None:
        """Check a marker before it is appended.

        Args:
            producer_id: Id of the producer whose transaction ends.
            epoch: Epoch of the marker.
            coordinator_epoch: Epoch of the transaction coordinator that sends it.
            bumps_epoch: The marker must have a higher epoch than the transaction (KIP-890).

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return
        is_open = producer_id in self._ongoing
        if epoch < known.epoch or (bumps_epoch and is_open and epoch == known.epoch):
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if coordinator_epoch < known.coordinator_epoch:
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def complete_transaction(self, marker: EndTransactionMarker) -> None:
        """Record the marker that ends a producer's transaction."""
        known = self._entry(marker.producer_id, marker.epoch)
        known.last_offset = marker.offset
        known.timestamp_ms = marker.timestamp_ms
        known.coordinator_epoch = marker.coordinator_epoch
        first = self._ongoing.pop(marker.producer_id, None)
        if first is not None and not marker.commit:
            self._aborted.append(AbortedTxn(marker.producer_id, first, marker.offset))

    def delete_before_offset(self, offset: int) -> None:
        """Drop producers and aborted transactions whose last offset is before `offset`."""
        expired = [
            producer_id
            for producer_id, known in self._producers.items()
            if known.last_offset < offset and producer_id not in self._ongoing
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        del self._aborted[: bisect_left(self._aborted, offset, key=lambda entry: entry.last_offset)]

    def _entry(self, producer_id: int, epoch: int) -> _ProducerStateEntry:
        known = self._producers.get(producer_id)
        if known is None or known.epoch != epoch:
            coordinator_epoch = -1 if known is None else known.coordinator_epoch
            known = _ProducerStateEntry(epoch, coordinator_epoch=coordinator_epoch)
            self._producers[producer_id] = known
        self._producers.move_to_end(producer_id)
        if len(self._producers) > MAX_PRODUCERS:
            in_use = {*self._ongoing, producer_id}
            idle = next((each for each in self._producers if each not in in_use), None)
            if idle is not None:
                del self._producers[idle]
        return known


def _out_of_order(batch: SequencedBatch, expected: str) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id} epoch {batch.epoch} sent sequence {batch.first_sequence}, "
        f"expected {expected}",
    )
