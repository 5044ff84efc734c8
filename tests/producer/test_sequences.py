"""The numbers of a partition: every state with every event."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.producer.sequences import (
    MAX_EPOCH,
    SEQUENCE_MODULUS,
    TRANSITIONS,
    Drained,
    Draining,
    Failed,
    Flowing,
    Identities,
    Lost,
    Numbered,
    PartitionSequences,
    Resumed,
    Stamp,
    Unnumbered,
    advance,
)
from aiokafkawire.runtime.transitions import ImpossibleEvent
from aiokafkawire.types import ProducerIdAndEpoch

ME = ProducerIdAndEpoch(7, 0)
STATES = [
    Unnumbered(),
    Flowing(ME, 10),
    Draining(ME, True),
    Draining(ME, False),
    Draining(ME, True, 4),
]
EVENTS = [
    Numbered(ME, 3),
    Failed(Stamp(ME, 7), 3, True),
    Failed(Stamp(ME, 7), 3, False),
    Failed(Stamp(ME, 2), 3, True),
    Failed(Stamp(ME, 2), 3, False),
    Lost(),
    Drained(),
    Resumed(),
]
EXPECTED = {
    (0, 0): Flowing(ME, 3),
    (0, 5): Unnumbered(),
    (1, 0): Flowing(ME, 13),
    (1, 1): Flowing(ME, 7),
    (1, 2): Draining(ME, False),
    (1, 3): Draining(ME, True, 2),
    (1, 4): Draining(ME, False),
    (1, 5): Draining(ME, True),
    (1, 6): Unnumbered(),
    (2, 1): Draining(ME, True),
    (2, 2): Draining(ME, False),
    (2, 3): Draining(ME, True),
    (2, 4): Draining(ME, False),
    (2, 5): Draining(ME, True),
    (2, 6): Unnumbered(),
    (2, 7): Draining(ME, True),
    (3, 1): Draining(ME, False),
    (3, 2): Draining(ME, False),
    (3, 3): Draining(ME, False),
    (3, 4): Draining(ME, False),
    (3, 5): Draining(ME, False),
    (3, 6): Unnumbered(),
    (3, 7): Draining(ME, False),
    (4, 1): Draining(ME, True, 4),
    (4, 2): Draining(ME, False),
    (4, 3): Draining(ME, True, 2),
    (4, 4): Draining(ME, False),
    (4, 5): Draining(ME, True),
    (4, 6): Unnumbered(),
    (4, 7): Flowing(ME, 4),
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


def test_sequences_begin_at_zero_again_after_the_last():
    assert advance(SEQUENCE_MODULUS - 1, 1) == 0
    assert advance(SEQUENCE_MODULUS - 2, 5) == 3


@pytest.mark.parametrize("order", [(-3, 2), (2, -3)])
def test_numbers_go_on_from_the_first_that_failed_also_where_they_begin_at_zero_again(
    order: tuple[int, int],
):
    state: Any = Flowing(ME, 12)
    for number in order:
        event = Failed(Stamp(ME, number % SEQUENCE_MODULUS), 5, True)
        state = TRANSITIONS[type(state), Failed](state, event)
    assert state == Draining(ME, True, SEQUENCE_MODULUS - 3)


def test_an_identity_changes_only_when_drained():
    with pytest.raises(ValueError, match="drained"):
        TRANSITIONS[Flowing, Numbered](Flowing(ME, 1), Numbered(ProducerIdAndEpoch(7, 1), 1))


def test_an_event_that_cannot_happen_is_an_error():
    sequences = PartitionSequences(Identities())
    with pytest.raises(ImpossibleEvent, match="cannot happen"):
        sequences.failed(Stamp(ME, 0), 1, True)


def test_a_stamp_needs_an_identity():
    sequences = PartitionSequences(Identities())
    assert not sequences.ready(anything_numbered=False)
    with pytest.raises(ValueError, match="no producer id"):
        sequences.stamp(1)


def test_the_epoch_rises_when_a_gap_is_drained():
    identities = Identities()
    identities.granted(7, 0)
    sequences = PartitionSequences(identities)
    first = sequences.stamp(5)
    sequences.failed(first, 5, certain=False)
    assert not sequences.ready(anything_numbered=True)
    assert identities.current == ProducerIdAndEpoch(7, 0)
    assert sequences.ready(anything_numbered=False)
    assert sequences.stamp(2) == Stamp(ProducerIdAndEpoch(7, 1), 0)


def test_two_partitions_with_gaps_raise_the_epoch_once():
    identities = Identities()
    identities.granted(7, 0)
    partitions = [PartitionSequences(identities) for _ in range(2)]
    for sequences in partitions:
        sequences.failed(sequences.stamp(1), 1, certain=False)
    for sequences in partitions:
        assert sequences.ready(anything_numbered=False)
        assert sequences.stamp(1) == Stamp(ProducerIdAndEpoch(7, 1), 0)


def test_after_the_last_epoch_a_new_producer_id_is_wanted():
    identities = Identities()
    identities.granted(7, MAX_EPOCH)
    sequences = PartitionSequences(identities)
    sequences.failed(sequences.stamp(1), 1, certain=False)
    assert not sequences.ready(anything_numbered=False)
    assert identities.wanted
    identities.granted(8, 0)
    identities.granted(9, 0)  # a second answer changes nothing
    assert sequences.ready(anything_numbered=False)
    assert sequences.stamp(1) == Stamp(ProducerIdAndEpoch(8, 0), 0)


def test_a_new_producer_id_goes_alone_until_it_is_acknowledged():
    identities = Identities()
    sequences = PartitionSequences(identities)
    assert sequences.alone
    identities.granted(7, 0)
    stamp = sequences.stamp(1)
    assert sequences.alone
    sequences.acknowledged(stamp)
    assert not sequences.alone
    sequences.lost()
    assert sequences.alone
