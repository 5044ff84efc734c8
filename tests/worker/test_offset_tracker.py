"""The offset that may be committed, against a model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.records import Record, Records
from aiokafkawire.records.sequence import Segment
from aiokafkawire.types import NO_LEADER_EPOCH, OffsetAndMetadata
from aiokafkawire.worker.offset_tracker import OffsetTracker


def records(*offsets: int, leader_epoch: int = 3) -> list[Record]:
    return [Record("t", 0, offset, leader_epoch=leader_epoch) for offset in offsets]


def fetched(single: Sequence[Record]) -> Records:
    """Return records as the consumer does, each of a batch of its own."""
    columns: Any = SimpleNamespace(offsets=[record.offset for record in single])
    segments = [
        Segment(columns, at, at + 1, 0, record.leader_epoch) for at, record in enumerate(single)
    ]
    return Records("t", 0, segments, single[-1].offset + 1)


def test_nothing_is_committed_before_the_first_record():
    assert OffsetTracker().committable is None


@given(st.sets(st.integers(0, 60), min_size=1).map(sorted), st.randoms(use_true_random=False))
def test_the_lowest_unfinished_record_is_committed(offsets: list[int], rng: random.Random):
    tracker = OffsetTracker()
    middle = rng.randint(0, len(offsets))
    for part in (offsets[:middle], offsets[middle:]):
        if part:
            tracker.add(records(*part))
    unfinished = list(offsets)
    for offset in rng.sample(offsets, len(offsets)):
        tracker.finish(records(offset))
        unfinished.remove(offset)
        committable = tracker.committable
        assert committable is not None
        assert committable.offset == (unfinished[0] if unfinished else offsets[-1] + 1)
        assert len(tracker) == sum(o >= committable.offset for o in offsets)


def test_the_leader_epoch_is_that_of_the_record_before():
    tracker = OffsetTracker()
    tracker.add(records(5, 6, leader_epoch=1))
    assert tracker.committable == OffsetAndMetadata(5, leader_epoch=NO_LEADER_EPOCH)
    tracker.add(records(9, leader_epoch=2))
    tracker.finish(records(5))
    assert tracker.committable == OffsetAndMetadata(6, leader_epoch=1)
    tracker.finish(records(6))
    assert tracker.committable == OffsetAndMetadata(9, leader_epoch=1)
    tracker.finish(records(9))
    assert tracker.committable == OffsetAndMetadata(10, leader_epoch=2)


def test_a_position_behind_the_last_record_is_committed_when_all_are_finished():
    tracker = OffsetTracker()
    tracker.skip_to(OffsetAndMetadata(3, leader_epoch=1))
    assert tracker.committable == OffsetAndMetadata(3, leader_epoch=1)
    tracker.add(records(5, 6, leader_epoch=1))
    tracker.skip_to(OffsetAndMetadata(9, leader_epoch=2))
    tracker.finish(records(6))
    assert tracker.committable == OffsetAndMetadata(5, leader_epoch=1)
    tracker.finish(records(5))
    # The epoch is that of the marker: an older one would look like a truncated log (KIP-320).
    assert tracker.committable == OffsetAndMetadata(9, leader_epoch=2)
    tracker.skip_to(OffsetAndMetadata(7, leader_epoch=1))
    assert tracker.committable == OffsetAndMetadata(9, leader_epoch=2)
    tracker.add(records(9, leader_epoch=2))
    assert tracker.committable == OffsetAndMetadata(9, leader_epoch=2)
    tracker.finish(records(9))
    assert tracker.committable == OffsetAndMetadata(10, leader_epoch=2)


def test_positions_behind_an_unfinished_record_take_no_memory():
    tracker = OffsetTracker()
    tracker.add(records(0, leader_epoch=1))
    for offset in range(2, 100):
        tracker.skip_to(OffsetAndMetadata(offset, leader_epoch=1))
    assert len(tracker._epochs) == 1
    tracker.finish(records(0))
    assert tracker.committable == OffsetAndMetadata(99, leader_epoch=1)


@pytest.mark.parametrize("is_fetched", [False, True])
def test_a_fetch_across_several_leader_epochs(is_fetched: bool):
    tracker = OffsetTracker()
    added = [record for epoch in (1, 2, 3) for record in records(epoch, leader_epoch=epoch)]
    tracker.add(fetched(added) if is_fetched else added)
    tracker.finish(added[:1])
    assert tracker.committable == OffsetAndMetadata(2, leader_epoch=1)
    tracker.finish(added[1:2])
    assert tracker.committable == OffsetAndMetadata(3, leader_epoch=2)
