from __future__ import annotations

from aiokafkawire.consumer.outage_log import LOG_OUTAGE_AFTER_S, OutageLog
from aiokafkawire.errors import ClientClosed, ConnectionFailed, RequestTimedOut
from aiokafkawire.wire import ErrorCode, error_for

GONE = RequestTimedOut("silent")


def test_an_outage_is_reported_once() -> None:
    outage = OutageLog()
    assert outage.record(GONE, 10.0) is None
    assert outage.record(GONE, 10.0 + LOG_OUTAGE_AFTER_S - 1) is None
    assert "silent" in (outage.record(GONE, 10.0 + LOG_OUTAGE_AFTER_S) or "")
    assert outage.record(GONE, 20.0 + LOG_OUTAGE_AFTER_S) is None


def test_failed_connections_are_logged_by_the_cluster_client_only() -> None:
    for failure in (ConnectionFailed("refused"), RequestTimedOut("no connection", sent=False)):
        outage = OutageLog()
        assert outage.record(failure, 0.0) is None
        assert outage.record(failure, 2 * LOG_OUTAGE_AFTER_S) is None
        assert "silent" in (outage.record(GONE, 3 * LOG_OUTAGE_AFTER_S) or "")


def test_a_closed_client_asks_no_broker() -> None:
    outage = OutageLog()
    assert outage.record(ConnectionFailed("refused"), 0.0) is None
    assert outage.record(ClientClosed("closed"), 2 * LOG_OUTAGE_AFTER_S) is None
    assert "silent" in (outage.record(GONE, 3 * LOG_OUTAGE_AFTER_S) or "")


def test_a_response_ends_an_outage() -> None:
    outage = OutageLog()
    for answer in (None, error_for(ErrorCode.NOT_COORDINATOR)):
        outage.record(GONE, 0.0)
        outage.record(GONE, LOG_OUTAGE_AFTER_S)
        outage.record(answer, LOG_OUTAGE_AFTER_S + 1)
        assert outage.record(GONE, 2 * LOG_OUTAGE_AFTER_S) is None
        assert outage.record(GONE, 3 * LOG_OUTAGE_AFTER_S) is not None
        outage.record(None, 0.0)
