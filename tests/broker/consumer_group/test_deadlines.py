"""Deadlines by key."""

from __future__ import annotations

import math

from aiokafkawire.broker.groups.consumer_group.deadlines import Deadlines


def test_expired_keys_are_returned_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next() == math.inf
    deadlines.set("a", 2.0)
    deadlines.set("b", 1.0)
    assert deadlines.next() == 1.0
    assert deadlines.take_expired(1.0) == ["b"]
    assert deadlines.take_expired(3.0) == ["a"]
    assert deadlines.next() == math.inf


def test_later_deadline_replaces_an_earlier_one() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1.0)
    deadlines.set("a", 5.0)
    assert deadlines.take_expired(1.0) == []
    assert deadlines.next() == 5.0
    assert deadlines.take_expired(5.0) == ["a"]


def test_earlier_deadline_replaces_a_later_one() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 5.0)
    deadlines.set("a", 1.0)
    assert deadlines.take_expired(1.0) == ["a"]
    assert deadlines.take_expired(9.0) == []


def test_cancelled_deadline_does_not_expire() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1.0)
    deadlines.cancel("a")
    deadlines.cancel("b")
    assert "a" not in deadlines
    assert deadlines.take_expired(2.0) == []


def test_heap_does_not_grow_with_heartbeats() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for now in range(1_000):
        deadlines.set("a", now + 45.0)
        deadlines.take_expired(float(now))
    assert len(deadlines._heap) == 1
