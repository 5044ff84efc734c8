from __future__ import annotations

import re

import pytest

from aiokafkawire.cli.consume_plan import format_partitions, topic_pattern
from aiokafkawire.types import TopicPartition


@pytest.mark.parametrize(
    ("topics", "matching", "other"),
    [
        (["^ab"], ["ab", "abc"], ["cab", "a"]),
        (["^ab$"], ["ab"], ["abc"]),
        (["a.b", "^c|d"], ["a.b", "c", "c1", "d"], ["axb", "a.b1"]),
    ],
)
def test_topics_that_start_with_a_caret_are_patterns(
    topics: list[str], matching: list[str], other: list[str]
) -> None:
    pattern = topic_pattern(topics)
    assert pattern is not None
    assert all(re.fullmatch(pattern, name) for name in matching)
    assert not any(re.fullmatch(pattern, name) for name in other)


def test_names_are_no_pattern() -> None:
    assert topic_pattern(["a", "b^"]) is None


def test_partitions_are_reported_by_topic() -> None:
    partitions = [TopicPartition("b", 2), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert format_partitions(partitions) == "a [9, 10], b [2]"
    assert format_partitions([]) == "no partitions"
