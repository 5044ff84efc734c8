"""Invariant 11: that it passes what is right, and names what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.types import TopicPartition
from tests.invariants.events import AssignedByHand, Fault, Healed, Subscribed
from tests.invariants.history_builder import T0, HistoryBuilder, log, v
from tests.invariants.observed import Log

GROUP = {"complete_groups": ("g",)}


def r(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, v(offset)) for offset in offsets]


def elevens(story: HistoryBuilder, *logs: Log, **guarantees: Any) -> list[str]:
    found = story.found(*logs, guarantees=guarantees or GROUP)
    return [text for number, text in found if number == 11]


def group() -> HistoryBuilder:
    """Two members, and three records."""
    story = HistoryBuilder()
    story.made()
    story.producer(request_timeout_ms=30_000)
    story.sent(v(0), v(1), v(2))
    story.consumer("c")
    story.consumer("d")
    story.assigned(T0, client="c")
    return story


ALL = log(v(0), v(1), v(2))


def test_what_the_members_of_a_group_read_between_them() -> None:
    story = group()
    story.polled(*r(0, 1))
    story.revoked(T0)
    story.assigned(T0, client="d")
    story.polled(*r(1, 2), client="d")
    assert elevens(story, ALL) == []


def test_a_record_that_nobody_was_given() -> None:
    story = group()
    story.polled(*r(0, 1))
    story.consumer("e", group_id="other")
    story.polled(*r(2), client="e")
    assert elevens(story, ALL) == ["1 records were never given to group g: p-2| at t-0@2"]
    assert elevens(story, ALL, complete_readers=()) == []


def test_partitions_that_nobody_wants_are_left_out() -> None:
    story = group()
    story.polled(*r(0, 1, 2))
    story.made("u")
    assert elevens(story, ALL, log(b"x", topic="u")) == []
    story.add(Subscribed, "c", (), "u.*")
    assert len(elevens(story, ALL, log(b"x", topic="u"))) == 1


def test_a_topic_that_is_gone_needs_not_be_read() -> None:
    story = group()
    story.deleted()
    assert elevens(story, ALL) == []
    story.made()
    story.sent(v(10))
    assert elevens(story, ALL, log(incarnation=1)) == []
    again = (ALL, log(v(10), incarnation=1))
    assert len(elevens(story, *again)) == 1
    assert elevens(story, *again, complete_groups=("g",), in_metadata=False) == []


def test_a_topic_made_again_with_fewer_partitions() -> None:
    story = group()
    story.polled(*r(0, 1, 2))
    story.deleted()
    story.made()
    gone = log(b"gone", partition=1)
    assert elevens(story, ALL, gone, log(incarnation=1)) == []


def test_readers_without_a_group() -> None:
    story = HistoryBuilder()
    story.consumer("c", group_id=None)
    story.consumer("h", group_id=None, topics=())
    story.add(AssignedByHand, "h", (T0, TopicPartition("t", 5)))
    story.polled(*r(0, 1), client="c")
    story.polled(*r(0, 1, 2), client="h")
    assert elevens(story, ALL, complete_readers=("h",)) == []
    assert len(elevens(story, ALL, complete_readers=("c", "h"))) == 1


def test_readers_of_committed_records_need_no_others() -> None:
    mixed = log((v(0), "committed"), (v(1), "aborted"), v(2))
    for isolation, count in (("read_committed", 0), ("read_uncommitted", 1)):
        story = HistoryBuilder()
        story.consumer("c", isolation_level=isolation)
        story.polled((0, v(0)), (2, v(2)))
        assert len(elevens(story, mixed)) == count


@pytest.mark.parametrize(("after_s", "late"), [(55.0, 0), (70.0, 1)])
def test_everything_is_consumed_in_time_after_the_heal(after_s: float, late: int) -> None:
    story = group()
    story.polled(*r(0, 1))
    story.add(Fault, "", "cut")
    story.time += 1_000
    story.add(Healed, "")
    story.time += after_s
    story.polled(*r(2))
    assert len(elevens(story, ALL)) == late
    assert elevens(story, ALL, complete_groups=("g",), consumed_within_s=100.0) == []


def test_what_was_sent_later_is_given_later() -> None:
    story = group()
    story.add(Healed, "")
    story.polled(*r(0, 1, 2))
    story.time += 200
    story.sent(v(3), first=3)
    story.polled(*r(3))
    assert elevens(story, log(v(0), v(1), v(2), v(3))) == []


def test_a_transaction_can_be_read_from_its_end_on() -> None:
    def found(*, asked: bool) -> int:
        story = group()
        story.add(Healed, "")
        story.polled(*r(0, 1, 2))
        story.producer("q", transactional_id="x")
        story.began(1, "q")
        story.send(v(1, "q"), client="q", transaction=1)
        story.time += 200
        if asked:
            story.end_asked(1, client="q")
        story.polled((3, v(1, "q")))
        return len(elevens(story, log(v(0), v(1), v(2), (v(1, "q"), "committed"))))

    assert found(asked=True) == 0
    assert found(asked=False) == 1


def failing_send(error: str, after_s: float, *, broken: bool = True) -> list[str]:
    story = group()
    if broken:
        story.add(Fault, "", "cut")
        story.add(Healed, "")
    story.time += after_s
    story.send(v(9))
    story.fail(v(9), error, unknown=True)
    return elevens(story, complete_readers=())


@pytest.mark.parametrize(
    ("error", "after_s", "wrong"),
    [
        ("DeliveryUnknown", 40.0, True),
        ("BrokerError", 40.0, True),
        ("DeliveryUnknown", 20.0, False),
        ("ProducerFenced", 40.0, False),
        ("Cancelled", 40.0, False),
    ],
)
def test_sends_succeed_after_the_heal(error: str, after_s: float, wrong: bool) -> None:
    found = failing_send(error, after_s)
    assert [text.partition(":")[0] for text in found] == [
        "1 sends failed although nothing was broken any more"
    ] * wrong


def test_sends_succeed_where_nothing_is_ever_broken() -> None:
    assert len(failing_send("DeliveryTimedOut", 60.0, broken=False)) == 1


def test_without_a_heal_sends_may_fail() -> None:
    story = group()
    story.add(Fault, "", "cut")
    story.time += 1_000
    story.send(v(9))
    story.fail(v(9), "DeliveryUnknown", unknown=True)
    assert elevens(story, complete_readers=()) == []
    assert 11 in story.not_checked()


def test_calls_find_the_cluster_after_the_heal() -> None:
    def found(name: str, error: str) -> int:
        story = group()
        story.time += 60
        story.returned(story.call(name, 60.0), error)
        return len(elevens(story, complete_readers=()))

    assert found("commit", "RequestTimedOut") == 1
    assert found("start", "NoBrokerAvailable") == 1
    assert found("flush", "RequestTimedOut") == 0
    assert found("commit", "CommitFailed") == 0
