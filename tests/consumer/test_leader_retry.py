from __future__ import annotations

import math
import random
from itertools import pairwise

from aiokafkawire.consumer.leader_retry import MAX_LEADER_RETRY_S, LeaderRetry


def test_metadata_requests_for_missing_leaders_back_off_until_all_are_found() -> None:
    search, rng = LeaderRetry(0.1), random.Random(1)
    assert search.next_at == math.inf
    now, asked = 0.0, []
    while now < 300:
        if search.should_request(now, rng):
            asked.append(now)
            assert not search.should_request(now, rng)
        assert search.next_at > now
        now = search.next_at
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[0] < 0.15
    assert max(pauses) <= MAX_LEADER_RETRY_S * 1.2
    assert len(asked) < 25
    search.reset()
    assert search.next_at == math.inf
    assert search.should_request(now, rng)
