"""The numbers that the connections of one client share."""

from __future__ import annotations

from aiokafkawire.connection import ConnectionMetrics
from aiokafkawire.connection.in_flight_requests import InFlightRequest
from aiokafkawire.connection.request_observer import RequestObserver
from aiokafkawire.wire import ApiKey


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
    observer = RequestObserver("1 at h:9092", metrics, {})
    request = InFlightRequest(0, 9.0, ApiKey.HEARTBEAT, 4, [b""])
    request.sent_at = 1.0
    for latency_s in (0.25, 0.75):
        observer.on_response(request, 1.0 + latency_s, 10)
    numbers = metrics.snapshot()
    assert numbers["responses_total"] == 2
    assert numbers["request_latency_ms_avg"] == 500.0
    assert numbers["request_latency_ms_max"] == 750.0
