from __future__ import annotations

import random

import pytest

from aiokafkawire.cluster.refresh_schedule import (
    MISSING_TOPIC_LOG_AFTER_S,
    NO_BROKER_LOG_AFTER_S,
    MissingTopicLog,
    RefreshSchedule,
    TopicReferences,
)
from aiokafkawire.connection import Backoff


class Middle(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


RNG = Middle()


def schedule() -> RefreshSchedule:
    refreshes = RefreshSchedule(backoff=Backoff(0.1, 1.0), max_age_s=300.0, rebootstrap_s=300.0)
    refreshes.begin(100.0)
    refreshes.succeeded(100.0, RNG)
    return refreshes


def test_a_refresh_is_due_at_the_maximum_age():
    assert schedule().next_refresh_at() == 400.0


def test_a_requested_refresh_is_due_at_once_after_the_backoff():
    refreshes = schedule()
    refreshes.request()
    assert refreshes.next_refresh_at() == pytest.approx(100.1)
    refreshes.begin(100.0)
    assert refreshes.next_refresh_at() == 400.0


def test_the_backoff_grows_with_consecutive_refreshes():
    refreshes, now, gaps = schedule(), 100.0, []
    for _ in range(6):
        refreshes.request()
        gaps.append(refreshes.next_refresh_at() - now)
        now = refreshes.next_refresh_at()
        refreshes.begin(100.0)
        refreshes.succeeded(now, RNG)
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_the_backoff_resets_after_a_quiet_time():
    refreshes = schedule()
    for now in (100.1, 100.3, 100.7):
        refreshes.begin(100.0)
        refreshes.succeeded(now, RNG)
    refreshes.begin(100.0)
    refreshes.succeeded(110.0, RNG)
    refreshes.request()
    assert refreshes.next_refresh_at() == pytest.approx(110.1)


def test_an_urgent_refresh_skips_the_backoff():
    refreshes = schedule()
    refreshes.request(urgent=True)
    assert refreshes.next_refresh_at() < 100.0
    refreshes.begin(100.0)
    refreshes.request()
    assert refreshes.next_refresh_at() == pytest.approx(100.1)


def test_a_partial_refresh_has_the_requested_topics():
    refreshes = schedule()
    refreshes.request(["a"], urgent=True)
    refreshes.request(["b", "a"])
    assert refreshes.begin(101.0) == ("a", "b")
    refreshes.succeeded(101.0, RNG, partial=True)
    assert refreshes.next_refresh_at() == 400.0  # the others are as old as they were
    refreshes.request(["c"])
    refreshes.request()
    refreshes.request(["d"])
    assert refreshes.begin(102.0) is None
    refreshes.request(["e"])
    assert refreshes.begin(400.0) is None  # all are due by now


def test_a_failed_partial_refresh_is_followed_by_a_full_one():
    refreshes = schedule()
    refreshes.request(["a"])
    refreshes.begin(101.0)
    refreshes.failed(101.0, RNG)
    assert refreshes.begin(102.0) is None


def test_an_urgent_refresh_resets_the_backoff():
    refreshes, now = schedule(), 100.0
    for _ in range(6):
        refreshes.request()
        now = refreshes.next_refresh_at()
        refreshes.begin(now)
        refreshes.succeeded(now, RNG)
    refreshes.request(["new"], urgent=True)
    refreshes.begin(now)
    refreshes.succeeded(now, RNG, partial=True)
    refreshes.request(["new"])
    assert refreshes.next_refresh_at() == pytest.approx(now + 0.1)


def test_a_failed_refresh_is_retried_with_backoff():
    refreshes = schedule()
    refreshes.begin(100.0)
    refreshes.failed(500.0, RNG)
    assert refreshes.next_refresh_at() == pytest.approx(500.1)


def test_a_request_during_a_refresh_needs_another_one():
    refreshes = schedule()
    refreshes.begin(100.0)
    refreshes.request()
    refreshes.succeeded(500.0, RNG)
    assert refreshes.next_refresh_at() == pytest.approx(500.1)


def test_a_rebootstrap_is_due_after_a_long_outage():
    refreshes = schedule()
    refreshes.begin(500.0)
    refreshes.failed(510.0, RNG)
    refreshes.begin(690.0)
    refreshes.failed(700.0, RNG)
    assert not refreshes.rebootstrap_due(799.0)
    assert refreshes.rebootstrap_due(800.0)
    refreshes.succeeded(800.0, RNG)
    assert not refreshes.rebootstrap_due(5_000.0)


def test_each_outage_is_logged_once():
    refreshes = schedule()
    for start in (500.0, 5_000.0):
        refreshes.begin(start)
        refreshes.failed(start + 1, RNG)
        assert not refreshes.outage_log_due(start + NO_BROKER_LOG_AFTER_S - 1)
        assert refreshes.outage_log_due(start + NO_BROKER_LOG_AFTER_S)
        assert not refreshes.outage_log_due(start + NO_BROKER_LOG_AFTER_S + 1)
        assert refreshes.succeeded(start + 100, RNG)
        assert not refreshes.succeeded(start + 200, RNG)


def test_an_outage_begins_with_the_first_unanswered_request():
    refreshes = schedule()
    refreshes.mark_unreachable(490.0)
    assert refreshes.outage_log_due(495.0)
    refreshes.begin(495.0)
    refreshes.failed(525.0, RNG)
    assert not refreshes.outage_log_due(525.0)
    assert refreshes.outage_s(530.0) == 40.0
    assert refreshes.succeeded(530.0, RNG)
    assert refreshes.outage_s(531.0) == 0.0


def test_topics_are_requested_while_they_have_references():
    topic_references = TopicReferences()
    assert topic_references.topics_to_request() == ()
    assert topic_references.add(["b", "a"]) == ("b", "a")
    assert not topic_references.add(["a"])
    assert topic_references.topics_to_request() == ("b", "a")
    topic_references.remove(["a", "b"])
    assert topic_references.topics_to_request() == ("a",)
    topic_references.remove(["a"])
    topic_references.remove(["a"])
    assert topic_references.topics_to_request() == ()


@pytest.mark.parametrize("name", [7, "", "\ud800", "t" * 32_768])
def test_an_invalid_topic_name_is_rejected_without_a_reference(name: object):
    topic_references = TopicReferences()
    with pytest.raises((TypeError, ValueError)):
        topic_references.add(["good", name])
    assert topic_references.topics_to_request() == ()


def test_all_topics_can_be_requested():
    topic_references = TopicReferences()
    assert topic_references.set_all_topics(True)
    assert not topic_references.set_all_topics(True)
    assert topic_references.topics_to_request() is None
    assert not topic_references.add(["a"])
    assert not topic_references.set_all_topics(False)
    assert topic_references.topics_to_request() == ("a",)
    assert list(topic_references.topics()) == ["a"]


def test_a_missing_topic_is_logged_once_per_absence():
    missing, late = MissingTopicLog(), 10.0 + MISSING_TOPIC_LOG_AFTER_S
    assert missing.names_to_log(["a", "b"], 10.0) == []
    assert missing.names_to_log(["a"], late) == ["a"]
    assert missing.names_to_log(["a", "b"], late) == []
    assert missing.names_to_log(["b"], late + MISSING_TOPIC_LOG_AFTER_S) == ["b"]
    assert missing.names_to_log(["a", "b"], 100.0) == []
    assert missing.names_to_log(["a", "b"], 100.0 + MISSING_TOPIC_LOG_AFTER_S) == ["a"]


def test_a_required_rebootstrap_is_due_until_it_succeeds():
    refreshes = RefreshSchedule(backoff=Backoff(0.1, 1.0), max_age_s=300.0, rebootstrap_s=300.0)
    assert refreshes.require_rebootstrap()
    assert not refreshes.require_rebootstrap()
    assert refreshes.rebootstrap_due(0.0)
    refreshes.bootstrapped()
    assert not refreshes.rebootstrap_due(0.0)
    assert refreshes.require_rebootstrap()
