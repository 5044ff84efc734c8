"""The log of one partition, in memory and in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.broker.log import PartitionLog, TimestampAndOffset
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.producer_state import AbortedTxn
from aiokafkawire.broker.storage import DirectoryStore, MemoryStore, Store
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import BatchBuilder
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.broker_records import assign_offsets, control_batch

from .raw_client import batch


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path)


def log(store: Store, **options: int) -> PartitionLog:
    return PartitionLog("t-0", store, BrokerConfig(**options))  # type: ignore[arg-type]


def append(target: PartitionLog, *values: bytes, epoch: int = 0, **fields: Any) -> int:
    """Append one batch; return its size."""
    (view,) = iter_batches(batch(*values, **fields))
    data = assign_offsets(view, target.end_offset, epoch)
    target.append(data, next(iter_batches(data)))
    return len(data)


def offsets(data: bytes) -> list[int]:
    return [offset for view in iter_batches(data) for offset in view.columns().offsets]


def everything(target: PartitionLog) -> list[int]:
    found: list[int] = []
    while len(found) < target.end_offset:
        found += offsets(target.read(len(found), 10_000))
    return found


def test_offsets_run_on(store: Store) -> None:
    target = log(store)
    append(target, b"a", b"b")
    append(target, b"c")
    assert (target.start_offset, target.end_offset) == (0, 3)
    assert offsets(target.read(0, 10_000)) == [0, 1, 2]
    assert offsets(target.read(1, 10_000)) == [0, 1, 2]
    assert offsets(target.read(2, 10_000)) == [2]
    assert target.read(3, 10_000) == b""


def test_a_read_is_cut_at_its_limit(store: Store) -> None:
    target = log(store)
    first, second = append(target, b"a"), append(target, b"b")
    assert len(target.read(0, first + 10)) == first + 10
    assert len(target.read(0, first)) == first
    assert len(target.read(0, 5)) == 5
    assert len(target.read(0, 10_000)) == first + second
    assert target.available_bytes(0, 10_000) == first + second
    assert target.available_bytes(0, 10) == 10
    assert target.available_bytes(1, 10_000) == second


def test_segments_roll_and_a_read_ends_with_its_segment(store: Store) -> None:
    target = log(store, segment_bytes=200)
    for value in (b"a", b"b", b"c", b"d"):
        append(target, value * 50)
    assert target.segment_offsets() == [4, 3, 2, 1, 0]
    assert offsets(target.read(0, 10_000)) == [0]


def test_the_log_is_bounded_by_retention(store: Store) -> None:
    target = log(store, segment_bytes=200, retention_bytes=300)
    for _ in range(10):
        append(target, b"v" * 50)
    assert target.start_offset > 5
    assert target.end_offset == 10
    assert target.size_bytes < 600
    assert offsets(target.read(target.start_offset, 1_000)) == [target.start_offset]


def test_records_can_be_deleted_up_to_an_offset(store: Store) -> None:
    target = log(store)
    append(target, b"a", b"b", b"c")
    target.delete_before(2)
    assert target.start_offset == 2
    assert offsets(target.read(2, 1_000)) == [0, 1, 2]
    target.delete_before(99)
    assert (target.start_offset, target.end_offset) == (3, 3)
    append(target, b"d")
    assert offsets(target.read(3, 1_000)) == [3]


def test_timestamps_are_found(store: Store) -> None:
    target = log(store)
    append(target, b"a", b"b", timestamp_ms=100)
    append(target, b"c", timestamp_ms=90, epoch=3)
    append(target, b"d", timestamp_ms=200, epoch=3)
    assert target.find_offset_by_timestamp(0) == TimestampAndOffset(0, 100, 0)
    assert target.find_offset_by_timestamp(101) == TimestampAndOffset(1, 101, 0)
    assert target.find_offset_by_timestamp(102) == TimestampAndOffset(3, 200, 3)
    assert target.find_offset_by_timestamp(201) is None
    assert target.find_offset_of_max_timestamp() == TimestampAndOffset(3, 200, 3)
    target.delete_before(1)
    assert target.find_offset_by_timestamp(0) == TimestampAndOffset(1, 101, 0)
    assert log(MemoryStore()).find_offset_of_max_timestamp() is None


def test_segments_are_found_by_when_they_were_written_last(store: Store) -> None:
    target = log(store, segment_bytes=100)
    for time in (10, 20, 30):
        append(target, b"v" * 50, timestamp_ms=time)
    assert target.segment_offsets_before(20, 0) == [1, 0]
    assert target.segment_offsets_before(5, 0) == []


def test_what_has_no_time_counts_as_written_when_one_says(store: Store) -> None:
    target = log(store)
    append(target, b"v", magic=0)
    assert target.segment_offsets_before(99, 100) == []
    assert target.segment_offsets_before(100, 100) == [0]


def test_leader_epochs_have_their_ends(store: Store) -> None:
    target = log(store)
    append(target, b"a", b"b", epoch=0)
    append(target, b"c", epoch=2)
    assert [target.end_offset_for_epoch(epoch, 4) for epoch in range(6)] == [
        (0, 2),
        (0, 2),
        (2, 3),
        (2, 3),
        (4, 3),
        None,
    ]
    assert (target.epoch_for_offset(1), target.epoch_for_offset(2)) == (0, 2)
    assert log(MemoryStore()).end_offset_for_epoch(5, 7) == (5, 0)


def test_a_directory_is_read_again(tmp_path: Path) -> None:
    first = log(DirectoryStore(tmp_path), segment_bytes=150)
    for index in range(5):
        append(first, b"v" * 50, epoch=index, producer_id=4, producer_epoch=0, base_sequence=index)
    again = log(DirectoryStore(tmp_path), segment_bytes=150)
    assert (again.start_offset, again.end_offset) == (0, 5)
    assert again.segment_offsets() == first.segment_offsets()
    assert again.end_offset_for_epoch(3, 4) == (3, 4)
    assert len(again.producers) == 1
    append(again, b"next")
    assert again.end_offset == 6


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    first = log(DirectoryStore(tmp_path))
    append(first, b"a")
    append(first, b"b")
    (path,) = (tmp_path / "t-0").glob("*.log")
    path.write_bytes(path.read_bytes()[:-3])
    again = log(DirectoryStore(tmp_path))
    assert again.end_offset == 1
    append(again, b"c")
    assert offsets(again.read(0, 1_000)) == [0, 1]


@pytest.mark.parametrize("damage", [b"\x00" * 200, b"\xff" * 40, b"\x00" * 8])
def test_garbage_in_a_segment_is_cut_off(tmp_path: Path, damage: bytes) -> None:
    first = log(DirectoryStore(tmp_path))
    append(first, b"a")
    (path,) = (tmp_path / "t-0").glob("*.log")
    path.write_bytes(path.read_bytes() + damage)
    assert log(DirectoryStore(tmp_path)).end_offset == 1
    assert log(DirectoryStore(tmp_path)).end_offset == 1


def test_a_wrong_checksum_ends_the_log(tmp_path: Path) -> None:
    first = log(DirectoryStore(tmp_path))
    size = append(first, b"a")
    append(first, b"b")
    (path,) = (tmp_path / "t-0").glob("*.log")
    content = bytearray(path.read_bytes())
    content[size + 70] ^= 1
    path.write_bytes(content)
    assert log(DirectoryStore(tmp_path)).end_offset == 1


def test_deleting_leaves_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    target = log(store)
    append(target, b"a")
    target.delete()
    assert list(tmp_path.iterdir()) == []
    assert log(store).end_offset == 0


@pytest.mark.parametrize("segment_bytes", [100, 200, 10_000])
@pytest.mark.parametrize("offset", range(7))
def test_a_log_can_lose_its_end(tmp_path: Path, segment_bytes: int, offset: int) -> None:
    store = DirectoryStore(tmp_path)
    target = log(store, segment_bytes=segment_bytes)
    for value, epoch in ((b"a", 0), (b"b", 0), (b"c", 1), (b"e", 2)):
        append(target, *([value] * (2 if value == b"c" else 1)), epoch=epoch)
    target.truncate(offset)
    # The batch of 2 and 3 is removed as a whole.
    end = {3: 2}.get(offset, min(offset, 5))
    again = log(DirectoryStore(tmp_path), segment_bytes=segment_bytes)
    for found in (target, again):
        assert found.end_offset == end
        assert everything(found) == list(range(end))
        assert found.end_offset_for_epoch(0, 3) == (0, min(end, 2))
        assert found.end_offset_for_epoch(3, 3) == (3, end)
    append(again, b"new", epoch=3)
    assert everything(again) == list(range(end + 1))
    assert everything(log(DirectoryStore(tmp_path))) == list(range(end + 1))


def test_a_log_whose_start_moved_is_not_cut_before_it(store: Store) -> None:
    target = log(store)
    append(target, b"a", b"b", b"c")
    target.delete_before(1)
    target.truncate(1)
    assert (target.start_offset, target.end_offset) == (1, 1)
    append(target, b"d")
    assert offsets(target.read(1, 10_000)) == [1]


def test_producers_are_known_by_what_is_left(store: Store) -> None:
    target = log(store)
    for sequence, producer in ((0, 5), (1, 5), (0, 6)):
        append(target, b"v", producer_id=producer, producer_epoch=0, base_sequence=sequence)
    assert len(target.producers) == 2
    target.truncate(1)
    assert len(target.producers) == 1
    target.truncate(5)
    assert len(target.producers) == 1
    target.truncate(0)
    assert len(target.producers) == 0


def end(target: PartitionLog, producer_id: int, *, commit: bool) -> None:
    data = control_batch(
        producer_id,
        0,
        commit=commit,
        coordinator_epoch=0,
        timestamp_ms=1_000,
        base_offset=target.end_offset,
    )
    target.append(data, next(iter_batches(data)))


def transact(target: PartitionLog, *values: bytes, producer_id: int) -> None:
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    append(target, *values, transactional=True, **fields)


def test_a_read_may_end_before_an_offset(store: Store) -> None:
    target = log(store)
    first = append(target, b"a", b"b")
    append(target, b"c")
    assert offsets(target.read(0, 10_000, 2)) == [0, 1]
    assert offsets(target.read(0, 10_000, 1)) == [0, 1]
    assert target.read(2, 10_000, 2) == b""
    assert target.available_bytes(0, 10_000, 2) == first
    assert target.available_bytes(2, 10_000, 2) == 0


def test_a_log_knows_its_transactions_again_when_it_is_loaded_or_cut(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    target = log(store)
    transact(target, b"a", producer_id=1)
    transact(target, b"b", b"c", producer_id=2)
    end(target, 1, commit=False)
    end(target, 2, commit=True)
    transact(target, b"d", producer_id=3)
    for known in (target, log(store)):
        assert known.first_unstable_offset == 5
        assert known.producers.aborted_transactions(0, 10) == [AbortedTxn(1, 0, 3)]
    target.truncate(4)
    for known in (target, log(store)):
        assert known.first_unstable_offset == 1
        assert known.producers.aborted_transactions(0, 10) == [AbortedTxn(1, 0, 3)]
    target.truncate(3)
    for known in (target, log(store)):
        assert known.first_unstable_offset == 0
        assert known.producers.aborted_transactions(0, 10) == []


def test_an_open_transaction_does_not_begin_before_the_log(store: Store) -> None:
    target = log(store)
    transact(target, b"a", producer_id=1)
    append(target, b"b")
    target.delete_before(1)
    assert target.first_unstable_offset == 1


def control(target: PartitionLog, key: bytes, value: bytes) -> None:
    builder = BatchBuilder()
    builder.append(1_000, key, value)
    parts = builder.close().encode(
        producer_id=1, producer_epoch=0, transactional=True, control=True, base_offset=1
    )
    data = b"".join(bytes(part) for part in parts)
    target.append(data, next(iter_batches(data)))


def test_only_the_ends_of_transactions_end_them(store: Store) -> None:
    target = log(store)
    transact(target, b"a", producer_id=1)
    # The leader of a KRaft quorum writes such a record.
    control(target, b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x00")
    assert (target.end_offset, target.first_unstable_offset) == (2, 0)


def test_a_control_record_without_a_type_changes_nothing(store: Store) -> None:
    target = log(store)
    transact(target, b"a", producer_id=1)
    with pytest.raises(CorruptRecord, match="without a type"):
        control(target, b"\x00", b"")
    assert (target.end_offset, target.first_unstable_offset) == (1, 0)
    assert offsets(target.read(0, 10_000)) == [0]


def test_a_loss_of_power_leaves_what_was_synced(store: Store) -> None:
    target = log(store)
    append(target, b"a", b"b", epoch=1)
    target.flush()
    append(target, b"c", epoch=1)
    append(target, b"d", epoch=4)
    assert target.recovery_point == 2
    target.lose_unsynced()
    assert (target.end_offset, target.latest_epoch) == (2, 1)
    assert target.end_offset_for_epoch(4, 5) == (1, 2), "of that epoch nothing is known any more"
    append(target, b"e", epoch=5)
    target.lose_unsynced()
    assert target.end_offset == 2


def test_a_log_is_synced_after_so_many_records() -> None:
    target = log(MemoryStore(), flush_messages=3)
    append(target, b"a", b"b")
    assert target.recovery_point == 0
    append(target, b"c", b"d")
    assert target.recovery_point == 4


def test_a_segment_is_synced_when_the_next_one_begins(store: Store) -> None:
    target = log(store, segment_bytes=100)
    append(target, b"a" * 60)
    append(target, b"b" * 60)
    assert target.recovery_point == 1
    target.lose_unsynced()
    assert everything(target) == [0]


def test_what_is_cut_off_needs_no_sync(store: Store) -> None:
    target = log(store)
    for value in (b"a", b"b", b"c"):
        append(target, value)
    target.flush()
    target.truncate(1)
    assert target.recovery_point == 1
    append(target, b"d")
    target.lose_unsynced()
    assert target.end_offset == 1
    target.truncate_fully_and_start_at(9)
    assert target.recovery_point == 9


def test_what_a_start_finds_is_synced(tmp_path: Path) -> None:
    append(log(DirectoryStore(tmp_path)), b"a")
    assert log(DirectoryStore(tmp_path)).recovery_point == 1
