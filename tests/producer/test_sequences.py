"""Sequence numbers of a partition: every state with every event."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.producer.sequences import (
    MAX_EPOCH,
    SEQUENCE_MODULUS,
    TRANSITIONS,
    BatchSequence,
    Draining,
    PartitionSequences,
    ProducerIdState,
    SequenceAssigned,
    SequencedBatchFailed,
    SequencesDrained,
    SequencesInvalidated,
    SequencesResumed,
    Sequencing,
    Unsequenced,
    advance,
)
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.types import ProducerIdAndEpoch

ME = ProducerIdAndEpoch(7, 0)
STATES = [
    Unsequenced(),
    Sequencing(ME, 10),
    Draining(ME, True),
    Draining(ME, False),
    Draining(ME, True, 4),
]
EVENTS = [
    SequenceAssigned(ME, 3),
    SequencedBatchFailed(BatchSequence(ME, 7), 3, True),
    SequencedBatchFailed(BatchSequence(ME, 7), 3, False),
    SequencedBatchFailed(BatchSequence(ME, 2), 3, True),
    SequencedBatchFailed(BatchSequence(ME, 2), 3, False),
    SequencesInvalidated(),
    SequencesDrained(),
    SequencesResumed(),
]
EXPECTED = {
    (0, 0): Sequencing(ME, 3),
    (0, 5): Unsequenced(),
    (1, 0): Sequencing(ME, 13),
    (1, 1): Sequencing(ME, 7),
    (1, 2): Draining(ME, False),
    (1, 3): Draining(ME, True, 2),
    (1, 4): Draining(ME, False),
    (1, 5): Draining(ME, True),
    (1, 6): Unsequenced(),
    (2, 1): Draining(ME, True),
    (2, 2): Draining(ME, False),
    (2, 3): Draining(ME, True),
    (2, 4): Draining(ME, False),
    (2, 5): Draining(ME, True),
    (2, 6): Unsequenced(),
    (2, 7): Draining(ME, True),
    (3, 1): Draining(ME, False),
    (3, 2): Draining(ME, False),
    (3, 3): Draining(ME, False),
    (3, 4): Draining(ME, False),
    (3, 5): Draining(ME, False),
    (3, 6): Unsequenced(),
    (3, 7): Draining(ME, False),
    (4, 1): Draining(ME, True, 4),
    (4, 2): Draining(ME, False),
    (4, 3): Draining(ME, True, 2),
    (4, 4): Draining(ME, False),
    (4, 5): Draining(ME, True),
    (4, 6): Unsequenced(),
    (4, 7): Sequencing(ME, 4),
}


@pytest.mark.parametrize("event", range(len(EVENTS)))
@pytest.mark.parametrize("state", range(len(STATES)))
def test_every_state_with_every_event(state: int, event: int):
    transition = TRANSITIONS.get((type(STATES[state]), type(EVENTS[event])))
    expected = EXPECTED.get((state, event))
    if expected is None:
        assert transition is None
    else:
        assert transition is not None
        assert transition(STATES[state], EVENTS[event]) == expected


def test_advance_wraps_to_zero():
    assert advance(SEQUENCE_MODULUS - 1, 1) == 0
    assert advance(SEQUENCE_MODULUS - 2, 5) == 3


@pytest.mark.parametrize("order", [(-3, 2), (2, -3)])
def test_resume_at_the_first_failed_sequence_across_the_wrap(
    order: tuple[int, int],
):
    state: Any = Sequencing(ME, 12)
    for number in order:
        event = SequencedBatchFailed(BatchSequence(ME, number % SEQUENCE_MODULUS), 5, True)
        state = TRANSITIONS[type(state), SequencedBatchFailed](state, event)
    assert state == Draining(ME, True, SEQUENCE_MODULUS - 3)


def test_an_identity_changes_only_when_drained():
    with pytest.raises(ValueError, match="drained"):
        TRANSITIONS[Sequencing, SequenceAssigned](
            Sequencing(ME, 1), SequenceAssigned(ProducerIdAndEpoch(7, 1), 1)
        )


def test_an_event_that_cannot_happen_is_an_error():
    sequences = PartitionSequences(ProducerIdState())
    with pytest.raises(InvalidTransition, match="cannot happen"):
        sequences.batch_failed(BatchSequence(ME, 0), 1, True)


def test_assign_needs_a_producer_id():
    sequences = PartitionSequences(ProducerIdState())
    assert not sequences.can_assign(any_sequenced=False)
    with pytest.raises(ValueError, match="no producer id"):
        sequences.assign(1)


def test_a_drained_gap_bumps_the_epoch():
    producer_id_state = ProducerIdState()
    producer_id_state.set_producer_id(7, 0)
    sequences = PartitionSequences(producer_id_state)
    first = sequences.assign(5)
    sequences.batch_failed(first, 5, certain=False)
    assert not sequences.can_assign(any_sequenced=True)
    assert producer_id_state.current == ProducerIdAndEpoch(7, 0)
    assert sequences.can_assign(any_sequenced=False)
    assert sequences.assign(2) == BatchSequence(ProducerIdAndEpoch(7, 1), 0)


def test_two_partitions_with_gaps_bump_the_epoch_once():
    producer_id_state = ProducerIdState()
    producer_id_state.set_producer_id(7, 0)
    partitions = [PartitionSequences(producer_id_state) for _ in range(2)]
    for sequences in partitions:
        sequences.batch_failed(sequences.assign(1), 1, certain=False)
    for sequences in partitions:
        assert sequences.can_assign(any_sequenced=False)
        assert sequences.assign(1) == BatchSequence(ProducerIdAndEpoch(7, 1), 0)


def test_after_the_last_epoch_a_new_producer_id_is_needed():
    producer_id_state = ProducerIdState()
    producer_id_state.set_producer_id(7, MAX_EPOCH)
    sequences = PartitionSequences(producer_id_state)
    sequences.batch_failed(sequences.assign(1), 1, certain=False)
    assert not sequences.can_assign(any_sequenced=False)
    assert producer_id_state.needs_producer_id
    producer_id_state.set_producer_id(8, 0)
    producer_id_state.set_producer_id(9, 0)  # A second response changes nothing.
    assert sequences.can_assign(any_sequenced=False)
    assert sequences.assign(1) == BatchSequence(ProducerIdAndEpoch(8, 0), 0)


def test_the_first_batch_is_pending_until_it_is_acknowledged():
    producer_id_state = ProducerIdState()
    sequences = PartitionSequences(producer_id_state)
    assert sequences.first_batch_pending
    producer_id_state.set_producer_id(7, 0)
    sequence = sequences.assign(1)
    assert sequences.first_batch_pending
    sequences.acknowledged(sequence)
    assert not sequences.first_batch_pending
    sequences.invalidate()
    assert sequences.first_batch_pending
