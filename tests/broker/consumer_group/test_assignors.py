"""Comparison with the results of Kafka's server-side assignors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker.groups.consumer_group.assignors import (
    ASSIGNORS,
    Assignment,
    AssignmentSpec,
    AssignorError,
    MemberSpec,
)
from aiokafkawire.wire.primitives import uuid_from_text
from tests.wire.vectors import lines

Sets = Mapping[str, Mapping[UUID, frozenset[int]]]


def spec_of(case: Mapping[str, Any]) -> AssignmentSpec:
    """Return the input of a case in the order in which Kafka saw it."""
    return AssignmentSpec(
        members={
            member["memberId"]: MemberSpec(
                topic_ids=tuple(map(uuid_from_text, member["topicIds"])),
                assigned={
                    uuid_from_text(topic): tuple(partitions)
                    for topic, partitions in member["assigned"].items()
                },
                instance_id=member["instanceId"],
            )
            for member in case["members"]
        },
        partitions={uuid_from_text(each["topicId"]): each["partitions"] for each in case["topics"]},
        topic_order=tuple(map(uuid_from_text, case["topicHashOrder"])),
    )


def sets_of(assignment: Mapping[str, Assignment]) -> Sets:
    """Return the partitions of each member that has any."""
    return {
        member_id: {topic: frozenset(partitions) for topic, partitions in assigned.items()}
        for member_id, assigned in assignment.items()
        if assigned
    }


def expected_of(case: Mapping[str, Any]) -> Sets:
    return {
        member_id: {
            uuid_from_text(topic): frozenset(partitions) for topic, partitions in assigned.items()
        }
        for member_id, assigned in case["assignment"].items()
        if assigned
    }


def count_kept(spec: AssignmentSpec, assignment: Sets) -> int:
    return sum(
        len(assignment.get(member_id, {}).get(topic, frozenset()) & frozenset(partitions))
        for member_id, member in spec.members.items()
        for topic, partitions in member.assigned.items()
    )


def check_valid(spec: AssignmentSpec, assignment: Sets) -> None:
    """Check that each partition that somebody subscribes to has one owner, a subscriber."""
    owned = Counter(
        (topic, partition)
        for assigned in assignment.values()
        for topic, partitions in assigned.items()
        for partition in partitions
    )
    subscribed = {topic for member in spec.members.values() for topic in member.topic_ids}
    expected = {
        (topic, partition) for topic in subscribed for partition in range(spec.partitions[topic])
    }
    assert owned == Counter(expected)
    for member_id, assigned in assignment.items():
        assert set(assigned) <= set(spec.members[member_id].topic_ids)


def imbalance(spec: AssignmentSpec, assignment: Sets) -> int:
    sizes = [
        sum(map(len, assignment.get(member_id, {}).values()))
        for member_id, member in spec.members.items()
        if member.topic_ids
    ]
    return max(sizes, default=0) - min(sizes, default=0)


@pytest.mark.parametrize(("name", "count"), [("uniform", 165), ("range", 81)])
def test_results_equal_kafka(
    name: str, count: int, record_property: Callable[[str, object], None]
) -> None:
    equal = checked = 0
    for case in lines("server-assignors"):
        if case["assignor"] != name or case["assignment"] is None:
            continue
        spec = spec_of(case)
        result, expected = sets_of(ASSIGNORS[name](spec)), expected_of(case)
        checked += 1
        if case["subscriptionType"] == "homogeneous" or not case["orderSensitive"]:
            assert result == expected, case["id"]
        check_valid(spec, result)
        assert imbalance(spec, result) <= imbalance(spec, expected), case["id"]
        assert count_kept(spec, result) >= case["kept"], case["id"]
        equal += result == expected
    assert checked == count
    record_property("equal", f"{equal} of {checked}")
    print(f"{name}: {equal} of {checked} assignments equal Kafka's")


def test_topic_without_metadata_is_an_error() -> None:
    checked = 0
    for case in lines("server-assignors"):
        if case["assignor"] in ASSIGNORS and case["assignment"] is None:
            with pytest.raises(AssignorError, match="subscribed to"):
                ASSIGNORS[case["assignor"]](spec_of(case))
            checked += 1
    assert checked == 2


def test_member_without_topics_is_left_out_by_range() -> None:
    topic = UUID(int=1)
    spec = AssignmentSpec({"a": MemberSpec((topic,)), "b": MemberSpec(())}, {topic: 2})
    assert ASSIGNORS["range"](spec) == {"a": {topic: (0, 1)}}


def test_group_without_topics_has_no_assignment() -> None:
    spec = AssignmentSpec({"a": MemberSpec(())}, {})
    assert ASSIGNORS["uniform"](spec) == {}
