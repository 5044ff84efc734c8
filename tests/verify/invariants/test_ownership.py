"""Invariant 8: no partition is owned by two members at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.verify.invariants.history_builder import T0, HistoryBuilder
from verify.invariants import events
from verify.invariants.observed import Assignment, MemberRemoved, SharedPartition


def two_members(**options: Any) -> HistoryBuilder:
    builder = HistoryBuilder()
    builder.made()
    builder.consumer("c", group_protocol="consumer", **options)
    builder.consumer("d", group_protocol="consumer")
    builder.assigned(T0, client="c")
    return builder


def found(builder: HistoryBuilder, *removed: MemberRemoved, **rest: Any) -> list[str]:
    texts = builder.found(removed=removed, guarantees={"sessions_hold": False}, **rest)
    return [text for number, text in texts if number == 8]


def test_a_partition_moves_after_its_revocation() -> None:
    builder = two_members()
    builder.revoked(T0, client="c")
    builder.assigned(T0, client="d")
    assert found(builder) == []


def test_a_partition_that_moves_before_its_revocation() -> None:
    builder = two_members()
    builder.assigned(T0, client="d")
    assert found(builder) == ["1 partitions were owned by several members: t-0 by c and d"]
    removed = MemberRemoved(builder.time - 0.5, "c", "g")
    assert found(builder, removed) == []
    assert len(found(builder, MemberRemoved(0.5, "c", "g"))) == 1


def test_a_partition_that_moves_while_its_listener_runs() -> None:
    builder = two_members()
    builder.revoked(T0, client="c")
    builder.assigned(T0, client="d")
    builder.add(events.CallbackEnded, "c", "on_partitions_revoked")
    [text] = found(builder)
    assert "t-0 by c, whose listener runs, and d" in text
    assert found(builder, MemberRemoved(builder.time - 1.5, "c", "g")) == []


def test_members_that_ended_own_nothing() -> None:
    for ended in (events.Closed, events.Crashed):
        builder = two_members()
        builder.add(ended, "c")
        builder.assigned(T0, client="d")
        assert found(builder) == []


def test_a_topic_that_is_created_again_has_other_partitions() -> None:
    builder = two_members()
    builder.deleted()
    builder.made()
    builder.assigned(T0, client="d")
    assert found(builder) == []


def test_a_topic_that_is_deleted_before_the_assignment_arrives() -> None:
    builder = two_members()
    assigned_at = builder.time
    builder.history.insert(-1, events.TopicDeleted(assigned_at - 0.5, "", "t"))
    builder.made()
    builder.assigned(T0, client="d")
    sent = Assignment(assigned_at - 0.7, "c", "g", "m", 1, (T0,))
    assert found(builder, assignments=(sent,)) == []
    assert len(found(builder, assignments=(replace(sent, at=assigned_at - 0.3),))) == 1
    assert len(found(builder, assignments=(replace(sent, partitions=()),))) == 1


def test_a_static_classic_member_may_miss_a_generation() -> None:
    builder = HistoryBuilder()
    builder.made()
    builder.consumer("c", group_instance_id="i")
    builder.consumer("d")
    builder.assigned(T0, client="c")
    builder.assigned(T0, client="d")
    assert found(builder) == []


def test_a_coordinator_that_gives_a_partition_to_two_members() -> None:
    shared = SharedPartition(1.0, "g", 3, ("c", "d"))
    [text] = found(two_members(), shared=(shared,))
    assert text == "1 partitions were assigned to several members: partition 3 of g to c and d"
