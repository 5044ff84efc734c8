from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.group.assignors import MemberSubscription, RangeAssignor
from aiokafkawire.types import TopicPartition
from tests.group.assignors.cases import Group, check_valid, groups, modestly, sets_of


@modestly
@given(group=groups(), rng=st.randoms(use_true_random=False))
def test_each_topic_is_divided_evenly_for_any_order_of_members(
    group: Group, rng: st.DataObject
) -> None:
    assignment = group.assign(RangeAssignor())
    check_valid(group, assignment)
    for topic in group.partitions:
        counts = [
            sum(tp.topic == topic for tp in assignment[member.member_id])
            for member in group.members
            if topic in member.topics
        ]
        assert not counts or max(counts) - min(counts) <= 1
    rng.shuffle(group.members)
    assert group.assign(RangeAssignor()) == assignment


@modestly
@given(groups(racks=False))
def test_without_racks_partitions_are_consecutive(group: Group) -> None:
    for partitions in group.assign(RangeAssignor()).values():
        for topic in {tp.topic for tp in partitions}:
            numbers = [tp.partition for tp in partitions if tp.topic == topic]
            assert numbers == list(range(numbers[0], numbers[-1] + 1))


def in_racks(topics: dict[str, list[str]], members: dict[str, str | None]) -> dict[str, set[str]]:
    """Assign topics whose partitions have replicas in these racks."""
    assignment = RangeAssignor().assign(
        {topic: len(racks) for topic, racks in topics.items()},
        [MemberSubscription(name, tuple(topics), rack=rack) for name, rack in members.items()],
        {
            TopicPartition(topic, number): tuple(replica_racks)
            for topic, racks in topics.items()
            for number, replica_racks in enumerate(racks)
        },
    )
    return {name: {str(tp) for tp in owned} for name, owned in sets_of(assignment).items()}


def test_members_get_partitions_of_their_rack_within_their_quota() -> None:
    divided = in_racks({"a": ["y", "x", "y", "x"]}, {"1": "x", "2": "y"})
    assert divided == {"1": {"a-1", "a-3"}, "2": {"a-0", "a-2"}}
    divided = in_racks({"a": ["x", "x", "x", "y"]}, {"1": "y", "2": "x"})
    assert divided == {"1": {"a-2", "a-3"}, "2": {"a-0", "a-1"}}


def test_a_member_without_a_rack_gets_any_partition() -> None:
    divided = in_racks({"a": ["x", "y"]}, {"1": None, "2": "x"})
    assert divided == {"1": {"a-0"}, "2": {"a-1"}}


def test_co_partitioned_topics_get_the_same_assignment() -> None:
    divided = in_racks({"a": ["y", "x"], "b": ["y", "x"]}, {"1": "x", "2": "y"})
    assert divided == {"1": {"a-1", "b-1"}, "2": {"a-0", "b-0"}}
    # Co-partitioning takes precedence over racks.
    divided = in_racks({"a": ["y", "x"], "b": ["x", "y"]}, {"1": "x", "2": "y"})
    assert divided == {"1": {"a-0", "b-0"}, "2": {"a-1", "b-1"}}


def test_racks_are_ignored_if_each_has_all_replicas() -> None:
    divided = in_racks({"a": ["xy", "yx", "xy", "yx"]}, {"1": "y", "2": "x"})
    assert divided == {"1": {"a-0", "a-1"}, "2": {"a-2", "a-3"}}
