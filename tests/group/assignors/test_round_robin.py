from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.group.assignors import MemberSubscription, RoundRobinAssignor
from tests.group.assignors.cases import Group, check_valid, groups, modestly, sets_of


@modestly
@given(group=groups(), rng=st.randoms(use_true_random=False))
def test_all_partitions_are_assigned_for_any_order_of_members(
    group: Group, rng: st.DataObject
) -> None:
    assignment = group.assign(RoundRobinAssignor())
    check_valid(group, assignment)
    rng.shuffle(group.members)
    assert group.assign(RoundRobinAssignor()) == assignment


@modestly
@given(groups(alike=True))
def test_members_with_equal_subscriptions_get_equal_numbers(group: Group) -> None:
    counts = [len(owned) for owned in group.assign(RoundRobinAssignor()).values()]
    assert max(counts) - min(counts) <= 1


def test_the_next_member_continues_across_topics() -> None:
    members = [MemberSubscription(name, ("a", "b")) for name in ("1", "2")]
    assignment = RoundRobinAssignor().assign({"a": 3, "b": 3}, members, {})
    assert {name: [str(tp) for tp in owned] for name, owned in assignment.items()} == {
        "1": ["a-0", "a-2", "b-1"],
        "2": ["a-1", "b-0", "b-2"],
    }


def test_members_without_the_subscription_are_skipped() -> None:
    members = [
        MemberSubscription("1", ("a",)),
        MemberSubscription("2", ("a", "b")),
        MemberSubscription("3", ("b",)),
    ]
    assignment = sets_of(RoundRobinAssignor().assign({"a": 2, "b": 3}, members, {}))
    assert {name: {str(tp) for tp in owned} for name, owned in assignment.items()} == {
        "1": {"a-0"},
        "2": {"a-1", "b-1"},
        "3": {"b-0", "b-2"},
    }
