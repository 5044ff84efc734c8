from __future__ import annotations

import math
import random
from itertools import pairwise

from aiokafkawire.consumer.search import SEARCH_MAX_S, LeaderSearch, MissingPartitions

from .logs import P0, P1


def test_leaders_are_looked_for_ever_more_rarely_until_all_are_found() -> None:
    search, rng = LeaderSearch(0.1), random.Random(1)
    assert search.next_at == math.inf
    now, asked = 0.0, []
    while now < 300:
        if search.missing(now, rng):
            asked.append(now)
            assert not search.missing(now, rng)
        assert search.next_at > now
        now = search.next_at
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[0] < 0.15
    assert max(pauses) <= SEARCH_MAX_S * 1.2
    assert len(asked) < 25
    search.found()
    assert search.next_at == math.inf
    assert search.missing(now, rng)


def test_a_missing_partition_is_overdue_after_its_time_and_again_after_that() -> None:
    missing = MissingPartitions(10.0)
    assert missing.next_at == math.inf
    assert missing.overdue([P0], 0.0) == []
    assert missing.overdue([P0, P1], 4.0) == []
    assert missing.next_at == 10.0
    assert missing.overdue([P0, P1], 10.0) == [P0]
    assert missing.overdue([P0, P1], 14.0) == [P1]
    assert missing.overdue([P0], 19.0) == []
    assert missing.overdue([P0], 20.0) == [P0]
    assert missing.overdue([], 21.0) == []
    assert missing.overdue([P0], 30.0) == []  # it was there meanwhile


def test_a_missing_partition_is_overdue_when_it_was_told_to_be() -> None:
    """Not a hair later: whoever sleeps until then would look again and again."""
    rng = random.Random(1)
    for _ in range(1_000):
        missing = MissingPartitions(rng.choice((0.3, 2.0, 20.0, 60.0)))
        assert missing.overdue([P0], rng.uniform(0, 100)) == []
        at = missing.next_at
        assert missing.overdue([P0], at) == [P0]
        assert missing.next_at > at
