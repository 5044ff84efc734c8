"""The numbers that the connections of one client share."""

from __future__ import annotations

from aiokafkawire.connection import ConnectionMetrics


def test_nothing_has_happened_yet():
    assert set(ConnectionMetrics().snapshot().values()) == {0}


def test_lost_connections_are_counted_separately():
    metrics = ConnectionMetrics()
    for lost in (True, False):
        metrics.record_opened()
        metrics.record_closed(lost=lost)
    metrics.record_opened()
    numbers = metrics.snapshot()
    assert numbers["connections_open"] == 1
    assert numbers["connections_made_total"] == 3
    assert numbers["connections_lost_total"] == 1


def test_latency_is_in_milliseconds():
    metrics = ConnectionMetrics()
    for latency_s in (0.001, 0.003):
        metrics.record_response(latency_s)
    numbers = metrics.snapshot()
    assert numbers["request_latency_ms_avg"] == 2.0
    assert numbers["request_latency_ms_max"] == 3.0
