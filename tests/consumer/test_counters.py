from __future__ import annotations

import re
from pathlib import Path

from aiokafkawire.consumer.counters import MAX_LAGS, ConsumerCounters
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.partition import AssignedPartition, Watermarks
from aiokafkawire.consumer.partition_states import AwaitingCommitted, Fetching
from aiokafkawire.records import find_fetched_range
from aiokafkawire.types import TopicPartition

from .record_data import P0, P1, fetched, log


def test_all_counters_start_at_zero() -> None:
    assert set(ConsumerCounters().snapshot([]).values()) == {0}


def test_fetches_are_counted_with_their_latency() -> None:
    counters = ConsumerCounters()
    counters.record_fetch(0.1)
    counters.record_fetch(0.3)
    numbers = counters.snapshot([])
    assert numbers["fetches_total"] == 2
    assert round(numbers["fetch_latency_ms_avg"], 6) == 200
    assert numbers["fetch_latency_ms_max"] == 300


def test_metrics_have_lag_and_buffers_of_the_partitions() -> None:
    buffer = FetchBuffer(5)
    data = log(4, start=5)
    buffer.add(fetched(data, 5), len(data), find_fetched_range(data, 5))
    reading = AssignedPartition(P0, "earliest", Fetching(buffer))
    reading.watermarks = Watermarks(None, None, 11)
    waiting = AssignedPartition(P1, "earliest", AwaitingCommitted())
    waiting.paused = True
    numbers = ConsumerCounters().snapshot([reading, waiting])
    assert (numbers["assigned_partitions"], numbers["paused_partitions"]) == (2, 1)
    assert numbers["records_lag_max"] == 6
    assert (numbers["buffered_records"], numbers["buffered_bytes"]) == (4, len(data))


def lagging(tp: TopicPartition, lag: int) -> AssignedPartition:
    partition = AssignedPartition(tp, "earliest", Fetching(FetchBuffer(5)))
    partition.watermarks = Watermarks(None, None, 5 + lag)
    return partition


def test_a_partition_has_a_lag_metric_after_its_first_fetch() -> None:
    waiting = AssignedPartition(P1, "earliest", Fetching(FetchBuffer(5)))
    numbers = ConsumerCounters().snapshot([lagging(P0, 6), waiting])
    lags = {name: lag for name, lag in numbers.items() if name.startswith("records_lag{")}
    assert lags == {f'records_lag{{topic="{P0.topic}",partition="0"}}': 6}


def test_only_the_largest_lags_are_metrics() -> None:
    partitions = [lagging(TopicPartition("t", n), n) for n in range(MAX_LAGS + 5)]
    numbers = ConsumerCounters().snapshot(partitions)
    lags = [lag for name, lag in numbers.items() if name.startswith("records_lag{")]
    assert sorted(lags) == list(range(5, MAX_LAGS + 5))
    assert numbers["records_lag_max"] == MAX_LAGS + 4


def test_the_documentation_lists_all_metrics() -> None:
    page = (Path(__file__).parents[2] / "docs" / "consumer.md").read_text()
    _, _, section = page.partition("## Lag and metrics")
    section, _, _ = section.partition("\n## ")
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(
        ConsumerCounters().snapshot([])
    )
