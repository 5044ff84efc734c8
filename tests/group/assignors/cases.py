"""Java's results, random groups, and checks of assignments."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from aiokafkawire.group.assignors import Assignor, MemberSubscription, StickyAssignor
from aiokafkawire.group.assignors.previous_assignment import encode_owned
from aiokafkawire.types import TopicPartition

VECTORS = Path(__file__).parents[2] / "vectors"

ReplicaRacks = Mapping[TopicPartition, tuple[str, ...]]
Assignment = Mapping[str, Sequence[TopicPartition]]


@dataclass(frozen=True)
class Group:
    """Input of an assignor."""

    partitions: Mapping[str, int]
    members: Sequence[MemberSubscription]
    racks: ReplicaRacks

    def assign(self, assignor: Assignor) -> Assignment:
        return assignor.assign(self.partitions, self.members, self.racks)

    @property
    def subscribed_partitions(self) -> set[TopicPartition]:
        """The partitions of all subscribed topics."""
        topics = {topic for member in self.members for topic in member.topics}
        return {
            TopicPartition(topic, number)
            for topic in topics
            for number in range(self.partitions.get(topic, 0))
        }

    def rejoin_with(self, assignor: Assignor, assignment: Assignment, generation: int) -> Group:
        """Return the group whose members rejoin with this assignment."""
        sticky = isinstance(assignor, StickyAssignor)
        members = []
        for member in self.members:
            got = tuple(assignment.get(member.member_id, ()))
            if sticky:
                members.append(replace(member, user_data=encode_owned(got, generation)))
            else:
                members.append(replace(member, owned=got, generation=generation))
        return replace(self, members=members)


def lines_of(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(VECTORS / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def group_of(case: Mapping[str, Any]) -> Group:
    """Return the group of a Java case."""
    rack_of = {node["id"]: node["rack"] for node in case["nodes"]}
    racks: dict[TopicPartition, tuple[str, ...]] = {}
    for topic, info in case["topics"].items():
        for number, replicas in enumerate(info.get("replicas", ())):
            racks_of_replicas = (rack_of[node] for node in replicas)
            racks[TopicPartition(topic, number)] = tuple(
                dict.fromkeys(rack for rack in racks_of_replicas if rack is not None)
            )
    members = [
        MemberSubscription(
            member["memberId"],
            tuple(member["topics"]),
            member["groupInstanceId"],
            None if member["userData"] is None else base64.b64decode(member["userData"]),
            tuple(TopicPartition(*owned) for owned in member["ownedPartitions"]),
            member["generationId"],
            member["rackId"],
        )
        for member in case["members"]
    ]
    counts = {topic: info["partitions"] for topic, info in case["topics"].items()}
    return Group(counts, members, racks if any(racks.values()) else {})


def expected_of(case: Mapping[str, Any]) -> dict[str, set[TopicPartition]]:
    return {
        member_id: {TopicPartition(*owned) for owned in partitions}
        for member_id, partitions in case["assignment"].items()
    }


def sets_of(assignment: Assignment) -> dict[str, set[TopicPartition]]:
    return {member_id: set(partitions) for member_id, partitions in assignment.items()}


# --- what holds for each division ---


def check_valid(
    group: Group, assignment: Assignment, held_back: frozenset[TopicPartition] = frozenset()
) -> None:
    """Check that each partition has one subscribed owner; `held_back` ones may have none."""
    owners = Counter(tp for partitions in assignment.values() for tp in partitions)
    assert set(owners.values()) <= {1}
    assert group.subscribed_partitions - held_back <= set(owners) <= group.subscribed_partitions
    assert set(assignment) == {member.member_id for member in group.members}
    for member in group.members:
        assert {tp.topic for tp in assignment[member.member_id]} <= set(member.topics)


def check_balanced(group: Group, assignment: Assignment) -> None:
    """Check that no partition could move to a member that has at least two fewer."""
    fewest = {
        topic: min(len(assignment[m.member_id]) for m in group.members if topic in m.topics)
        for topic in {tp.topic for tp in group.subscribed_partitions}
    }
    for partitions in assignment.values():
        for topic in {tp.topic for tp in partitions}:
            assert len(partitions) <= fewest[topic] + 1


def check_sticky(group: Group, before: Assignment, assignment: Assignment) -> None:
    """Check that no two members exchange partitions of a topic."""
    moves: set[tuple[str, str, str]] = set()
    owner = {tp: member_id for member_id, got in assignment.items() for tp in got}
    for member_id, had in before.items():
        for tp in set(had) & set(owner):
            if owner[tp] != member_id:
                moves.add((tp.topic, member_id, owner[tp]))
    assert not [move for move in moves if (move[0], move[2], move[1]) in moves]
    if len({frozenset(member.topics) for member in group.members}) == 1:
        check_no_unnecessary_loss(group, before, assignment)


def check_no_unnecessary_loss(group: Group, before: Assignment, assignment: Assignment) -> None:
    least, extra = divmod(len(group.subscribed_partitions), len(group.members))
    had = {
        member_id: set(owned) & group.subscribed_partitions for member_id, owned in before.items()
    }
    for member_id, got in sets_of(assignment).items():
        lost, gained = had[member_id] - got, got - had[member_id]
        assert not (lost and gained)
        if lost:
            assert len(got) >= least
    if extra:
        could = sum(len(owned) > least for owned in had.values())
        stayed = sum(
            len(set(got) & had[member_id]) > least for member_id, got in assignment.items()
        )
        assert stayed == min(could, extra)


# --- groups at random ---

modestly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Drawing a group takes longer than an assignment, and much longer on a busy machine."""

TOPICS = ("a", "b", "c", "d")


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None, racks: bool | None = None) -> Group:
    """Return groups whose members own nothing yet."""
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7)))
    subscriptions = st.lists(st.sampled_from(TOPICS), unique=True)
    if alike is None:
        alike = draw(st.booleans())
    together = draw(subscriptions) if alike else None
    where = st.sampled_from(["x", "y", "z"])
    with_racks = draw(st.booleans()) if racks is None else racks
    members = [
        MemberSubscription(
            member_id,
            tuple(draw(subscriptions) if together is None else together),
            draw(st.sampled_from([None, f"i-{member_id[::-1]}"])),
            rack=draw(st.none() | where) if with_racks else None,
        )
        for member_id in draw(
            st.lists(st.text("mnäß𝒳", min_size=1, max_size=3), min_size=1, max_size=6, unique=True)
        )
    ]
    replica_racks: dict[TopicPartition, tuple[str, ...]] = {}
    if with_racks:
        replica_racks = {
            TopicPartition(topic, number): tuple(draw(st.lists(where, unique=True, max_size=2)))
            for topic, count in counts.items()
            for number in range(count)
        }
    return Group(counts, members, replica_racks)


@st.composite
def changed_groups(draw: st.DrawFn, group: Group) -> Group:
    """Return the group after members, subscriptions and partitions changed."""
    members = [member for member in group.members if draw(st.integers(0, 3))]
    for number in range(draw(st.integers(0 if members else 1, 2))):
        like = draw(st.sampled_from(group.members))
        newcomer = MemberSubscription(f"new-{number}", like.topics, rack=like.rack)
        members.append(newcomer)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(members) - 1))
        topics = draw(st.lists(st.sampled_from(TOPICS), unique=True))
        members[at] = replace(members[at], topics=tuple(topics))
    counts = dict(group.partitions)
    if counts and draw(st.booleans()):
        counts[draw(st.sampled_from(sorted(counts)))] = draw(st.integers(0, 9))
    return Group(counts, members, group.racks)
