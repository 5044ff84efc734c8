"""Sequence numbers, with which a broker drops duplicates and rejects gaps (KIP-98).

A producer has an identity: producer id and epoch. In each partition its batches get consecutive
sequence numbers from 0 under that identity, and a broker accepts only the next one. A batch that
failed, or whose outcome stays unknown, leaves a gap that no later batch can pass.

The partition is then drained: sequenced batches complete under the old identity while the others
wait. Afterwards the producer bumps its epoch (KIP-360) and starts from 0 again; the new epoch makes
a broker reject batches still in flight with the old one. Other partitions keep the old epoch
until they have no sequenced batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.state_machine import transition
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition

__all__ = (
    "DEDUP_BATCHES",
    "MAX_EPOCH",
    "SEQUENCE_MODULUS",
    "TRANSITIONS",
    "BatchSequence",
    "Draining",
    "PartitionSequences",
    "ProducerIdState",
    "Sequencing",
    "TransactionalProducerIdState",
    "Unsequenced",
    "advance",
)

DEDUP_BATCHES = 5
"""A broker deduplicates against a producer's last five batches per partition (Kafka 0.11: the last
one). No more may be in flight: a batch that is rejected as out of order must not be in the log."""

MAX_EPOCH = 2**15 - 1
SEQUENCE_MODULUS = 2**31


_tuple = tuple.__new__  # makes a NamedTuple in half the time, without checks


def advance(sequence: int, count: int) -> int:
    """Return the sequence number `count` records later; after 2**31 - 1 follows 0."""
    return (sequence + count) % SEQUENCE_MODULUS


def _earlier(one: int, other: int) -> int:
    """Return the earlier of two sequence numbers, across the wrap to 0."""
    ahead = (other - one) % SEQUENCE_MODULUS
    return one if ahead < SEQUENCE_MODULUS // 2 else other


class BatchSequence(NamedTuple):
    """Producer id, epoch and sequence number of a batch's first record."""

    identity: ProducerIdAndEpoch
    base_sequence: int


# --- producer id and epoch ---


class ProducerIdState:
    """Producer id and epoch of an idempotent producer.

    Attributes:
        current: None before a producer id is assigned, and after the last epoch.
        failure: Why no producer id is assigned yet.
        epoch_bumps: Number of epoch bumps.
        max_dedup_batches: Batches that every broker written to deduplicates against.
    """

    __slots__ = ("current", "epoch_bumps", "failure", "max_dedup_batches")

    bumps_own_epoch = True
    """The producer bumps the epoch itself; otherwise its transaction coordinator does."""

    def __init__(self) -> None:
        self.current: ProducerIdAndEpoch | None = None
        self.epoch_bumps = 0
        self.failure: KafkaError | None = None
        self.max_dedup_batches = DEDUP_BATCHES

    @property
    def needs_producer_id(self) -> bool:
        """True if the producer must request a producer id (InitProducerId)."""
        return self.current is None

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """Set the producer id that a broker assigned, unless there is one."""
        self.failure = None
        if self.current is None:
            self.current = ProducerIdAndEpoch(producer_id, epoch)

    def bump_epoch(self, identity: ProducerIdAndEpoch) -> None:
        """Bump the epoch of `identity`, unless it was bumped already."""
        if self.current == identity:
            self.epoch_bumps += 1
            last = identity.epoch >= MAX_EPOCH
            # mutation: epoch-not-bumped-after-gap
            self.current = (
                None if last else ProducerIdAndEpoch(identity.producer_id, identity.epoch + 1)
            )

    def can_send_to(self, _: TopicPartition) -> bool:
        """Return whether records may be sent to a partition now."""
        return True


class TransactionalProducerIdState(ProducerIdState):
    """Producer id and epoch of a transactional producer, assigned by its coordinator.

    Args:
        can_send_to: Returns whether records may be sent to a partition now.
        request_epoch_bump: Called when a partition needs a new epoch.
    """

    __slots__ = ("_can_send_to", "_request_epoch_bump")

    bumps_own_epoch = False

    def __init__(
        self, can_send_to: Callable[[TopicPartition], bool], request_epoch_bump: Callable[[], None]
    ) -> None:
        super().__init__()
        self._can_send_to = can_send_to
        self._request_epoch_bump = request_epoch_bump

    @property
    def needs_producer_id(self) -> bool:
        return False

    def can_send_to(self, partition: TopicPartition) -> bool:
        return self._can_send_to(partition)

    def bump_epoch(self, identity: ProducerIdAndEpoch) -> None:
        if self.current == identity:
            self._request_epoch_bump()


# --- sequence numbers of one partition ---


@dataclass(frozen=True, slots=True)
class Unsequenced:
    """No batch is sequenced; the first one gets 0, under an identity that is new here."""


class Sequencing(NamedTuple):
    """Batches get consecutive sequence numbers under one identity."""

    identity: ProducerIdAndEpoch
    next_sequence: int


@dataclass(frozen=True, slots=True)
class Draining:
    """There is a gap: no batch gets a sequence number until all sequenced batches are done.

    Attributes:
        certain: The log has the gap too, so a later batch refused as out of order is not in it.
        resume_at: Sequence number that the log expects next, if that is certain.
    """

    identity: ProducerIdAndEpoch
    certain: bool
    resume_at: int | None = None


State = Unsequenced | Sequencing | Draining


class SequenceAssigned(NamedTuple):
    """A batch of `size` records gets the next sequence numbers."""

    identity: ProducerIdAndEpoch
    size: int


@dataclass(frozen=True, slots=True)
class SequencedBatchFailed:
    """A sequenced batch failed; `certain` if it is not in the log."""

    sequence: BatchSequence
    count: int
    certain: bool


@dataclass(frozen=True, slots=True)
class SequencesInvalidated:
    """The log no longer knows the sequence numbers."""


@dataclass(frozen=True, slots=True)
class SequencesDrained:
    """All sequenced batches are done."""


@dataclass(frozen=True, slots=True)
class SequencesResumed:
    """All sequenced batches are done; continue with the number that the log expects."""


def _assign_first(_: Unsequenced, event: SequenceAssigned) -> State:
    return Sequencing(event.identity, advance(0, event.size))


def _assign_next(state: Sequencing, event: SequenceAssigned) -> State:
    if event.identity is not state.identity and event.identity != state.identity:
        raise ValueError("the producer id or epoch changed before the partition was drained")
    return Sequencing(state.identity, advance(state.next_sequence, event.size))


def _fail(state: Sequencing, event: SequencedBatchFailed) -> State:
    sequence = event.sequence
    is_last = advance(sequence.base_sequence, event.count) == state.next_sequence
    if event.certain and is_last:
        # The broker never accepted these numbers, and no later ones are in use: reuse them.
        # mutation: sequence-kept-after-refusal
        return Sequencing(state.identity, sequence.base_sequence)
    resume_at = sequence.base_sequence if event.certain else None
    return Draining(state.identity, event.certain, resume_at)


def _fail_again(state: Draining, event: SequencedBatchFailed) -> State:
    resume_at = None
    if event.certain and state.resume_at is not None:
        resume_at = _earlier(state.resume_at, event.sequence.base_sequence)
    return Draining(state.identity, state.certain and event.certain, resume_at)


def _invalidate(state: Sequencing | Draining, _: SequencesInvalidated) -> State:
    return Draining(state.identity, isinstance(state, Sequencing) or state.certain)


def _resume(state: Draining, _: SequencesResumed) -> State:
    return state if state.resume_at is None else Sequencing(state.identity, state.resume_at)


def _stay(state: State, _: SequencesInvalidated) -> State:
    return state


def _restart(_: State, __: SequencesDrained) -> State:
    return Unsequenced()


TRANSITIONS: Mapping[tuple[type[Any], type[Any]], Callable[[Any, Any], State]] = {
    (Unsequenced, SequenceAssigned): _assign_first,
    (Unsequenced, SequencesInvalidated): _stay,
    (Sequencing, SequenceAssigned): _assign_next,
    (Sequencing, SequencedBatchFailed): _fail,
    (Sequencing, SequencesInvalidated): _invalidate,
    (Sequencing, SequencesDrained): _restart,
    (Draining, SequencedBatchFailed): _fail_again,
    (Draining, SequencesInvalidated): _invalidate,
    (Draining, SequencesDrained): _restart,
    (Draining, SequencesResumed): _resume,
}
"""(state, event) -> the next state; other pairs raise `InvalidTransition`."""


class PartitionSequences:
    """Assigns the sequence numbers of one partition."""

    __slots__ = ("_acked_producer_id", "producer_id_state", "state")

    def __init__(self, producer_id_state: ProducerIdState) -> None:
        self.producer_id_state = producer_id_state
        self.state: State = Unsequenced()
        self._acked_producer_id: int | None = None

    @property
    def first_batch_pending(self) -> bool:
        """True if only one batch may be in flight, because none was acknowledged yet.

        A log without state of a producer id accepts any sequence number as the first one. A second
        batch in flight could therefore be appended before the first.
        """
        current = self.producer_id_state.current
        # mutation: first-batches-in-flight-together
        return current is None or current.producer_id != self._acked_producer_id

    def acknowledged(self, sequence: BatchSequence) -> None:
        """Note that a batch was appended: the log knows the producer id now."""
        self._acked_producer_id = sequence.identity.producer_id

    def producer_id_expired(self) -> None:
        """Note that the broker may have expired the producer id."""
        self._acked_producer_id = None

    @property
    def draining(self) -> bool:
        """True if new batches must wait until all sequenced batches are done."""
        return type(self.state) is Draining

    @property
    def gap_certain(self) -> bool:
        """True if a batch that is rejected as out of order is certainly not in the log."""
        return not isinstance(self.state, Draining) or self.state.certain

    def can_assign(self, any_sequenced: bool) -> bool:
        """Return whether a new batch may get a sequence number; bump the epoch if it is due.

        Args:
            any_sequenced: Another batch has a sequence number and is not done.
        """
        current = self.producer_id_state.current
        state = self.state
        if isinstance(state, Unsequenced):
            return current is not None
        # The identity check is fast; equality compares field by field.
        same = state.identity is current or state.identity == current
        if same and isinstance(state, Sequencing):
            return True
        if any_sequenced:
            return False
        if same:
            self.producer_id_state.bump_epoch(state.identity)
            if self.producer_id_state.current == state.identity:
                return False  # the coordinator has not raised the epoch yet
        self._handle(SequencesDrained())
        return self.producer_id_state.current is not None

    def assign(self, count: int) -> BatchSequence:
        """Assign sequence numbers to a batch of `count` records; only if `can_assign`."""
        identity, state = self.producer_id_state.current, self.state
        if type(state) is Sequencing and state.identity is identity:  # the usual `_assign_next`
            base = state.next_sequence
            self.state = _tuple(Sequencing, (identity, (base + count) % SEQUENCE_MODULUS))
            return _tuple(BatchSequence, (identity, base))
        if identity is None:
            raise ValueError("no producer id is assigned yet")
        base = state.next_sequence if isinstance(state, Sequencing) else 0
        self._handle(SequenceAssigned(identity, count))
        return BatchSequence(identity, base)

    def batch_failed(self, sequence: BatchSequence, count: int, certain: bool) -> None:
        """Handle a sequenced batch that failed and is not retried."""
        self._handle(SequencedBatchFailed(sequence, count, certain))

    def invalidate(self) -> None:
        """Handle a log that lost the sequence numbers, or a recreated topic."""
        self._acked_producer_id = None
        self._handle(SequencesInvalidated())

    def resume(self) -> None:
        """Continue in the same epoch, if the number that the log expects is certain.

        Only while no batch is sequenced.
        """
        if self.draining:
            self._handle(SequencesResumed())

    def _handle(
        self,
        event: SequenceAssigned
        | SequencedBatchFailed
        | SequencesInvalidated
        | SequencesDrained
        | SequencesResumed,
    ) -> None:
        self.state = transition(TRANSITIONS, self.state, event)(self.state, event)
