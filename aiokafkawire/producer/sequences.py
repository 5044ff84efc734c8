"""The numbers that let a broker drop duplicates and refuse gaps.

A producer has an identity (producer id and epoch); in each partition its batches are numbered from
0 on under that identity, and a broker takes only the next number. A batch that failed, or whose
outcome will never be known, leaves a gap that no later number can pass. The partition is then
drained: whatever was numbered gets its outcome under the old identity, the rest waits; afterwards
the producer raises its epoch under the same producer id (KIP-360), which makes a broker refuse
what may still be on its way with the old one, and numbers from 0 again. Other partitions go on
under the old epoch until they have nothing under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.transitions import transition
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
"""So many batches of a producer a log knows again, the last ones (Kafka 0.11: one). One that has no
answer must be among them: refused for its number it counts as not in the log, and goes under
another one."""

MAX_EPOCH = 2**15 - 1
SEQUENCE_MODULUS = 2**31


_tuple = tuple.__new__  # checks nothing, at half the time


def advance(sequence: int, count: int) -> int:
    """The number `count` records after `sequence`; after 2**31 - 1 comes 0."""
    return (sequence + count) % SEQUENCE_MODULUS


def _earlier(one: int, other: int) -> int:
    """Which of two numbers in use at a time was given first."""
    ahead = (other - one) % SEQUENCE_MODULUS
    return one if ahead < SEQUENCE_MODULUS // 2 else other


class BatchSequence(NamedTuple):
    """The number of a batch's first record, and whose number it is."""

    identity: ProducerIdAndEpoch
    base_sequence: int


# --- the producer's identity -----------------------------------------------------------------


class ProducerIdState:
    """The identity in use: none yet, or one whose epoch rises until its epochs are used up.

    `max_dedup_batches`: so many batches a log knows again, of all that were written to the least.
    """

    __slots__ = ("current", "epoch_bumps", "failure", "max_dedup_batches")

    bumps_own_epoch = True
    """Whether the producer raises the epoch itself."""

    def __init__(self) -> None:
        self.current: ProducerIdAndEpoch | None = None
        self.epoch_bumps = 0  # how often
        self.failure: KafkaError | None = None  # why there is none yet
        self.max_dedup_batches = DEDUP_BATCHES

    @property
    def needs_producer_id(self) -> bool:
        """Whether a broker must be asked for a producer id."""
        return self.current is None

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """A broker gave a producer id."""
        self.failure = None
        if self.current is None:
            self.current = ProducerIdAndEpoch(producer_id, epoch)

    def bump_epoch(self, identity: ProducerIdAndEpoch) -> None:
        """No partition may begin under `identity` again: raise the epoch, if not done already."""
        if self.current == identity:
            self.epoch_bumps += 1
            last = identity.epoch >= MAX_EPOCH
            # mutation: epoch-not-bumped-after-gap
            self.current = (
                None if last else ProducerIdAndEpoch(identity.producer_id, identity.epoch + 1)
            )

    def can_send_to(self, _: TopicPartition) -> bool:
        """Whether records may be sent to a partition now."""
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


# --- the numbers of one partition ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unsequenced:
    """No batch has a number; the first one begins at 0, under an identity not used here before."""


class Sequencing(NamedTuple):
    """Batches get consecutive numbers under one identity."""

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
    """A batch of `size` records takes the next numbers of `identity`."""

    identity: ProducerIdAndEpoch
    size: int


@dataclass(frozen=True, slots=True)
class SequencedBatchFailed:
    """A numbered batch will not be in the log (`certain`), or nobody will know whether it is."""

    sequence: BatchSequence
    count: int
    certain: bool


@dataclass(frozen=True, slots=True)
class SequencesInvalidated:
    """The numbers mean nothing to the log any more."""


@dataclass(frozen=True, slots=True)
class SequencesDrained:
    """No batch has a number any more."""


@dataclass(frozen=True, slots=True)
class SequencesResumed:
    """No batch has a number any more, and the next one gets that which the log expects."""


def _assign_first(_: Unsequenced, event: SequenceAssigned) -> State:
    return Sequencing(event.identity, advance(0, event.size))


def _assign_next(state: Sequencing, event: SequenceAssigned) -> State:
    if event.identity is not state.identity and event.identity != state.identity:
        raise ValueError("a partition changes its identity only when it is drained")
    return Sequencing(state.identity, advance(state.next_sequence, event.size))


def _fail(state: Sequencing, event: SequencedBatchFailed) -> State:
    sequence = event.sequence
    is_last = advance(sequence.base_sequence, event.count) == state.next_sequence
    if event.certain and is_last:
        # The broker never took these numbers, and none after them are in use: give them again.
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
"""(state, event) -> the next state; a pair that is absent cannot happen."""


class PartitionSequences:
    """Numbers the batches of one partition."""

    __slots__ = ("_acked_producer_id", "producer_id_state", "state")

    def __init__(self, producer_id_state: ProducerIdState) -> None:
        self.producer_id_state = producer_id_state
        self.state: State = Unsequenced()
        self._acked_producer_id: int | None = None

    @property
    def first_batch_pending(self) -> bool:
        """Whether only one batch may be on its way.

        A log that knows nothing of a producer id takes any number as the first one. A second batch
        under way could so come before the first, which nobody could put right any more.
        """
        current = self.producer_id_state.current
        # mutation: first-batches-in-flight-together
        return current is None or current.producer_id != self._acked_producer_id

    def acknowledged(self, sequence: BatchSequence) -> None:
        """A batch is in the log: from now on the broker knows the producer id there."""
        self._acked_producer_id = sequence.identity.producer_id

    def producer_id_expired(self) -> None:
        """The log may have forgotten the producer id."""
        self._acked_producer_id = None

    @property
    def draining(self) -> bool:
        """Whether nothing new gets a number until all that has one has its outcome."""
        return type(self.state) is Draining

    @property
    def gap_certain(self) -> bool:
        """Whether a batch refused for its number surely is not in the log."""
        return not isinstance(self.state, Draining) or self.state.certain

    def can_assign(self, any_sequenced: bool) -> bool:
        """Whether a new batch may get a number now; `any_sequenced` tells whether another one
        that has its number waits for its outcome. Moves on to a new identity where that is due."""
        current = self.producer_id_state.current
        state = self.state
        if isinstance(state, Unsequenced):
            return current is not None
        # Mostly it is the very same; two that are not are compared field by field.
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
        """Give numbers to a batch of `count` records; only when `can_assign`."""
        identity = self.producer_id_state.current
        if identity is None:
            raise ValueError("there is no producer id yet")
        state = self.state
        if type(state) is Sequencing and state.identity is identity:  # `_assign_next`, as mostly
            base = state.next_sequence
            self.state = _tuple(Sequencing, (identity, (base + count) % SEQUENCE_MODULUS))
            return _tuple(BatchSequence, (identity, base))
        base = state.next_sequence if isinstance(state, Sequencing) else 0
        self._handle(SequenceAssigned(identity, count))
        return BatchSequence(identity, base)

    def batch_failed(self, sequence: BatchSequence, count: int, certain: bool) -> None:
        """A numbered batch failed for good."""
        self._handle(SequencedBatchFailed(sequence, count, certain))

    def invalidate(self) -> None:
        """The numbers of this partition mean nothing to its log any more: the broker lost them, or
        the topic was made anew."""
        self._acked_producer_id = None
        self._handle(SequencesInvalidated())

    def resume(self) -> None:
        """Go on under the same identity, if what the log expects is sure; only when no batch has a
        number."""
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
        state = self.state
        handler = TRANSITIONS.get((type(state), type(event)))
        if handler is None:
            handler = transition(TRANSITIONS, state, event)
        self.state = handler(state, event)
