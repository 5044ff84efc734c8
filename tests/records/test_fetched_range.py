from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.records import find_fetched_range, iter_fetched_range
from aiokafkawire.records.fetched_range import CHUNK_BATCHES
from tests.consumer.record_data import log


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_end_is_found_without_decoding(magic: int) -> None:
    data = log(3, 2, start=10, magic=magic)
    epoch = 0 if magic == 2 else -1
    assert find_fetched_range(data, 10) == (15, epoch)
    assert find_fetched_range(data[:-1], 10).end < 15  # the last one is cut off
    assert find_fetched_range(data[:5], 10) == (10, -1)
    assert find_fetched_range(data, 40) == (40, -1)
    assert find_fetched_range(b"", 7) == (7, -1)


def test_many_batches_are_walked_over_piece_by_piece() -> None:
    one = log(1)
    data = one * (2 * CHUNK_BATCHES + 1)
    assert list(iter_fetched_range(data, 0)) == [None, None, find_fetched_range(data, 0)]
    assert find_fetched_range(data, 0) == (1, 0)
    for count, pauses in ((CHUNK_BATCHES - 1, 0), (CHUNK_BATCHES, 1), (2 * CHUNK_BATCHES, 2)):
        assert list(iter_fetched_range(one * count, 0)) == [None] * pauses + [(1, 0)]


@pytest.mark.parametrize("size", [-(1 << 31), -12, 0, 1, 48])
def test_a_batch_that_is_smaller_than_its_header_ends_what_was_fetched(size: int) -> None:
    good, bad = log(3, start=10, leader_epoch=1), bytearray(log(2, start=13))
    bad[8:12] = size.to_bytes(4, signed=True)
    assert find_fetched_range(good + bad + log(2, start=15), 10) == (13, 1)


def test_a_batch_that_cannot_reach_so_far_ends_what_was_fetched() -> None:
    good, lying = log(3, start=10, leader_epoch=1), bytearray(log(2, start=13, leader_epoch=4))
    lying[23:27] = (1_000).to_bytes(4)  # the delta of its last offset
    assert find_fetched_range(good + lying, 10, high_watermark=15) == (13, 1)
    assert find_fetched_range(good + lying, 10) == (1_014, 4)
    # A broker looks for its high watermark before it reads: young batches may lie behind it.
    for high_watermark in (0, 13, 14, 15):
        assert find_fetched_range(good + log(2, start=13), 10, high_watermark).end == 15
    compacted = bytearray(log(2, start=13))
    compacted[23:27] = (4).to_bytes(4)
    ends = [find_fetched_range(good + compacted, 10, high).end for high in (17, 18, 19)]
    assert ends == [13, 18, 18]


def test_a_batch_that_begins_before_the_first_offset_ends_what_was_fetched() -> None:
    good = log(3, start=10, leader_epoch=1)
    bad = (-3).to_bytes(8, signed=True) + good[8:]
    assert find_fetched_range(good + bad + log(2, start=13), 10) == (13, 1)


@given(st.binary(max_size=200))
def test_any_bytes_have_an_end(data: bytes) -> None:
    assert find_fetched_range(data, 5, 100).end >= 5
