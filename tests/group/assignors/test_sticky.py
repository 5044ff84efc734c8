from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    StickyAssignor,
)
from aiokafkawire.group.assignors.previous_assignment import encode_generation, encode_owned
from aiokafkawire.types import TopicPartition
from tests.group.assignors.cases import (
    Group,
    changed_groups,
    check_balanced,
    check_sticky,
    check_valid,
    groups,
    modestly,
    sets_of,
)

MAX_ROUNDS = 4
"""A cooperative group must converge within this many rebalances."""


@modestly
@given(group=groups(), data=st.data())
def test_sticky_is_valid_balanced_and_sticky(group: Group, data: st.DataObject) -> None:
    assignor = StickyAssignor()
    before = group.assign(assignor)
    check_valid(group, before)
    check_balanced(group, before)
    group = data.draw(changed_groups(group.rejoin_with(assignor, before, 1)))
    assignment = group.assign(assignor)
    check_valid(group, assignment)
    check_balanced(group, assignment)
    if not group.racks:
        remained = {m.member_id: before.get(m.member_id, []) for m in group.members}
        check_sticky(group, remained, assignment)


@modestly
@given(groups(racks=False), st.sampled_from([StickyAssignor, CooperativeStickyAssignor]))
def test_an_unchanged_group_keeps_its_assignment(group: Group, kind: type[Assignor]) -> None:
    first = group.assign(kind())
    assert sets_of(group.rejoin_with(kind(), first, 4).assign(kind())) == sets_of(first)


@modestly
@given(
    group=groups(),
    kind=st.sampled_from([StickyAssignor, CooperativeStickyAssignor]),
    rng=st.randoms(use_true_random=False),
    data=st.data(),
)
def test_the_order_of_members_does_not_matter(
    group: Group, kind: type[Assignor], rng: st.DataObject, data: st.DataObject
) -> None:
    group = data.draw(changed_groups(group.rejoin_with(kind(), group.assign(kind()), 1)))
    assignment = group.assign(kind())
    rng.shuffle(group.members)
    assert group.assign(kind()) == assignment


@modestly
@given(group=groups(), data=st.data())
def test_cooperative_members_never_share_a_partition_and_converge(
    group: Group, data: st.DataObject
) -> None:
    assignor = CooperativeStickyAssignor()
    before = group.assign(assignor)
    check_valid(group, before)
    group = data.draw(changed_groups(group.rejoin_with(assignor, before, 1)))
    for generation in range(2, 2 + MAX_ROUNDS):
        owned = {tp: m.member_id for m in group.members for tp in m.owned}
        assignment = group.assign(assignor)
        for member_id, got in assignment.items():
            assert all(owned.get(tp, member_id) == member_id for tp in got)
        check_valid(group, assignment, frozenset(owned))
        group = group.rejoin_with(assignor, assignment, generation)
        if {tp for got in assignment.values() for tp in got} == group.subscribed_partitions:
            break
    check_valid(group, assignment)
    check_balanced(group, assignment)


@modestly
@given(groups(), st.data())
@pytest.mark.slow
def test_arbitrary_claims_give_a_valid_assignment(group: Group, data: st.DataObject) -> None:
    partitions = st.lists(st.builds(TopicPartition, st.sampled_from("abcdz"), st.integers(-1, 9)))
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        members = []
        for member in group.members:
            claimed = tuple(data.draw(partitions))
            generation = data.draw(st.integers(-1, 3))
            user_data = data.draw(
                st.none() | st.binary(max_size=12) | st.just(encode_owned(claimed, generation))
            )
            members.append(
                MemberSubscription(
                    member.member_id, member.topics, None, user_data, claimed, generation
                )
            )
        claiming = Group(group.partitions, members, group.racks)
        assignment = claiming.assign(assignor)
        held_back = frozenset(tp for m in members for tp in m.owned)
        check_valid(claiming, assignment, held_back if assignor.cooperative else frozenset())


def test_sticky_sends_its_assignment_in_user_data() -> None:
    assignor = StickyAssignor()
    assert assignor.user_data(["a"]) is None
    assignor.on_assignment([TopicPartition("a", 1)], 7)
    assert assignor.user_data(["a"]) == encode_owned([TopicPartition("a", 1)], 7)
    assert not assignor.cooperative


def test_cooperative_sticky_sends_its_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.user_data(["a"]) == b"\xff\xff\xff\xff"
    assignor.on_assignment([TopicPartition("a", 1)], 7)
    assert assignor.user_data(["a"]) == encode_generation(7)
    assert assignor.cooperative


def test_the_generation_is_read_from_user_data_of_old_subscriptions() -> None:
    claim = (TopicPartition("a", 0),)
    members = [
        MemberSubscription("1", ("a",), None, encode_generation(4), claim),
        MemberSubscription("2", ("a",), None, encode_generation(5), claim),
        MemberSubscription("3", ("a",), None, b"", ()),
    ]
    assert CooperativeStickyAssignor().assign({"a": 1}, members, {})["2"] == list(claim)


def test_a_partition_claimed_twice_stays_unassigned_for_one_generation() -> None:
    claim = (TopicPartition("a", 0),)
    members = [MemberSubscription(name, ("a",), owned=claim, generation=4) for name in "12"]
    given_now = CooperativeStickyAssignor().assign({"a": 2}, members, {})
    assert sorted(tp for got in given_now.values() for tp in got) == [TopicPartition("a", 1)]


@pytest.mark.parametrize("kind", [StickyAssignor, CooperativeStickyAssignor])
@pytest.mark.parametrize("alike", [True, False])
def test_a_large_group_is_assigned_in_time(kind: type[Assignor], alike: bool) -> None:
    partitions = {f"topic-{number}": 100 for number in range(20)}
    names = list(partitions)
    group = Group(
        partitions,
        [
            MemberSubscription(
                f"consumer-{number:03}", tuple(names if alike else names[number % 10 :])
            )
            for number in range(500)
        ],
        {},
    )
    first = group.assign(kind())
    again = group.rejoin_with(kind(), first, 1)
    fewer = Group(partitions, again.members[50:], {})
    began = process_time()
    assignment = fewer.assign(kind())
    assert process_time() - began < 2
    check_valid(fewer, assignment)
    check_balanced(fewer, assignment)
