"""Measure the group leader's assignment: the assignor, the checks and the encoding."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aiokafkawire.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from aiokafkawire.group.assignors.previous_assignment import encode_generation, encode_owned
from aiokafkawire.group.leader import compute_assignments, encode_assignments
from aiokafkawire.types import TopicPartition
from benchmarks.scaling.curve import Curve, gc_disabled

PER_TOPIC = 10
SIZES = (10, 100, 1_000, 10_000)
MEMBERS = (1, 10, 100)
MEMBERS_BESIDE_SIZES = 10
SIZE_BESIDE_MEMBERS = 10_000
RACKS = ("a", "b", "c")

Racks = Mapping[TopicPartition, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Group:
    counts: Mapping[str, int]
    members: Sequence[MemberSubscription]
    racks: Racks


def make_group(partitions: int, members: int) -> Group:
    """Return a group whose members subscribe to all topics, of ten partitions each."""
    topics = tuple(f"topic-{number}" for number in range(partitions // PER_TOPIC))
    return Group(
        dict.fromkeys(topics, PER_TOPIC),
        [MemberSubscription(f"member-{number:04}", topics) for number in range(members)],
        {},
    )


def first(assignor: Assignor, group: Group) -> Group:
    """Return the group before its first assignment."""
    return group


def owning(
    group: Group, assignor: Assignor, assignments: Mapping[str, Sequence[TopicPartition]]
) -> list[MemberSubscription]:
    """Return the members as they rejoin with their assignments."""
    members = []
    for member in group.members:
        owned = tuple(assignments[member.member_id])
        if assignor.cooperative:
            data, reported = encode_generation(1), owned
        else:
            data, reported = encode_owned(owned, 1), ()
        members.append(replace(member, owned=reported, generation=1, user_data=data))
    return members


def after_a_departure(assignor: Assignor, group: Group) -> Group:
    """Return the group after one of its members left."""
    more = [*group.members, MemberSubscription("member-9999", group.members[0].topics)]
    before = replace(group, members=more)
    assignments = compute_assignments(assignor, before.counts, before.members, before.racks)
    return replace(group, members=owning(group, assignor, assignments))


def after_an_absence(assignor: Assignor, group: Group) -> Group:
    """Return the group after all but one member missed a generation."""
    assignments = compute_assignments(assignor, group.counts, group.members, group.racks)
    members = owning(group, assignor, assignments)
    newest = replace(members[0], generation=2, owned=members[0].owned)
    data = encode_generation(2) if assignor.cooperative else encode_owned(newest.owned, 2)
    return replace(group, members=[replace(newest, user_data=data), *members[1:]])


def unequal(assignor: Assignor, group: Group) -> Group:
    """Return the group with members that each subscribe to another two thirds of the topics."""
    members = [
        replace(
            member,
            topics=tuple(
                topic for at, topic in enumerate(member.topics) if at % 3 != index % 3 or at == 0
            ),
        )
        for index, member in enumerate(group.members)
    ]
    return replace(group, members=members)


def unequal_after_a_departure(assignor: Assignor, group: Group) -> Group:
    return after_a_departure(assignor, unequal(assignor, group))


def in_racks(assignor: Assignor, group: Group) -> Group:
    """Return the group with members in three racks and replicas in two racks each."""
    members = [replace(member, rack=RACKS[index % 3]) for index, member in enumerate(group.members)]
    racks = {
        TopicPartition(topic, number): (RACKS[number % 3], RACKS[(number + 1) % 3])
        for topic, count in group.counts.items()
        for number in range(count)
    }
    return replace(group, members=members, racks=racks)


Case = Callable[[Assignor, Group], Group]
ALL: tuple[type[Assignor], ...] = (
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
)
STICKY = (StickyAssignor, CooperativeStickyAssignor)
CASES: Sequence[tuple[str, Case, tuple[type[Assignor], ...]]] = (
    ("at first", first, ALL),
    ("in racks", in_racks, (RangeAssignor, *STICKY)),
    ("after a departure", after_a_departure, STICKY),
    ("after an absence", after_an_absence, STICKY),
    ("unequal", unequal, ALL),
    ("unequal, after a departure", unequal_after_a_departure, STICKY),
)


def cpu_ms(kind: type[Assignor], case: Case, partitions: int, members: int, repeats: int) -> float:
    group = case(kind(), make_group(partitions, members))
    times = []
    for _ in range(repeats):
        assignor = kind()
        with gc_disabled():
            began = time.process_time()
            encode_assignments(
                compute_assignments(assignor, group.counts, group.members, group.racks)
            )
            times.append(time.process_time() - began)
    return statistics.median(times) * 1000


def curves(repeats: int, sizes: Sequence[int] = SIZES) -> Iterator[Curve]:
    """Yield curves by partitions with ten members, then by members with 10,000 partitions."""
    for title, case, kinds in CASES:
        for kind in kinds:
            points = tuple(
                (size, cpu_ms(kind, case, size, MEMBERS_BESIDE_SIZES, repeats)) for size in sizes
            )
            yield Curve(f"{kind().name} {title}", "partitions", "ms", points)
    for title, case, kinds in CASES:
        for kind in kinds:
            points = tuple(
                (members, cpu_ms(kind, case, SIZE_BESIDE_MEMBERS, members, repeats))
                for members in MEMBERS
            )
            yield Curve(f"{kind().name} {title}", "members", "ms", points)
