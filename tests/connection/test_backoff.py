from __future__ import annotations

import random

import pytest

from aiokafkawire.connection.backoff import JITTER, Backoff, ReconnectBackoff


class Middle(random.Random):
    """Draws the middle of every range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_delays_double_up_to_the_maximum():
    backoff = Backoff.from_ms(50, 1_000)
    delays = [backoff.delay(failures, Middle()) for failures in range(8)]
    assert delays == pytest.approx([0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_jitter_stays_within_its_share():
    backoff, rng = Backoff(1.0, 1.0), random.Random(7)
    delays = [backoff.delay(1, rng) for _ in range(200)]
    assert 1 - JITTER <= min(delays) < 0.9
    assert 1.1 < max(delays) <= 1 + JITTER


def test_very_many_failures_do_not_overflow():
    assert Backoff(1.0, 5.0).delay(10**9, Middle()) == 5.0


def reconnect() -> ReconnectBackoff:
    return ReconnectBackoff(Backoff(0.05, 1.0), Backoff(10.0, 30.0))


def test_each_failure_puts_the_next_attempt_off_further():
    machine = reconnect()
    assert machine.next_attempt_at < 0
    waits = []
    for now in (100.0, 200.0, 300.0):
        machine.record_failure(now, Middle())
        waits.append(machine.next_attempt_at - now)
    assert waits == pytest.approx([0.05, 0.1, 0.2])
    assert machine.attempt_number == 4


def test_the_setup_timeout_grows_to_its_maximum():
    machine = reconnect()
    timeouts = []
    for _ in range(4):
        timeouts.append(machine.setup_timeout_s())
        machine.record_failure(0.0, Middle())
    assert timeouts == [10.0, 20.0, 30.0, 30.0]


def test_a_ready_connection_forgets_the_failures():
    machine = reconnect()
    machine.record_failure(5.0, Middle())
    machine.record_success()
    assert machine.attempt_number == 1
    assert machine.next_attempt_at < 5
    assert machine.setup_timeout_s() == 10.0
