"""Idempotence checks, by example and against a model that keeps the whole log."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aiokafkawire.broker import producer_state
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.producer_state import (
    MAX_SEQUENCE,
    NUM_BATCHES_TO_RETAIN,
    EndTransactionMarker,
    ProducerStateManager,
    SequencedBatch,
    last_sequence,
)
from aiokafkawire.wire import ErrorCode


def batch(
    first: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, offset: int = -1
) -> SequencedBatch:
    return SequencedBatch(producer_id, epoch, first, last_sequence(first, count), offset)


def refused(states: ProducerStateManager, given: SequencedBatch) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        states.check(given)
    return caught.value.code


def with_batches(*given: SequencedBatch) -> ProducerStateManager:
    states = ProducerStateManager()
    for each in given:
        assert states.check(each) is None
        states.on_append(each)
    return states


def test_sequences_follow_each_other() -> None:
    states = with_batches(batch(0, 3), batch(3, 2))
    assert states.check(batch(5)) is None
    assert refused(states, batch(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, batch(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_known_again() -> None:
    states = with_batches(*(batch(i, offset=100 + i) for i in range(NUM_BATCHES_TO_RETAIN + 1)))
    for i in range(1, NUM_BATCHES_TO_RETAIN + 1):
        found = states.check(batch(i))
        assert found is not None
        assert found.first_offset == 100 + i
    assert refused(states, batch(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_of_another_size_is_no_duplicate() -> None:
    states = with_batches(batch(0, 3))
    assert refused(states, batch(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap() -> None:
    states = with_batches(batch(MAX_SEQUENCE - 1, 3))
    assert last_sequence(MAX_SEQUENCE - 1, 3) == 0
    assert states.check(batch(1)) is None
    assert refused(states, batch(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_0_and_ends_the_old_one() -> None:
    states = with_batches(batch(0, 3))
    assert refused(states, batch(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    bumped = batch(0, epoch=1, offset=9)
    assert states.check(bumped) is None
    states.on_append(bumped)
    assert refused(states, batch(3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(batch(0, epoch=1)) == bumped


def test_an_unknown_producer_may_start_anywhere_by_default() -> None:
    assert ProducerStateManager().check(batch(17)) is None
    strict = ProducerStateManager(refuse_unknown=True)
    assert refused(strict, batch(17)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert strict.check(batch(0)) is None


def test_producers_whose_records_are_gone_are_forgotten() -> None:
    states = with_batches(batch(0, offset=5), batch(0, producer_id=8, offset=6))
    states.delete_before_offset(6)
    assert len(states) == 1
    assert states.check(batch(17)) is None


def test_the_longest_silent_producer_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 2)
    states = with_batches(batch(0, producer_id=1), batch(0, producer_id=2), batch(1, producer_id=1))
    states.on_append(batch(0, producer_id=3))
    assert states.check(batch(17, producer_id=2)) is None
    assert refused(states, batch(17, producer_id=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class Idempotence(RuleBasedStateMachine):
    """Producers send, retry, skip and bump epochs; the log stays free of gaps and duplicates."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStateManager()
        self.log: list[SequencedBatch] = []
        self.end = 0
        self.epochs = {1: 0, 2: 0}

    def history(self, producer_id: int) -> list[SequencedBatch]:
        epoch = self.epochs[producer_id]
        return [b for b in self.log if (b.producer_id, b.epoch) == (producer_id, epoch)]

    def next_sequence(self, producer_id: int) -> int:
        mine = self.history(producer_id)
        return mine[-1].last_sequence + 1 if mine else 0

    def append(self, given: SequencedBatch) -> None:
        self.states.on_append(given)
        self.log.append(given)
        self.end += given.last_sequence - given.first_sequence + 1

    @rule(producer_id=st.sampled_from([1, 2]), count=st.integers(1, 4))
    def send(self, producer_id: int, count: int) -> None:
        given = batch(
            self.next_sequence(producer_id),
            count,
            producer_id=producer_id,
            epoch=self.epochs[producer_id],
            offset=self.end,
        )
        assert self.states.check(given) is None
        self.append(given)

    @rule(producer_id=st.sampled_from([1, 2]), back=st.integers(1, 8))
    def send_again(self, producer_id: int, back: int) -> None:
        mine = self.history(producer_id)
        if back > len(mine):
            return
        original = mine[-back]
        again = batch(
            original.first_sequence,
            original.last_sequence - original.first_sequence + 1,
            producer_id=producer_id,
            epoch=original.epoch,
        )
        if back <= NUM_BATCHES_TO_RETAIN:
            assert self.states.check(again) == original
        else:
            assert refused(self.states, again) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer_id=st.sampled_from([1, 2]), gap=st.integers(1, 5))
    def skip(self, producer_id: int, gap: int) -> None:
        if not self.history(producer_id):
            return
        given = batch(
            self.next_sequence(producer_id) + gap,
            producer_id=producer_id,
            epoch=self.epochs[producer_id],
        )
        assert refused(self.states, given) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer_id=st.sampled_from([1, 2]))
    def bump(self, producer_id: int) -> None:
        if not self.history(producer_id):
            return
        old = self.epochs[producer_id]
        self.epochs[producer_id] += 1
        self.send(producer_id, 1)
        late = batch(0, producer_id=producer_id, epoch=old)
        assert refused(self.states, late) is ErrorCode.INVALID_PRODUCER_EPOCH

    @invariant()
    def sequences_have_no_gap(self) -> None:
        for producer_id in self.epochs:
            mine = self.history(producer_id)
            for earlier, later in itertools.pairwise(mine):
                assert later.first_sequence == earlier.last_sequence + 1


TestIdempotence = Idempotence.TestCase
TestIdempotence.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def written(first: int, offset: int, **fields: int) -> SequencedBatch:
    return replace(batch(first, offset=offset, **fields), transactional=True)


def marker(
    offset: int, *, commit: bool, epoch: int = 0, producer_id: int = 7
) -> EndTransactionMarker:
    return EndTransactionMarker(producer_id=producer_id, epoch=epoch, offset=offset, commit=commit)


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    states = with_batches(written(0, 10), written(1, 11), written(0, 12, producer_id=8))
    assert states.first_unstable_offset == 10
    assert states.has_open_transaction(7, 0)
    assert not states.has_open_transaction(7, 1)
    states.complete_transaction(marker(13, commit=True))
    assert states.first_unstable_offset == 12
    states.complete_transaction(marker(14, commit=False, producer_id=8))
    assert [each.transaction_start for each in states.active_producers()] == [-1, -1]


def test_aborted_transactions_are_returned_for_the_fetched_range() -> None:
    states = with_batches(written(0, 10))
    states.complete_transaction(marker(20, commit=False))
    (aborted,) = states.aborted_transactions(0, 11)
    assert states.aborted_transactions(20, 21) == [aborted]
    assert states.aborted_transactions(21, 30) == []
    assert states.aborted_transactions(0, 10) == []
    states.delete_before_offset(20)
    assert states.aborted_transactions(0, 100) == [aborted]
    states.delete_before_offset(21)
    assert states.aborted_transactions(0, 100) == []


def test_a_marker_without_data_aborts_nothing() -> None:
    states = ProducerStateManager()
    states.complete_transaction(marker(3, commit=False))
    assert states.aborted_transactions(0, 100) == []
    assert len(states) == 1


def test_sequences_go_on_after_a_marker_and_begin_again_after_one_of_a_new_epoch() -> None:
    states = with_batches(written(0, 10))
    states.complete_transaction(marker(11, commit=True))
    assert states.check(written(1, -1)) is None
    states.complete_transaction(marker(12, commit=False, epoch=1))
    assert refused(states, written(1, -1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(states, written(2, -1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(written(0, -1, epoch=1)) is None


def test_a_producer_in_a_transaction_writes_nothing_outside_of_it() -> None:
    states = with_batches(written(0, 10))
    assert refused(states, batch(1)) is ErrorCode.INVALID_TXN_STATE
    states.complete_transaction(marker(11, commit=True))
    assert states.check(batch(1)) is None


def test_a_producer_with_an_open_transaction_does_not_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 1)
    states = with_batches(written(0, 10), written(0, 11, producer_id=8))
    assert [each.producer_id for each in states.active_producers()] == [7, 8]
    states.delete_before_offset(100)
    assert states.first_unstable_offset == 10
    states.complete_transaction(marker(12, commit=True))
    states.complete_transaction(marker(13, commit=True, producer_id=8))
    assert [each.producer_id for each in states.active_producers()] == [8]


def test_describe_producers_fields() -> None:
    states = with_batches(written(0, 10))
    (found,) = states.active_producers()
    assert (found.producer_id, found.epoch, found.last_sequence) == (7, 0, 0)
    assert (found.transaction_start, found.coordinator_epoch) == (10, -1)
    states.complete_transaction(
        replace(marker(11, commit=True, epoch=1), coordinator_epoch=3, timestamp_ms=9)
    )
    (found,) = states.active_producers()
    assert (found.epoch, found.last_sequence, found.transaction_start) == (1, -1, -1)
    assert (found.coordinator_epoch, found.timestamp_ms) == (3, 9)
