from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from aiokafkawire.group.assignors import MemberSubscription, general_sticky
from aiokafkawire.group.assignors.general_sticky import assign_general
from aiokafkawire.group.assignors.previous_assignment import (
    OwnedPartitions,
    resolve_previous_assignment,
)
from aiokafkawire.group.assignors.racks import RackInfo
from aiokafkawire.types import TopicPartition
from tests.group.assignors.cases import Group, check_balanced, check_valid


def compute_assignments(
    partitions: dict[str, int], members: list[MemberSubscription]
) -> dict[str, list[TopicPartition]]:
    every = [TopicPartition(topic, n) for topic, count in partitions.items() for n in range(count)]
    claims = resolve_previous_assignment(
        members, partitions, lambda m: OwnedPartitions(m.owned, m.generation)
    )
    return assign_general(partitions, members, claims, RackInfo(members, every, {}))


def member(name: str, topics: str, *owned: str, generation: int = 1) -> MemberSubscription:
    had = tuple(TopicPartition(text[0], int(text[1:])) for text in owned)
    return MemberSubscription(name, tuple(topics), owned=had, generation=generation)


def texts(divided: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {
        name: " ".join(sorted(f"{tp.topic}{tp.partition}" for tp in got))
        for name, got in divided.items()
    }


def test_topics_with_fewer_subscribers_are_assigned_first() -> None:
    divided = compute_assignments({"a": 2, "b": 2}, [member("1", "ab"), member("2", "b")])
    assert texts(divided) == {"1": "a0 a1", "2": "b0 b1"}


def test_a_balanced_assignment_does_not_change() -> None:
    before = [member("1", "ab", "a0", "b1"), member("2", "b", "b0"), member("3", "a", "a1")]
    assert texts(compute_assignments({"a": 2, "b": 2}, before)) == {
        "1": "a0 b1",
        "2": "b0",
        "3": "a1",
    }


def test_only_unsubscribed_partitions_move() -> None:
    before = [member("1", "a", "a0", "b0"), member("2", "ab", "a1", "b1")]
    assert texts(compute_assignments({"a": 2, "b": 2}, before)) == {"1": "a0 a1", "2": "b0 b1"}


def test_a_previous_owner_gets_its_partition_back() -> None:
    now = [
        member("1", "ab", "a0", "a1", "a2", "b0", generation=5),
        member("2", "a", generation=-1),
        member("3", "a", "a0", generation=4),
    ]
    assert texts(compute_assignments({"a": 3, "b": 1}, now)) == {"1": "a2 b0", "2": "a1", "3": "a0"}


def chain(count: int, each: int) -> tuple[dict[str, int], list[MemberSubscription]]:
    """Return members that each share a topic with the next. The first owns all it can."""
    topics = [chr(ord("a") + n) for n in range(count)]
    members = [member(f"{n:02}", "".join(pair)) for n, pair in enumerate(pairwise(topics))]
    first = tuple(TopicPartition(t, n) for t in members[0].topics for n in range(each))
    members[0] = MemberSubscription("00", members[0].topics, owned=first, generation=3)
    return dict.fromkeys(topics, each), members


def test_partitions_move_along_a_chain_of_members() -> None:
    partitions, members = chain(9, 6)
    divided = compute_assignments(partitions, members)
    group = Group(partitions, members, {})
    check_valid(group, divided)
    check_balanced(group, divided)


@pytest.mark.parametrize("swaps", [0, 4])
def test_the_result_is_balanced_with_any_limit_of_swaps(
    swaps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(general_sticky, "MAX_SWAPS_PER_PARTITION", swaps)
    rng = Random(11)
    for _ in range(40):
        partitions = {topic: rng.randint(1, 9) for topic in "abcde"}
        every = [TopicPartition(t, n) for t, count in partitions.items() for n in range(count)]
        rng.shuffle(every)
        members = []
        for name in "12345":
            topics = tuple(rng.sample("abcde", rng.randint(1, 4)))
            had = tuple(every.pop() for _ in range(min(len(every), rng.randint(0, 12))))
            members.append(
                MemberSubscription(name, topics, owned=had, generation=rng.randint(1, 2))
            )
        subscribed = {topic for m in members for topic in m.topics}
        partitions = {topic: count for topic, count in partitions.items() if topic in subscribed}
        divided = compute_assignments(partitions, members)
        check_valid(Group(partitions, members, {}), divided)
        check_balanced(Group(partitions, members, {}), divided)
