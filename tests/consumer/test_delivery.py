from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aiokafkawire.consumer import delivery as delivery_module
from aiokafkawire.consumer.assignment import ConsumerAssignment, offsets_to_commit
from aiokafkawire.consumer.delivery import RecordDelivery
from aiokafkawire.consumer.fetch_buffer import BufferCursor, FetchBuffer
from aiokafkawire.consumer.notifier import Notifier
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.consumer.partition_states import CorruptionFound, Fetching, Halted, Seek
from aiokafkawire.consumer.record_cursor import CURSOR_RECORDS
from aiokafkawire.errors import CorruptRecord, KafkaError
from aiokafkawire.records import DecodeOptions, control_batch, decode_fetch, find_fetched_range
from aiokafkawire.records.uncompressed_runs import BATCH_COST_BYTES
from aiokafkawire.runtime import Supervisor
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .record_data import P0, P1, fetched, log

P2 = TopicPartition("orders", 2)


def partition(tp: TopicPartition, data: bytes = b"") -> AssignedPartition:
    buffer = FetchBuffer(0)
    if data:
        buffer.add(fetched(data, 0, tp), len(data), find_fetched_range(data, 0))
    return AssignedPartition(tp, "earliest", Fetching(buffer))


class Owned(ConsumerAssignment):
    """Assigned partitions, and the delivery of their records."""

    def __init__(self, low_watermark_bytes: int = 0) -> None:
        super().__init__()
        runtime: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: 0.0))
        self.notifier = Notifier(runtime.clock, Supervisor("test"))
        self.delivery = RecordDelivery(self, runtime, self.notifier, low_watermark_bytes)

    def cursor(self, caller: object = "a") -> BufferCursor | None:
        """Return the cursor that the next record has opened."""
        record = self.delivery.next_record(caller, caller)
        return None if record is None else self.delivery.cursor


def assignment(*partitions: AssignedPartition) -> Owned:
    owned = Owned()
    for one in partitions:
        owned.add(one)
    return owned


def test_records_fetched_for_a_removed_partition_are_not_delivered() -> None:
    gone = partition(P0, log(3))
    owned = assignment(gone)
    owned.remove([gone])
    owned.on_records_fetched(gone)
    assert owned.delivery.take("a", 10) == {}
    again = partition(P0)
    owned.add(again)
    owned.on_records_fetched(gone)
    assert owned.delivery.take("a", 10) == {}


def test_take_returns_up_to_max_records_from_the_partitions_in_turn() -> None:
    owned = assignment(partition(P0, log(6, 6)), partition(P1, log(4)), partition(P2))
    first = owned.delivery.take("a", 7)
    assert {tp: records.offsets() for tp, records in first.items()} == {P0: [0, 1, 2, 3, 4, 5, 6]}
    second = owned.delivery.take("a", 7)
    assert list(second) == [P1, P0]
    assert second[P0].offsets() == [7, 8, 9]
    assert owned.delivery.take("a", 7)[P0].offsets() == [10, 11]
    assert owned.delivery.take("a", 7) == {}


def test_take_can_be_limited_to_partitions() -> None:
    owned = assignment(partition(P0, log(3)), partition(P1, log(3)))
    assert list(owned.delivery.take("a", 10, [P1])) == [P1]
    owned = assignment(partition(P0, log(3)), partition(P1, log(3)))
    assert list(owned.delivery.take("a", 10, single_partition=True)) == [P0]


def test_take_joins_records_of_several_batches_and_chunks() -> None:
    one = partition(P0, log(3, 3))
    data = log(2, start=6)
    assert one.buffer is not None
    one.buffer.add(fetched(data, 6), len(data), find_fetched_range(data, 6))
    taken = assignment(one).delivery.take("a", 100)[P0]
    assert taken.offsets() == list(range(8))
    assert taken.next_offset == 8
    assert one.delivered_range == (0, 8)


def test_joined_records_have_the_leader_epoch_of_trailing_control_batches() -> None:
    control = control_batch(
        5, 0, commit=True, coordinator_epoch=1, timestamp_ms=5, base_offset=4, leader_epoch=5
    )
    owned = partition(P0)
    assert owned.buffer is not None
    for data in (log(2, leader_epoch=3), log(2, start=2, leader_epoch=3) + control):
        offset = owned.buffer.fetch_offset
        owned.buffer.add(fetched(data, offset), len(data), find_fetched_range(data, offset))
    records = assignment(owned).delivery.take("me", 100)[P0]
    assert records.offsets() == [0, 1, 2, 3]
    assert (records.next_offset, records.leader_epoch) == (5, 5)


def test_records_of_other_partitions_are_delivered_before_a_corruption_is_raised() -> None:
    bad = bytearray(log(2))
    bad[-1] ^= 1
    owned = assignment(partition(P1, log(2)), partition(P0, bytes(bad)))
    assert list(owned.delivery.take("a", 10)) == [P1]
    assert isinstance(owned.take_partition_error(), CorruptRecord)
    broken = owned.get(P0)
    assert broken is not None
    broken.paused = True
    assert owned.take_partition_error() is None


def test_take_and_next_record_raise_a_corruption() -> None:
    bad = bytearray(log(2))
    bad[-1] ^= 1
    for give in (lambda it: it.take("a", 10), lambda it: it.next_record("a", "a")):
        owned = assignment(partition(P0, bytes(bad)))
        owned.notifier.to_fetch.take()
        with pytest.raises(CorruptRecord) as caught:
            give(owned.delivery)
        assert owned.notifier.to_fetch.take() == owned.values()
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (*P0, 0)
        assert isinstance(owned.get(P0).state, Halted)  # type: ignore[union-attr]


def test_a_cursor_stops_after_cursor_records() -> None:
    owned = assignment(partition(P0, log(CURSOR_RECORDS + 50)))
    cursor = owned.cursor()
    assert cursor is not None
    taken = 1
    while cursor.next() is not None:
        taken += 1
    assert taken == CURSOR_RECORDS
    assert owned.get(P0).delivered_range == (0, CURSOR_RECORDS)  # type: ignore[union-attr]


def test_a_paused_partition_opens_no_cursor() -> None:
    owned = assignment(partition(P0, log(5)), partition(P1, log(5)))
    owned.get(P0).paused = True  # type: ignore[union-attr]
    record = owned.delivery.next_record("a", "a")
    assert record is not None
    assert record.partition == 1
    owned.get(P1).pending_revocation = True  # type: ignore[union-attr]
    assert owned.delivery.next_record("a", "a") is None


def test_offsets_to_commit_cover_processed_records_only() -> None:
    owned = assignment(partition(P0, log(5)), partition(P1, log(5)))
    owned.delivery.take("a", 3)
    assert owned.delivered_offsets()[P0].offset == 3
    assert offsets_to_commit(owned.values())[P0].offset == 0
    owned.delivery.mark_processed("a")
    assert offsets_to_commit(owned.values())[P0] == OffsetAndMetadata(3, leader_epoch=0)
    assert offsets_to_commit([]) == {}
    owned.mark_committed({P0: OffsetAndMetadata(3), P2: OffsetAndMetadata(1)})
    assert P0 not in offsets_to_commit(owned.values())
    assert P0 not in owned.delivered_offsets()


def test_partitions_left_out_by_a_call_are_excluded_until_the_next_call() -> None:
    owned = Owned()
    for tp in (P0, P1):
        owned.add(partition(tp))
    flags = lambda: [p.excluded for p in owned.values()]  # noqa: E731
    owned.delivery.take("a", 10, [P1])
    assert flags() == [True, False]
    owned.delivery.take("a", 10)
    assert flags() == [False, False]
    owned.delivery.take("a", 10, [P0])
    assert flags() == [False, True]
    owned.delivery.next_record("a", "a")
    assert flags() == [False, False]


def test_records_consumed_counts_cursors_and_batches() -> None:
    owned = assignment(partition(P0, log(300)))
    cursor = owned.cursor()
    assert cursor is not None
    for expected in range(2, CURSOR_RECORDS + 1):
        cursor.next()
        if expected % 100 == 0:
            assert owned.delivery.metrics()["records_consumed_total"] == expected
    assert cursor.next() is None
    assert owned.delivery.metrics()["records_consumed_total"] == CURSOR_RECORDS
    assert owned.cursor() is not None
    assert sum(map(len, owned.delivery.take("a", 10).values())) == 10
    assert owned.delivery.metrics()["records_consumed_total"] == CURSOR_RECORDS + 11
    assert owned.cursor() is not None
    assert owned.delivery.metrics()["records_consumed_total"] == CURSOR_RECORDS + 12


def test_auto_commit_does_not_move_back_a_manual_commit() -> None:
    owned = assignment(partition(P0, log(5)))
    owned.delivery.take("a", 3)
    by_hand = owned.delivered_offsets()
    assert offsets_to_commit(owned.values(), by_hand) == {}
    owned.mark_committed(by_hand)
    assert offsets_to_commit(owned.values()) == {}
    owned.delivery.mark_processed("a")
    owned.delivery.take("a", 1)
    owned.delivery.mark_processed("a")
    assert offsets_to_commit(owned.values(), by_hand)[P0].offset == 4
    owned.get(P0).handle(Seek(1))  # type: ignore[union-attr]
    assert offsets_to_commit(owned.values(), by_hand)[P0].offset == 1


# --- what takes long --------------------------------------------------------------------------


def offloaded(tp: TopicPartition) -> AssignedPartition:
    """Return a partition whose only batch must be decompressed first."""
    data = log(3)
    buffer = FetchBuffer(0)
    batches = decode_fetch(*tp, data, 0, DecodeOptions(max_inline_bytes=len(data) - 1))
    buffer.add(batches, len(data), find_fetched_range(data, 0))
    return AssignedPartition(tp, "earliest", Fetching(buffer))


@pytest.mark.parametrize("how", ["take", "open"])
def test_an_offloaded_batch_is_decompressed_before_other_partitions_go_on(how: str) -> None:
    owned = assignment(partition(P1, log(900)), offloaded(P0))
    give = (lambda: owned.delivery.take("a", 300)) if how == "take" else owned.cursor
    assert give()
    assert not owned.delivery.decoding_suspended
    for _ in range(2):
        assert not give()
        assert owned.delivery.decoding_suspended
    assert owned.delivery.offloaded is not None
    owned.delivery.offloaded.decompress()
    if how == "take":
        assert list(owned.delivery.take("a", 300)) == [P0, P1]
    else:
        record = owned.delivery.next_record("a", "a")
        assert record is not None
        assert record.partition == P0.partition
    assert (owned.delivery.decoding_suspended, owned.delivery.offloaded) == (False, None)


def test_one_call_decodes_take_bytes_of_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "TAKE_BYTES", 2 * BATCH_COST_BYTES + 1_000)
    owned = assignment(*(partition(tp, log(2, 2)) for tp in (P0, P1, P2)))
    sizes = [sum(map(len, owned.delivery.take("a", 100).values())) for _ in range(4)]
    assert sum(sizes) == 12
    assert max(sizes) <= 6
    assert not owned.delivery.decoding_suspended


def test_a_partition_without_visible_records_does_not_hide_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery_module, "TAKE_BYTES", 1)
    control = control_batch(1, 0, commit=True, coordinator_epoch=1, timestamp_ms=5)
    owned = assignment(partition(P0, control), partition(P1, log(1)))
    assert owned.delivery.take("a", 1) == {}
    assert owned.delivery.decoding_suspended
    while not (taken := owned.delivery.take("a", 1)):
        assert owned.delivery.decoding_suspended
    assert list(taken) == [P1]


def test_a_partition_is_reported_when_its_buffer_falls_below_the_low_watermark() -> None:
    data = log(*[1] * 10)
    one = partition(P0, data)
    owned = Owned(len(data) // 2)
    owned.add(one)
    made = []
    for _ in range(10):
        owned.delivery.take("a", 1)
        made.append(bool(owned.notifier.to_fetch.take()))
    assert made == [False] * 5 + [True] + [False] * 4


def test_the_fetcher_is_woken_after_any_call_if_it_waits_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owned = assignment(partition(P0, log(5)))
    woken: list[object] = []
    monkeypatch.setattr(owned.notifier.to_fetch, "add", woken.append)
    owned.delivery.take("a", 1)
    assert woken == []
    owned.notifier.to_fetch.waits_for_room = True
    owned.delivery.take("a", 1)
    owned.delivery.next_record("a", "a")
    assert woken == [[], []]


def test_no_records_are_delivered_while_a_rebalance_callback_runs() -> None:
    owned = assignment(partition(P0, log(5)))
    owned.delivery.pending_callbacks = 1
    assert owned.delivery.take("a", 5) == {}
    assert owned.delivery.next_record("a", "a") is None
    owned.delivery.pending_callbacks = 0
    assert owned.delivery.next_record("a", "a") is not None


def test_a_call_looks_only_at_partitions_with_data_or_errors() -> None:
    looked_at = []

    class Watched(AssignedPartition):
        @property
        def readable_buffer(self) -> FetchBuffer | None:
            looked_at.append(self.tp)
            return super().readable_buffer

        def take_error(self) -> KafkaError | None:
            looked_at.append(self.tp)
            return super().take_error()

    owned = Owned()
    for number in range(50):
        tp = TopicPartition("orders", number)
        owned.add(Watched(tp, "earliest", Fetching(FetchBuffer(0))))
    full, broken = owned.get(P0), owned.get(P1)
    assert full is not None
    assert broken is not None
    data = log(5)
    assert full.buffer is not None
    full.buffer.add(fetched(data), len(data), find_fetched_range(data, 0))
    owned.on_records_fetched(full)
    assert owned.take_partition_error() is None
    assert list(owned.delivery.take("a", 5)) == [P0]
    assert owned.delivery.take("a", 5) == {}
    assert set(looked_at) == {P0}
    assert isinstance(broken.state, Fetching)
    broken.handle(CorruptionFound(broken.state, CorruptRecord("damage")))
    assert isinstance(owned.take_partition_error(), CorruptRecord)
    broken.handle(Seek(7))
    assert owned.take_partition_error() is None
    assert set(looked_at) == {P0, P1}
