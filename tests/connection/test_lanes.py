from __future__ import annotations

from aiokafkawire.connection.lanes import Lane, lane_of
from aiokafkawire.wire import ApiKey


def test_what_may_wait_long_has_a_lane_of_its_own():
    lanes = {key: lane_of(key) for key in ApiKey}
    assert lanes[ApiKey.FETCH] is Lane.FETCH
    assert lanes[ApiKey.PRODUCE] is Lane.PRODUCE
    assert {key for key, lane in lanes.items() if lane is Lane.JOIN} == {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
    }
    assert lanes[ApiKey.HEARTBEAT] is lanes[ApiKey.OFFSET_COMMIT] is Lane.GENERAL


def test_an_unknown_api_takes_the_general_lane():
    assert lane_of(9_999) is Lane.GENERAL
