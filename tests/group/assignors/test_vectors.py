"""Comparison with the results of Java's assignors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aiokafkawire.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from aiokafkawire.group.assignors.previous_assignment import decode_owned
from aiokafkawire.types import TopicPartition
from tests.group.assignors.cases import (
    Group,
    check_balanced,
    check_sticky,
    check_valid,
    expected_of,
    group_of,
    lines_of,
    sets_of,
)

JAVA_GIVES_TO_WHO_DID_NOT_SUBSCRIBE = {
    "assignor/CooperativeStickyAssignor/76/2",
    "assignor/CooperativeStickyAssignor/76/3",
    "assignor/CooperativeStickyAssignor/100/3",
}
"""Java assigns unsubscribed partitions here, so the results must differ."""


@pytest.mark.parametrize(
    ("assignor", "count"),
    [
        (RangeAssignor, 203),
        (RoundRobinAssignor, 220),
        (StickyAssignor, 248),
        (CooperativeStickyAssignor, 260),
    ],
)
def test_results_equal_java(
    assignor: type[Assignor], count: int, record_property: Callable[[str, object], None]
) -> None:
    equal = checked = 0
    for case in lines_of("assignors.jsonl.gz"):
        if case["assignor"] != assignor.__name__:
            continue
        group = group_of(case)
        assignment = group.assign(assignor())
        if case["orderSensitive"] or case["id"] in JAVA_GIVES_TO_WHO_DID_NOT_SUBSCRIBE:
            check_properties(group, assignor(), assignment)
            checked += 1
        else:
            assert sets_of(assignment) == expected_of(case), case["id"]
            equal += 1
    assert equal + checked == count
    record_property(
        "summary",
        f"assignors: {assignor.name}: {equal} results equal to Java's"
        + (f", {checked} valid, balanced and sticky" if checked else ""),
    )


def test_excluded_java_results_assign_unsubscribed_partitions() -> None:
    cases = {case["id"]: case for case in lines_of("assignors.jsonl.gz")}
    for case_id in JAVA_GIVES_TO_WHO_DID_NOT_SUBSCRIBE:
        topics = {m["memberId"]: m["topics"] for m in cases[case_id]["members"]}
        assert any(
            tp.topic not in topics[member_id]
            for member_id, partitions in expected_of(cases[case_id]).items()
            for tp in partitions
        )


def check_properties(group: Group, assignor: Assignor, assignment: Mapping[str, Any]) -> None:
    if isinstance(assignor, StickyAssignor):
        before = {m.member_id: decode_owned(m.user_data).partitions for m in group.members}
        check_valid(group, assignment)
    else:
        before = {m.member_id: m.owned for m in group.members}
        owned = [tp for had in before.values() for tp in had]
        check_valid(group, assignment, frozenset(owned))
        for generation in (101, 102):
            group = group.rejoin_with(assignor, assignment, generation)
            assignment = group.assign(assignor)
        check_valid(group, assignment)
    check_balanced(group, assignment)
    if not group.racks:
        check_sticky(group, single_owners(before), assignment)


def single_owners(before: Mapping[str, Any]) -> dict[str, list[TopicPartition]]:
    """Return owned partitions per member, without those claimed by several."""
    owned = [tp for had in before.values() for tp in had]
    return {
        member_id: [tp for tp in had if owned.count(tp) == 1] for member_id, had in before.items()
    }
