"""Decisions about failed records."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiokafkawire.errors import DeserializationFailed
from aiokafkawire.worker.outcomes import DeadLetter, Drop, Retry
from aiokafkawire.worker.retry_policy import (
    DropRecord,
    FailedAttempt,
    RetryInPlace,
    RetryLater,
    RetryPolicy,
    WriteDeadLetter,
    decide,
)

POLICY = RetryPolicy(attempts=3, backoff_ms=100, backoff_max_ms=150, delays_ms=(1_000, 5_000))


def failure(
    error: BaseException | None = None,
    *,
    attempts: int = 1,
    tier: int = 0,
    age_ms: float = 0,
    jitter: float = 1.0,
) -> FailedAttempt:
    return FailedAttempt(error or ValueError("broken"), attempts, tier, age_ms, jitter)


@pytest.mark.parametrize(
    ("given", "delay_s"),
    [
        (failure(attempts=1), 0.1),
        (failure(attempts=2), 0.15),  # the maximum
        (failure(attempts=1, jitter=0.5), 0.05),
        (failure(Retry(7.0), attempts=2), 7.0),
        (failure(Retry(), attempts=1), 0.1),
    ],
)
def test_the_first_attempts_are_in_place(given: FailedAttempt, delay_s: float):
    assert decide(POLICY, given) == RetryInPlace(pytest.approx(delay_s))


def test_a_backoff_never_overflows():
    policy = RetryPolicy(attempts=10_000, backoff_ms=1)
    assert decide(policy, failure(attempts=9_000)) == RetryInPlace(10.0)


@pytest.mark.parametrize(
    ("given", "tier"),
    [(failure(attempts=3), 0), (failure(attempts=1, tier=1), 1), (failure(Retry(), attempts=3), 0)],
)
def test_then_come_the_retry_topics(given: FailedAttempt, tier: int):
    assert decide(POLICY, given) == RetryLater(tier)


@pytest.mark.parametrize(
    ("policy", "given", "reason"),
    [
        (POLICY, failure(tier=2), "all attempts failed"),
        (RetryPolicy(attempts=1), failure(), "all attempts failed"),
        (POLICY, failure(DeadLetter("no such customer")), "no such customer"),
        (POLICY, failure(DeserializationFailed("not JSON")), "no retry helps"),
        (RetryPolicy(dead_on=ValueError), failure(), "no retry helps"),
        (RetryPolicy(retry_on=OSError), failure(), "no retry helps"),
        (RetryPolicy(max_age_ms=50), failure(age_ms=50), "50 ms after the first failure"),
    ],
)
def test_a_record_becomes_a_dead_letter(policy: RetryPolicy, given: FailedAttempt, reason: str):
    assert decide(policy, given) == WriteDeadLetter(reason)


def test_retry_on_does_not_apply_to_an_explicit_retry():
    assert isinstance(decide(RetryPolicy(retry_on=OSError), failure(Retry())), RetryInPlace)


def test_a_record_is_dropped():
    assert decide(POLICY, failure(Drop("test order"))) == DropRecord("test order")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"delays_ms": 60_000},
            "delays_ms must be a tuple of whole numbers, not 60000: write"
            " RetryPolicy(delays_ms=(60000,))",
        ),
        ({"delays_ms": "1m"}, "delays_ms must be a tuple of whole numbers, not '1m': write"),
        ({"delays_ms": (1e3,)}, "delays_ms must be a tuple of whole numbers, not (1000.0,): write"),
        (
            {"attempts": None},
            "attempts must be a whole number, not None: write RetryPolicy(attempts=3)",
        ),
        ({"backoff_ms": 1e2}, "backoff_ms must be a whole number, not 100.0: write"),
        ({"max_age_ms": "1d"}, "max_age_ms must be a whole number, not '1d': write RetryPolicy("),
        ({"dead_on": [ValueError]}, "dead_on must be an exception type or a tuple of them, not ["),
        ({"retry_on": "x"}, "retry_on must be an exception type or a tuple of them, not 'x': wri"),
    ],
)
def test_a_retry_policy_names_the_wrong_argument(arguments: dict[str, Any], text: str):
    with pytest.raises(TypeError, match=re.escape(text)):
        RetryPolicy(**arguments)


def test_a_delay_is_a_number():
    with pytest.raises(TypeError, match="after_s must be a number, not '5'"):
        Retry("5")  # type: ignore[arg-type]


@pytest.mark.parametrize("after_s", [-1, float("nan"), float("inf")])
def test_a_retry_needs_a_finite_delay(after_s: float):
    with pytest.raises(ValueError, match=r"after_s must be (at least 0 and finite|a number)"):
        Retry(after_s)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"attempts": 0}, "attempts"),
        ({"backoff_ms": -1}, "backoff_ms"),
        ({"backoff_ms": 10, "backoff_max_ms": 5}, "backoff_max_ms"),
        ({"delays_ms": (5, 5)}, "ascend"),
        ({"delays_ms": (0,)}, "positive"),
    ],
)
def test_impossible_policies_are_refused(arguments: dict[str, object], text: str):
    with pytest.raises(ValueError, match=text):
        RetryPolicy(**arguments)  # type: ignore[arg-type]
