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
    made = RefreshSchedule(backoff=Backoff(0.1, 1.0), max_age_s=300.0, rebootstrap_s=300.0)
    made.begin(100.0)
    made.succeeded(100.0, RNG)
    return made


def test_it_is_due_at_its_age():
    assert schedule().next_at() == 400.0


def test_asked_for_after_a_while_it_is_due_at_once():
    made = schedule()
    made.ask()
    assert made.next_at() == pytest.approx(100.1)
    made.begin(100.0)
    assert made.next_at() == 400.0


def test_in_a_row_refreshes_keep_growing_distances():
    made, now, gaps = schedule(), 100.0, []
    for _ in range(6):
        made.ask()
        gaps.append(made.next_at() - now)
        now = made.next_at()
        made.begin(100.0)
        made.succeeded(now, RNG)
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_after_quiet_the_distances_begin_anew():
    made = schedule()
    for now in (100.1, 100.3, 100.7):
        made.begin(100.0)
        made.succeeded(now, RNG)
    made.begin(100.0)
    made.succeeded(110.0, RNG)
    made.ask()
    assert made.next_at() == pytest.approx(110.1)


def test_what_was_never_asked_before_does_not_wait():
    made = schedule()
    made.ask(urgent=True)
    assert made.next_at() < 100.0
    made.begin(100.0)
    made.ask()
    assert made.next_at() == pytest.approx(100.1)


def test_some_topics_may_be_asked_for_alone():
    made = schedule()
    made.ask(["a"], urgent=True)
    made.ask(["b", "a"])
    assert made.begin(101.0) == ("a", "b")
    made.succeeded(101.0, RNG, partial=True)
    assert made.next_at() == 400.0  # the others are as old as they were
    made.ask(["c"])
    made.ask()
    made.ask(["d"])
    assert made.begin(102.0) is None
    made.ask(["e"])
    assert made.begin(400.0) is None  # all are due by now


def test_a_failed_refresh_of_some_topics_is_followed_by_one_of_all():
    made = schedule()
    made.ask(["a"])
    made.begin(101.0)
    made.failed(101.0, RNG)
    assert made.begin(102.0) is None


def test_a_new_topic_is_not_held_up_by_what_was_asked_before():
    made, now = schedule(), 100.0
    for _ in range(6):
        made.ask()
        now = made.next_at()
        made.begin(now)
        made.succeeded(now, RNG)
    made.ask(["new"], urgent=True)
    made.begin(now)
    made.succeeded(now, RNG, partial=True)
    made.ask(["new"])
    assert made.next_at() == pytest.approx(now + 0.1)


def test_a_failure_is_repeated_with_backoff():
    made = schedule()
    made.begin(100.0)
    made.failed(500.0, RNG)
    assert made.next_at() == pytest.approx(500.1)


def test_what_is_asked_during_a_refresh_needs_another_one():
    made = schedule()
    made.begin(100.0)
    made.ask()
    made.succeeded(500.0, RNG)
    assert made.next_at() == pytest.approx(500.1)


def test_the_known_brokers_are_given_up_after_a_while():
    made = schedule()
    made.failed(500.0, RNG)
    made.failed(700.0, RNG)
    assert not made.rebootstrap_due(799.0)
    assert made.rebootstrap_due(800.0)
    made.succeeded(800.0, RNG)
    assert not made.rebootstrap_due(5_000.0)


def test_the_log_is_told_once_in_each_outage():
    made = schedule()
    for start in (500.0, 5_000.0):
        made.failed(start, RNG)
        assert not made.should_log(start + NO_BROKER_LOG_AFTER_S - 1)
        assert made.should_log(start + NO_BROKER_LOG_AFTER_S)
        assert not made.should_log(start + NO_BROKER_LOG_AFTER_S + 1)
        assert made.succeeded(start + 100, RNG)
        assert not made.succeeded(start + 200, RNG)


def test_topics_are_wanted_while_somebody_uses_them():
    topic_references = TopicReferences()
    assert topic_references.wanted() == ()
    assert topic_references.add(["b", "a"]) == ("b", "a")
    assert not topic_references.add(["a"])
    assert topic_references.wanted() == ("b", "a")
    topic_references.remove(["a", "b"])
    assert topic_references.wanted() == ("a",)
    topic_references.remove(["a"])
    topic_references.remove(["a"])
    assert topic_references.wanted() == ()


@pytest.mark.parametrize("name", [7, "", "\ud800", "t" * 32_768])
def test_what_no_request_can_name_is_refused_and_leaves_no_trace(name: object):
    topic_references = TopicReferences()
    with pytest.raises((TypeError, ValueError)):
        topic_references.add(["good", name])
    assert topic_references.wanted() == ()


def test_everything_may_be_wanted():
    topic_references = TopicReferences()
    assert topic_references.set_all_topics(True)
    assert not topic_references.set_all_topics(True)
    assert topic_references.wanted() is None
    assert not topic_references.add(["a"])
    assert not topic_references.set_all_topics(False)
    assert topic_references.wanted() == ("a",)
    assert list(topic_references.users()) == ["a"]


def test_a_topic_is_told_of_once_in_each_absence():
    absences, late = MissingTopicLog(), 10.0 + MISSING_TOPIC_LOG_AFTER_S
    assert absences.late(["a", "b"], 10.0) == []
    assert absences.late(["a"], late) == ["a"]
    assert absences.late(["a", "b"], late) == []
    assert absences.late(["b"], late + MISSING_TOPIC_LOG_AFTER_S) == ["b"]
    assert absences.late(["a", "b"], 100.0) == []
    assert absences.late(["a", "b"], 100.0 + MISSING_TOPIC_LOG_AFTER_S) == ["a"]
