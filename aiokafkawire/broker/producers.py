"""What a partition remembers of idempotent producers: epochs, sequences, the last five batches.

The rules are those of Kafka's ProducerStateManager since KIP-360.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode

__all__ = (
    "MAX_PRODUCERS",
    "NO_PRODUCER_ID",
    "REMEMBERED_BATCHES",
    "ProducerStates",
    "SequencedBatch",
    "last_sequence",
)

NO_PRODUCER_ID = -1

REMEMBERED_BATCHES = 5
"""A producer may have this many batches in flight, so this many can come twice."""

MAX_PRODUCERS = 10_000
"""Producers remembered for one partition; the one silent for longest is forgotten first."""

MAX_SEQUENCE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SequencedBatch:
    """A batch of an idempotent producer, as it stands (or would stand) in the log."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int = -1
    timestamp_ms: int = -1


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[SequencedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


def last_sequence(first: int, count: int) -> int:
    """The sequence of the last of `count` records; after 2^31-1 comes 0."""
    return (first + count - 1) % (MAX_SEQUENCE + 1)


class ProducerStates:
    """The idempotence checks of one partition."""

    def __init__(self, *, refuse_unknown: bool = False) -> None:
        self._refuse_unknown = refuse_unknown
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, batch: SequencedBatch) -> SequencedBatch | None:
        """Whether `batch` may be appended: None if so, the earlier batch if it is a duplicate.

        Raises `Refusal` with INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or
        UNKNOWN_PRODUCER_ID.
        """
        known = self._producers.get(batch.producer_id)
        if known is None:
            # Its records may have been deleted, so any sequence can be the right one.
            if self._refuse_unknown and batch.first_sequence != 0:
                raise Refusal(ErrorCode.UNKNOWN_PRODUCER_ID)
            return None
        if batch.epoch < known.epoch:
            raise Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {batch.epoch} of producer {batch.producer_id} is older than {known.epoch}",
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
        expected = (known.batches[-1].last_sequence + 1) % (MAX_SEQUENCE + 1)
        if batch.first_sequence != expected:
            raise _out_of_order(batch, str(expected))
        return None

    def appended(self, batch: SequencedBatch) -> None:
        """Remember a batch that is in the log now."""
        known = self._producers.get(batch.producer_id)
        if known is None or known.epoch != batch.epoch:
            known = self._producers[batch.producer_id] = _Producer(batch.epoch)
        known.batches.append(batch)
        self._producers.move_to_end(batch.producer_id)
        if len(self._producers) > MAX_PRODUCERS:
            self._producers.popitem(last=False)

    def forget_before(self, offset: int) -> None:
        """Forget producers of whom the log holds nothing from `offset` on."""
        gone = [
            producer_id
            for producer_id, known in self._producers.items()
            if known.batches[-1].first_offset < offset
        ]
        for producer_id in gone:
            del self._producers[producer_id]


def _out_of_order(batch: SequencedBatch, expected: str) -> Refusal:
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id} epoch {batch.epoch} sent sequence {batch.first_sequence}, "
        f"expected {expected}",
    )
