from __future__ import annotations

from aiokafkawire.connection.connection_kinds import ConnectionKind, connection_kind_for
from aiokafkawire.wire import ApiKey


def test_requests_that_may_block_have_separate_connections():
    lanes = {key: connection_kind_for(key) for key in ApiKey}
    assert lanes[ApiKey.FETCH] is ConnectionKind.FETCH
    assert lanes[ApiKey.PRODUCE] is ConnectionKind.PRODUCE
    assert {
        key for key, connection_kind in lanes.items() if connection_kind is ConnectionKind.JOIN
    } == {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
    }
    assert lanes[ApiKey.HEARTBEAT] is lanes[ApiKey.OFFSET_COMMIT] is ConnectionKind.GENERAL


def test_an_unknown_api_uses_the_general_connection():
    assert connection_kind_for(9_999) is ConnectionKind.GENERAL
