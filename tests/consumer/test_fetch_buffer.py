from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.consumer import fetch_buffer as buffer_module
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import (
    DecodeOptions,
    FetchedRange,
    control_batch,
    decode_fetch,
    find_fetched_range,
)

from .record_data import P0, fetched, log


def filled(*sizes: int, start: int = 0) -> FetchBuffer:
    buffer = FetchBuffer(start)
    add(buffer, log(*sizes, start=start))
    return buffer


def add(buffer: FetchBuffer, data: bytes) -> None:
    offset = buffer.fetch_offset
    buffer.add(fetched(data, offset), len(data), find_fetched_range(data, offset))


def test_records_are_delivered_in_order_and_the_position_follows() -> None:
    buffer = filled(3, 4)
    assert (buffer.position, buffer.fetch_offset, buffer.is_empty) == (0, 7, False)
    first = buffer.take(2, "a")
    assert first is not None
    assert first.offsets() == [0, 1]
    assert buffer.position == 2
    rest = buffer.take(100, "a")
    assert rest is not None
    assert rest.offsets() == [2, 3, 4, 5, 6]
    assert (buffer.position, buffer.is_empty) == (7, True)
    assert buffer.take(100, "a") is None


def test_decoded_records_free_the_buffer() -> None:
    buffer = FetchBuffer(0)
    first, second = log(3), log(2, start=3)
    add(buffer, first)
    add(buffer, second)
    assert buffer.size_bytes == len(first) + len(second)
    offsets = []
    while (records := buffer.take(2, "a")) is not None:
        offsets.append(records.offsets())
    assert offsets == [[0, 1], [2], [3, 4]]
    assert buffer.size_bytes == 0


def test_decoding_is_suspended_for_a_batch_to_decompress_in_a_thread() -> None:
    buffer = FetchBuffer(0)
    data = log(3)
    batches = decode_fetch(*P0, data, 0, DecodeOptions(max_inline_bytes=len(data) - 1))
    buffer.add(batches, len(data), find_fetched_range(data, 0))
    assert buffer.take(10, "a") is None
    assert buffer.suspended_batches is batches
    assert batches.offloaded is not None
    batches.offloaded.decompress()
    records = buffer.take(10, "a")
    assert records is not None
    assert records.offsets() == [0, 1, 2]
    assert buffer.suspended_batches is None


@pytest.mark.parametrize("one_by_one", [False, True])
def test_an_error_is_raised_after_the_records_before_it(one_by_one: bool) -> None:
    buffer = filled(3)
    buffer.end_with_error(CorruptRecord("damaged", offset=3), 100)
    given = buffer.open_cursor("a") if one_by_one else buffer.take(100, "a")
    assert given is not None
    if one_by_one:
        assert [given.next().offset for _ in range(3)] == [0, 1, 2]
    assert (buffer.position, buffer.is_empty, buffer.size_bytes) == (3, False, 100)
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="damaged"):
            buffer.take(100, "a")
    buffer.discard()
    assert (buffer.position, buffer.fetch_offset, buffer.is_empty, buffer.size_bytes) == (
        3,
        3,
        True,
        0,
    )


def test_cursor_and_take_share_one_position() -> None:
    buffer = filled(300)
    cursor = buffer.open_cursor("a")
    assert cursor is not None
    assert [cursor.next().offset for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]
    many = buffer.take(2, "a")
    assert many is not None
    assert many.offsets() == [3, 4]
    assert cursor.next() is None  # it was closed
    cursor = buffer.open_cursor("a")
    assert cursor is not None
    got = [cursor.next().offset for _ in range(251)]  # type: ignore[union-attr]
    assert got == list(range(5, 256))
    assert cursor.next() is None
    assert buffer.position == 256


def test_records_are_processed_when_their_caller_calls_again() -> None:
    buffer = filled(10)
    assert buffer.processed_offset == 0
    buffer.take(4, "a")
    buffer.take(3, "b")
    assert (buffer.position, buffer.processed_offset) == (7, 0)
    buffer.mark_processed("a")
    assert buffer.processed_offset == 4
    buffer.take(1, "a")
    buffer.mark_processed("b")
    assert buffer.processed_offset == 7
    buffer.mark_processed("a")
    assert buffer.processed_offset == 8


def test_with_a_cursor_the_record_before_is_processed() -> None:
    buffer = filled(10)
    cursor = buffer.open_cursor("a")
    assert cursor is not None
    for offset in range(10):
        cursor.next()
        assert buffer.processed_offset == offset
    buffer.mark_processed("a")
    assert buffer.processed_offset == 10


def test_gaps_are_skipped() -> None:
    buffer = FetchBuffer(0)
    data = log(2)
    buffer.add(
        fetched(data), len(data), FetchedRange(9, 4)
    )  # compaction removed what was after them
    buffer.take(5, "a")
    assert (buffer.position, buffer.leader_epoch) == (9, 4)
    assert buffer.processed_offset == 0
    buffer.mark_processed("a")
    assert buffer.processed_offset == 9


def test_chunks_without_records_move_the_position() -> None:
    buffer = FetchBuffer(5)
    data = log(3)  # all of it lies before the position
    buffer.add(fetched(data, 5), len(data), FetchedRange(6, 0))
    assert buffer.take(10, "a") is None
    assert (buffer.position, buffer.is_empty, buffer.size_bytes) == (6, True, 0)


def test_a_corruption_is_raised_after_the_records_before_it() -> None:
    data = bytearray(log(2, 2))
    data[-1] ^= 1
    buffer = FetchBuffer(0)
    add(buffer, bytes(data))
    first = buffer.take(10, "a")
    assert first is not None
    assert first.offsets() == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecord):
            buffer.take(10, "a")
    assert buffer.position == 2


def test_the_leader_epoch_of_delivered_records_is_known() -> None:
    buffer = FetchBuffer(0)
    add(buffer, log(2, leader_epoch=7) + log(2, start=2, leader_epoch=8))
    assert (buffer.leader_epoch, buffer.last_fetched_epoch) == (-1, 8)
    buffer.take(1, "a")
    assert buffer.leader_epoch == 7
    cursor = buffer.open_cursor("a")
    assert cursor is not None
    for offset, epoch in ((1, 7), (2, 8), (3, 8)):
        record = cursor.next()
        assert record is not None
        assert (record.offset, buffer.leader_epoch) == (offset, epoch)


def test_records_without_a_leader_epoch_make_it_unknown() -> None:
    # The old epoch with the new offset would look like a truncated log.
    buffer = FetchBuffer(0, 3)
    add(buffer, log(2, magic=1))
    assert (buffer.leader_epoch, buffer.last_fetched_epoch) == (3, -1)
    buffer.take(2, "a")
    assert (buffer.position, buffer.leader_epoch) == (2, -1)


def test_control_batches_advance_the_leader_epoch() -> None:
    data = log(2, leader_epoch=3) + control_batch(
        5, 0, commit=True, coordinator_epoch=1, timestamp_ms=5, base_offset=2, leader_epoch=4
    )
    for size in (2, 9):
        buffer = FetchBuffer(0)
        add(buffer, data)
        records = buffer.take(size, "a")
        assert records is not None
        assert (records.next_offset, records.leader_epoch) == ((2, 3) if size == 2 else (3, 4))
        buffer.take(1, "a")
        assert (buffer.position, buffer.leader_epoch) == (3, 4)


def test_discard_keeps_unprocessed_ranges() -> None:
    buffer = FetchBuffer(0)
    add(buffer, log(3, leader_epoch=3) + log(3, start=3, leader_epoch=4))
    cursor = buffer.open_cursor("a")
    assert cursor is not None
    cursor.next()
    cursor.next()
    buffer.discard()
    assert (buffer.position, buffer.fetch_offset, buffer.last_fetched_epoch) == (2, 2, 3)
    assert (buffer.is_empty, buffer.size_bytes, buffer.processed_offset) == (True, 0, 1)
    assert cursor.next() is None
    add(buffer, log(2, start=2, leader_epoch=5))
    records = buffer.take(9, "a")
    assert records is not None
    assert records.offsets() == [2, 3]


def test_the_leader_epoch_can_be_corrected() -> None:
    buffer = FetchBuffer(0, 5)
    buffer.correct_epoch(4)
    assert (buffer.leader_epoch, buffer.last_fetched_epoch) == (4, 4)
    add(buffer, log(2, leader_epoch=6))
    buffer.correct_epoch(5)
    assert (buffer.leader_epoch, buffer.last_fetched_epoch) == (4, 5)


def test_the_number_of_tracked_callers_is_limited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(buffer_module, "MAX_CALLERS", 3)
    buffer = filled(10)
    with caplog.at_level(logging.WARNING, "aiokafkawire.consumer"):
        for number in range(9):
            buffer.take(1, number)
    assert len(caplog.records) == 1
    for number in range(9):
        buffer.mark_processed(number)
    assert buffer.processed_offset == 3  # records of untracked callers never count as processed
    assert len(buffer._unprocessed_from) == 1


def test_records_of_untracked_cursors_never_count_as_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffer_module, "MAX_CALLERS", 3)
    buffer = filled(10)
    for number in range(6):
        cursor = buffer.open_cursor(number)
        assert cursor is not None
        assert cursor.next() is not None
    for number in (0, 1, 2, 5):
        buffer.mark_processed(number)
    assert buffer.processed_offset == 3  # callers 3 and 4 have not called again


@given(st.data())
@pytest.mark.slow
def test_every_record_is_delivered_once_and_processed_never_passes_unprocessed_ones(
    data: st.DataObject,
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    buffer = FetchBuffer(0)
    given: list[int] = []
    held: dict[str, list[int]] = {}
    pending = list(sizes)
    start = 0
    for _ in range(data.draw(st.integers(1, 30))):
        caller = data.draw(st.sampled_from("abc"))
        match data.draw(st.sampled_from(["fetch", "take", "next", "back"])):
            case "fetch" if pending:
                size = pending.pop(0)
                add(buffer, log(size, start=start))
                start += size
            case "take":
                records = buffer.take(data.draw(st.integers(1, 4)), caller)
                offsets = [] if records is None else records.offsets()
                given += offsets
                held.setdefault(caller, []).extend(offsets)
            case "next":
                buffer.mark_processed(caller)
                held[caller] = []
                cursor = buffer.open_cursor(caller)
                record = None if cursor is None else cursor.next()
                if record is not None:
                    given.append(record.offset)
                    held[caller] = [record.offset]
            case "back":
                buffer.mark_processed(caller)
                held[caller] = []
        unprocessed = [offset for offsets in held.values() for offset in offsets]
        assert buffer.processed_offset <= min(unprocessed, default=buffer.position)
        assert given == list(range(len(given)))
        assert buffer.position == len(given)
