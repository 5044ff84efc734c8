from __future__ import annotations

from aiokafkawire.connection.connection_kinds import CONNECTION_KINDS, ConnectionKind
from aiokafkawire.wire import ApiKey


def test_requests_that_may_block_have_separate_connections():
    assert CONNECTION_KINDS.keys() == {*ApiKey}
    assert CONNECTION_KINDS[ApiKey.FETCH] is ConnectionKind.FETCH
    assert CONNECTION_KINDS[ApiKey.PRODUCE] is ConnectionKind.PRODUCE
    join = {key for key, kind in CONNECTION_KINDS.items() if kind is ConnectionKind.JOIN}
    assert join == {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
    assert CONNECTION_KINDS[ApiKey.HEARTBEAT] is ConnectionKind.GENERAL
    assert CONNECTION_KINDS[ApiKey.OFFSET_COMMIT] is ConnectionKind.GENERAL
    assert CONNECTION_KINDS[ApiKey.PUSH_TELEMETRY] is ConnectionKind.TELEMETRY
