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
    "MAX_EPOCH",
    "REMEMBERED_BATCHES",
    "SEQUENCE_MODULUS",
    "TRANSITIONS",
    "CoordinatedIdentities",
    "Draining",
    "Flowing",
    "Identities",
    "PartitionSequences",
    "Stamp",
    "Unnumbered",
    "advance",
)

REMEMBERED_BATCHES = 5
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


class Stamp(NamedTuple):
    """The number of a batch's first record, and whose number it is."""

    identity: ProducerIdAndEpoch
    base_sequence: int


# --- the producer's identity -----------------------------------------------------------------


class Identities:
    """The identity in use: none yet, or one whose epoch rises until its epochs are used up.

    `remembered`: so many batches a log knows again, of all that were written to the least.
    """

    __slots__ = ("current", "failure", "raised", "remembered")

    local = True
    """Whether the producer raises the epoch itself."""

    def __init__(self) -> None:
        self.current: ProducerIdAndEpoch | None = None
        self.raised = 0  # how often
        self.failure: KafkaError | None = None  # why there is none yet
        self.remembered = REMEMBERED_BATCHES

    @property
    def wanted(self) -> bool:
        """Whether a broker must be asked for a producer id."""
        return self.current is None

    def granted(self, producer_id: int, epoch: int) -> None:
        """A broker gave a producer id."""
        self.failure = None
        if self.current is None:
            self.current = ProducerIdAndEpoch(producer_id, epoch)

    def leave(self, identity: ProducerIdAndEpoch) -> None:
        """No partition may begin under `identity` again: raise the epoch, if not done already."""
        if self.current == identity:
            self.raised += 1
            last = identity.epoch >= MAX_EPOCH
            # mutation: epoch-not-bumped-after-gap
            self.current = (
                None if last else ProducerIdAndEpoch(identity.producer_id, identity.epoch + 1)
            )

    def admits(self, _: TopicPartition) -> bool:
        """Whether records may be sent to a partition now."""
        return True


class CoordinatedIdentities(Identities):
    """The identity of a producer with transactions, which its coordinator gives and raises.

    `admits` tells which partitions may be sent to now; `on_left` is called when a partition cannot
    begin again under the identity in use.
    """

    __slots__ = ("_admits", "_on_left")

    local = False

    def __init__(
        self, admits: Callable[[TopicPartition], bool], on_left: Callable[[], None]
    ) -> None:
        super().__init__()
        self._admits = admits
        self._on_left = on_left

    @property
    def wanted(self) -> bool:
        return False

    def admits(self, partition: TopicPartition) -> bool:
        return self._admits(partition)

    def leave(self, identity: ProducerIdAndEpoch) -> None:
        if self.current == identity:
            self._on_left()


# --- the numbers of one partition ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unnumbered:
    """No batch has a number; the first one begins at 0, under an identity not used here before."""


class Flowing(NamedTuple):
    """Batches get consecutive numbers under one identity."""

    identity: ProducerIdAndEpoch
    next_sequence: int


@dataclass(frozen=True, slots=True)
class Draining:
    """There is a gap: nothing new gets a number until all that has one has its outcome.

    `certain` tells that the log surely has the gap too, so that a later batch refused for its
    number surely is not in there. `resume` is the number that the log expects, where that is sure.
    """

    identity: ProducerIdAndEpoch
    certain: bool
    resume: int | None = None


State = Unnumbered | Flowing | Draining


class Numbered(NamedTuple):
    """A batch of `size` records takes the next numbers of `identity`."""

    identity: ProducerIdAndEpoch
    size: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A numbered batch will not be in the log (`certain`), or nobody will know whether it is."""

    stamp: Stamp
    count: int
    certain: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """The numbers mean nothing to the log any more."""


@dataclass(frozen=True, slots=True)
class Drained:
    """No batch has a number any more."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """No batch has a number any more, and the next one gets that which the log expects."""


def _begin(_: Unnumbered, event: Numbered) -> State:
    return Flowing(event.identity, advance(0, event.size))


def _go_on(state: Flowing, event: Numbered) -> State:
    if event.identity is not state.identity and event.identity != state.identity:
        raise ValueError("a partition changes its identity only when it is drained")
    return Flowing(state.identity, advance(state.next_sequence, event.size))


def _fail(state: Flowing, event: Failed) -> State:
    stamp = event.stamp
    is_last = advance(stamp.base_sequence, event.count) == state.next_sequence
    if event.certain and is_last:
        # The broker never took these numbers, and none after them are in use: give them again.
        # mutation: sequence-kept-after-refusal
        return Flowing(state.identity, stamp.base_sequence)
    resume = stamp.base_sequence if event.certain else None
    return Draining(state.identity, event.certain, resume)


def _fail_again(state: Draining, event: Failed) -> State:
    resume = None
    if event.certain and state.resume is not None:
        resume = _earlier(state.resume, event.stamp.base_sequence)
    return Draining(state.identity, state.certain and event.certain, resume)


def _lose(state: Flowing | Draining, _: Lost) -> State:
    return Draining(state.identity, isinstance(state, Flowing) or state.certain)


def _resume(state: Draining, _: Resumed) -> State:
    return state if state.resume is None else Flowing(state.identity, state.resume)


def _stay(state: State, _: Lost) -> State:
    return state


def _restart(_: State, __: Drained) -> State:
    return Unnumbered()


TRANSITIONS: Mapping[tuple[type[Any], type[Any]], Callable[[Any, Any], State]] = {
    (Unnumbered, Numbered): _begin,
    (Unnumbered, Lost): _stay,
    (Flowing, Numbered): _go_on,
    (Flowing, Failed): _fail,
    (Flowing, Lost): _lose,
    (Flowing, Drained): _restart,
    (Draining, Failed): _fail_again,
    (Draining, Lost): _lose,
    (Draining, Drained): _restart,
    (Draining, Resumed): _resume,
}
"""(state, event) -> the next state; a pair that is absent cannot happen."""


class PartitionSequences:
    """Numbers the batches of one partition."""

    __slots__ = ("_known_producer_id", "identities", "state")

    def __init__(self, identities: Identities) -> None:
        self.identities = identities
        self.state: State = Unnumbered()
        self._known_producer_id: int | None = None

    @property
    def alone(self) -> bool:
        """Whether only one batch may be on its way.

        A log that knows nothing of a producer id takes any number as the first one. A second batch
        under way could so come before the first, which nobody could put right any more.
        """
        current = self.identities.current
        # mutation: first-batches-in-flight-together
        return current is None or current.producer_id != self._known_producer_id

    def acknowledged(self, stamp: Stamp) -> None:
        """A batch is in the log: from now on the broker knows the producer id there."""
        self._known_producer_id = stamp.identity.producer_id

    def doubted(self) -> None:
        """The log may have forgotten the producer id."""
        self._known_producer_id = None

    @property
    def draining(self) -> bool:
        """Whether nothing new gets a number until all that has one has its outcome."""
        return type(self.state) is Draining

    @property
    def gap_certain(self) -> bool:
        """Whether a batch refused for its number surely is not in the log."""
        return not isinstance(self.state, Draining) or self.state.certain

    def ready(self, anything_numbered: bool) -> bool:
        """Whether a new batch may get a number now; `anything_numbered` tells whether another one
        that has its number waits for its outcome. Moves on to a new identity where that is due."""
        current = self.identities.current
        state = self.state
        if isinstance(state, Unnumbered):
            return current is not None
        # Mostly it is the very same; two that are not are compared field by field.
        same = state.identity is current or state.identity == current
        if same and isinstance(state, Flowing):
            return True
        if anything_numbered:
            return False
        if same:
            self.identities.leave(state.identity)
            if self.identities.current == state.identity:
                return False  # the coordinator has not raised the epoch yet
        self._handle(Drained())
        return self.identities.current is not None

    def stamp(self, count: int) -> Stamp:
        """Give numbers to a batch of `count` records; only when `ready`."""
        identity = self.identities.current
        if identity is None:
            raise ValueError("there is no producer id yet")
        state = self.state
        if type(state) is Flowing and state.identity is identity:  # `_go_on`, as mostly
            base = state.next_sequence
            self.state = _tuple(Flowing, (identity, (base + count) % SEQUENCE_MODULUS))
            return _tuple(Stamp, (identity, base))
        base = state.next_sequence if isinstance(state, Flowing) else 0
        self._handle(Numbered(identity, count))
        return Stamp(identity, base)

    def failed(self, stamp: Stamp, count: int, certain: bool) -> None:
        """A numbered batch failed for good."""
        self._handle(Failed(stamp, count, certain))

    def lost(self) -> None:
        """The numbers of this partition mean nothing to its log any more: the broker lost them, or
        the topic was made anew."""
        self._known_producer_id = None
        self._handle(Lost())

    def resume(self) -> None:
        """Go on under the same identity, if what the log expects is sure; only when no batch has a
        number."""
        if self.draining:
            self._handle(Resumed())

    def _handle(self, event: Numbered | Failed | Lost | Drained | Resumed) -> None:
        state = self.state
        change = TRANSITIONS.get((type(state), type(event)))
        if change is None:
            change = transition(TRANSITIONS, state, event)
        self.state = change(state, event)
