from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.spark.limits import TriggerDelay, rate_limit
from aiokafkawire.types import TopicPartition


def offsets(*values: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): value for number, value in enumerate(values)}


@pytest.mark.parametrize(
    ("limit", "start", "latest", "expected"),
    [
        (10, (0, 0), (10, 10), (5, 5)),
        (10, (0, 5), (30, 15), (7, 7)),
        (100, (0, 5), (30, 15), (30, 15)),
        (10, (0, 0), (1000, 1), (9, 1)),
        (1, (0, 0, 0), (9, 9, 9), (1, 1, 1)),
        (7, (4, 4), (4, 4), (4, 4)),
        (7, (4, 9), (30, 2), (11, 2)),
    ],
)
def test_a_batch_is_shared_in_proportion(limit, start, latest, expected):
    assert rate_limit(limit, offsets(*start), offsets(*latest)) == offsets(*expected)


PAIRS = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 10**12)), min_size=1, max_size=9)


@given(st.integers(1, 10**12), PAIRS)
def test_a_batch_goes_on_and_never_past_the_end(limit, pairs):
    start = offsets(*(begin for begin, _ in pairs))
    latest = offsets(*(begin + size for begin, size in pairs))
    ends = rate_limit(limit, start, latest)
    assert ends.keys() == latest.keys()
    for tp, end in ends.items():
        assert start[tp] < end <= latest[tp] or start[tp] == end == latest[tp]
    taken = sum(ends[tp] - start[tp] for tp in ends)
    assert taken <= limit + len(pairs) + limit * 1e-9


def test_a_batch_waits_for_rows_up_to_the_delay():
    delay = TriggerDelay(min_rows=10, max_delay_s=60)
    assert not delay.should_wait(3, 1000.0)
    assert delay.should_wait(9, 1001.0)
    assert not delay.should_wait(10, 1002.0)
    assert delay.should_wait(9, 1061.9)
    assert not delay.should_wait(9, 1062.0)
    assert delay.should_wait(0, 1063.0)
