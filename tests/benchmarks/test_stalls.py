from __future__ import annotations

import pytest

from benchmarks.scaling.stalls import FILLED, FILLED_PARTITIONS, Phase, table, topics_of


@pytest.mark.parametrize("partitions", [10, 300, 301, 30_000, 30_001])
def test_topics_have_as_many_partitions_as_asked_for(partitions: int) -> None:
    topics = topics_of(partitions)
    assert sum(topics.values()) == partitions
    assert topics[FILLED] == min(FILLED_PARTITIONS, partitions)
    assert all(count > 0 for count in topics.values())


def test_the_table_shows_milliseconds() -> None:
    lines = table([Phase("join", 1.25, 0.1, 0.07, 0.03)], 1_000, 2.5)
    assert lines[0] == "1,000 partitions, 2.5 KiB each\n"
    assert lines[-1] == "| join | 1.2 | 100 | 70 | 30 |"
