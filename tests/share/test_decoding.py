"""Records and gaps of acquired ranges."""

from __future__ import annotations

import pytest

from aiokafkawire.records.broker_records import control_batch
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.share.decoding import DecodedRecords, decode_acquired
from aiokafkawire.share.session_events import AcquiredOffsets
from tests.consumer.record_data import log
from tests.records.record_data import raw_batch


async def decode(data: bytes | None, *ranges: tuple[int, int, int]) -> DecodedRecords:
    return await decode_acquired(
        RealRuntime(),
        "orders",
        0,
        data,
        [AcquiredOffsets(*each) for each in ranges],
        check_crcs=True,
        max_decompressed_bytes=1_000_000,
    )


def offsets(decoded: DecodedRecords) -> list[tuple[list[int], int]]:
    return [(records.offsets(), count) for records, count in decoded.records]


async def test_only_records_of_acquired_ranges_are_returned() -> None:
    """A response has whole batches, with records that others have."""
    decoded = await decode(log(10), (2, 3, 1), (7, 7, 3))
    assert offsets(decoded) == [([2, 3], 1), ([7], 3)]
    assert decoded.gaps == []


async def test_a_range_may_span_batches() -> None:
    decoded = await decode(log(3, 3, 3), (1, 7, 1))
    assert [offset for part, _ in offsets(decoded) for offset in part] == [1, 2, 3, 4, 5, 6, 7]
    assert decoded.gaps == []


async def test_acquired_offsets_without_a_record_are_gaps() -> None:
    """Control records, and records that compaction has removed, stay locked otherwise."""
    marker = control_batch(5, 0, commit=True, coordinator_epoch=1, timestamp_ms=5, base_offset=7)
    data = log(2) + log(2, start=5) + marker
    decoded = await decode(data, (0, 7, 1))
    assert [offset for part, _ in offsets(decoded) for offset in part] == [0, 1, 5, 6]
    assert sorted(decoded.gaps) == [2, 3, 4, 7]
    assert (decoded.missing, decoded.error) == ([], None)


async def test_a_batch_without_records_is_a_gap() -> None:
    """Compaction keeps the last batch of a producer, without its records."""
    decoded = await decode(log(2) + raw_batch(b"", 0, last_delta=2, base_offset=2), (0, 4, 1))
    assert (decoded.gaps, decoded.missing, decoded.error) == ([2, 3, 4], [], None)


@pytest.mark.parametrize("kept", [0, 1, 70, -1])
async def test_offsets_of_an_incomplete_batch_are_missing(kept: int) -> None:
    """They are no gaps: the broker has their records."""
    decoded = await decode(log(2) + log(3, start=2)[:kept], (0, 4, 1))
    assert offsets(decoded) == [([0, 1], 1)]
    assert (decoded.gaps, decoded.missing) == ([], [2, 3, 4])
    assert decoded.error is not None
    assert (decoded.error.topic, decoded.error.offset) == ("orders", 2)


async def test_without_data_everything_is_missing() -> None:
    decoded = await decode(None, (4, 6, 1), (8, 8, 2))
    assert (decoded.gaps, decoded.missing) == ([], [4, 5, 6, 8])
    assert decoded.error is not None


async def test_nothing_acquired_is_nothing() -> None:
    decoded = await decode(log(3))
    assert (decoded.records, decoded.gaps) == ([], [])


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 0xFF])


async def test_offsets_of_a_corrupt_batch_are_neither_records_nor_gaps() -> None:
    """The application acknowledges them by their offsets."""
    decoded = await decode(log(2) + damaged(log(3, start=2)), (0, 4, 1))
    assert offsets(decoded) == [([0, 1], 1)]
    assert (decoded.gaps, decoded.missing) == ([], [])
    assert decoded.error is not None
    assert (decoded.error.partition, decoded.error.offset) == (0, 2)
    assert decoded.error.next_offset == 5
    assert decoded.unreadable == [(2, 4, 1)]


async def test_batches_behind_corrupt_ones_are_read() -> None:
    parts = [log(2, start=start) for start in range(0, 12, 2)]
    parts[1], parts[2], parts[4] = (damaged(parts[number]) for number in (1, 2, 4))
    decoded = await decode(b"".join(parts), (0, 4, 1), (5, 11, 2))
    assert offsets(decoded) == [([0, 1], 1), ([6, 7], 2), ([10, 11], 2)]
    assert (decoded.gaps, decoded.missing) == ([], [])
    assert decoded.error is not None
    assert (decoded.error.offset, decoded.error.next_offset) == (2, 4)
    assert decoded.unreadable == [(2, 3, 1), (4, 4, 1), (5, 5, 2), (8, 9, 2)]
