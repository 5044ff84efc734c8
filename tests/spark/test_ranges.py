from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.spark.ranges import OffsetRange, split_ranges
from aiokafkawire.types import TopicPartition


def ranges(*sizes: int, start: int = 0) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", n), start, start + s) for n, s in enumerate(sizes)]


def shown(found: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(part.topic_partition.partition, part.start, part.end) for part in found]


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "max_records", "expected"),
    [
        ((3, 0, 5), None, None, [(0, 0, 3), (2, 0, 5)]),
        ((3, -2), None, None, [(0, 0, 3)]),
        ((4, 4), 2, None, [(0, 0, 4), (1, 0, 4)]),
        ((5,), 3, None, [(0, 0, 1), (0, 1, 3), (0, 3, 5)]),
        ((1, 40), 5, None, [(0, 0, 1), (1, 0, 10), (1, 10, 20), (1, 20, 30), (1, 30, 40)]),
        ((2,), 5, None, [(0, 0, 1), (0, 1, 2)]),
        ((10, 3), None, 4, [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3)]),
        ((8,), None, 4, [(0, 0, 4), (0, 4, 8)]),
        ((8,), 4, 4, [(0, 0, 2), (0, 2, 4), (0, 4, 6), (0, 6, 8)]),
        ((8,), 1, 4, [(0, 0, 4), (0, 4, 8)]),
        ((), 4, 4, []),
    ],
)
def test_ranges_are_split_as_asked(sizes, min_partitions, max_records, expected):
    assert shown(split_ranges(ranges(*sizes), min_partitions, max_records)) == expected


SIZES = st.lists(st.integers(-3, 10**7), max_size=12)
START = st.integers(0, 2**60)
COUNT = st.none() | st.integers(1, 200)


@given(SIZES, START, COUNT, st.none() | st.integers(50_000, 10**7))
def test_nothing_is_lost_and_nothing_is_read_twice(sizes, start, min_partitions, max_records):
    whole = ranges(*sizes, start=start)
    found = split_ranges(whole, min_partitions, max_records)
    assert all(part.size > 0 for part in found)
    assert found == sorted(found)
    for part in whole:
        own = [piece for piece in found if piece.topic_partition == part.topic_partition]
        assert sum(piece.size for piece in own) == max(part.size, 0)
        edges = [piece.start for piece in own] + [part.end]
        assert edges[1:] == [piece.end for piece in own]
        assert not own or own[0].start == part.start
    if max_records is not None:
        assert all(part.size <= max_records for part in found)


@given(SIZES, START, st.integers(1, 200))
def test_there_are_about_as_many_as_asked_for(sizes, start, min_partitions):
    whole = ranges(*sizes, start=start)
    filled = [part for part in whole if part.size > 0]
    found = split_ranges(whole, min_partitions)
    assert len(found) <= max(min_partitions, len(filled)) + len(filled)
    assert len(found) >= len(filled)
    if filled and min_partitions <= min(part.size for part in filled):
        assert len(found) >= min_partitions - len(filled)


@given(SIZES, START, COUNT)
def test_the_order_given_changes_nothing(sizes, start, min_partitions):
    whole = ranges(*sizes, start=start)
    assert split_ranges(reversed(whole), min_partitions) == split_ranges(whole, min_partitions)
