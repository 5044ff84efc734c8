"""The numbers that the connections of one client share."""

from __future__ import annotations

from aiokafkawire.connection import Counters


def test_nothing_has_happened_yet():
    assert set(Counters().snapshot().values()) == {0}


def test_connections_that_break_are_told_from_those_that_are_closed():
    counters = Counters()
    for lost in (True, False):
        counters.opened()
        counters.closed(lost=lost)
    counters.opened()
    numbers = counters.snapshot()
    assert numbers["connections_open"] == 1
    assert numbers["connections_made_total"] == 3
    assert numbers["connections_lost_total"] == 1


def test_latency_is_told_in_milliseconds():
    counters = Counters()
    for latency_s in (0.001, 0.003):
        counters.answered(latency_s)
    numbers = counters.snapshot()
    assert numbers["request_latency_ms_avg"] == 2.0
    assert numbers["request_latency_ms_max"] == 3.0
