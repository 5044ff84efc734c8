"""`OffsetRanges` behaves as a dict of offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.share.offset_ranges import OffsetRanges, consecutive

OFFSETS = st.integers(0, 20)
CHANGES = st.lists(st.tuples(OFFSETS, OFFSETS, st.sampled_from("abc-")), max_size=12)


def changed(changes: list[tuple[int, int, str]]) -> tuple[OffsetRanges[str], dict[int, str]]:
    """Make ranges and a dict with the same values; "-" removes."""
    ranges, expected = OffsetRanges[str](), dict[int, str]()
    for one, other, value in changes:
        first, last = min(one, other), max(one, other)
        if value == "-":
            ranges.remove(first, last)
            for offset in range(first, last + 1):
                expected.pop(offset, None)
        else:
            ranges.set(first, last, value)
            expected.update(dict.fromkeys(range(first, last + 1), value))
    return ranges, expected


def spread(found: list[tuple[int, int, str]]) -> dict[int, str]:
    return {offset: value for first, last, value in found for offset in range(first, last + 1)}


@given(CHANGES, OFFSETS, OFFSETS)
def test_ranges_are_a_dict_of_offsets(
    changes: list[tuple[int, int, str]], one: int, other: int
) -> None:
    ranges, expected = changed(changes)
    first, last = min(one, other), max(one, other)
    inside = {offset: value for offset, value in expected.items() if first <= offset <= last}
    assert spread([*ranges]) == expected
    assert bool(ranges) == bool(expected)
    assert [first for first, _, _ in ranges] == sorted(first for first, _, _ in ranges)
    assert [ranges.get(offset) for offset in range(21)] == [expected.get(o) for o in range(21)]
    assert spread(ranges.within(first, last)) == inside
    for value in "abc":
        only = dict.fromkeys(range(first, last + 1), value)
        assert ranges.covers(first, last, value) == (inside == only)
    every = dict.fromkeys(range(first, last + 1), "d") | inside
    assert spread(ranges.filled(first, last, "d")) == every


@given(CHANGES)
def test_adjacent_ranges_have_different_values(changes: list[tuple[int, int, str]]) -> None:
    found = [*changed(changes)[0]]
    for (_, last, value), (first, _, following) in pairwise(found):
        assert last < first
        assert value != following or last + 1 < first


@given(st.sets(OFFSETS))
def test_offsets_form_ranges(offsets: set[int]) -> None:
    ranges = consecutive(offsets)
    assert [o for first, last in ranges for o in range(first, last + 1)] == sorted(offsets)
    for (_, last), (first, _) in pairwise(ranges):
        assert first > last + 1


def test_a_range_is_one() -> None:
    assert (consecutive(range(3, 7)), consecutive(range(3, 3))) == ([(3, 6)], [])
