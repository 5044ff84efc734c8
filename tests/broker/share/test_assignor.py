"""The simple assignor of share groups beside Kafka 4.3.0's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from aiokafkawire.broker.groups.share_group.assignor import assign_simple
from aiokafkawire.wire.primitives import uuid_from_text
from tests.wire.vectors import lines

CASES = [case for case in lines("server-assignors") if case["assignor"] == "simple"]


def partitions_of(case: Any) -> dict[UUID, list[int]]:
    """Return the partitions that can be assigned."""
    return {
        uuid_from_text(topic["topicId"]): case["assignable"].get(topic["topicId"], [])
        if case.get("assignable") is not None
        else list(range(topic["partitions"]))
        for topic in case["topics"]
    }


def kept_by_kafka(case: Any) -> int:
    """Return how many partitions stayed, without those of topics that were deleted."""
    partitions = partitions_of(case)
    return sum(
        len(
            set(parts) & set(topics.get(topic, ())) & set(partitions.get(uuid_from_text(topic), ()))
        )
        for member in case["members"]
        for topics in [case["assignment"][member["memberId"]] or {}]
        for topic, parts in member["assigned"].items()
    )


def check(case: Any) -> int:
    """Check the properties of one result; return how many partitions stayed."""
    partitions = partitions_of(case)
    subscriptions = {
        member["memberId"]: [uuid_from_text(topic) for topic in member["topicIds"]]
        for member in case["members"]
    }
    previous = {
        member["memberId"]: {
            uuid_from_text(topic): tuple(parts) for topic, parts in member["assigned"].items()
        }
        for member in case["members"]
    }
    assigned = assign_simple(subscriptions, partitions, previous)
    assert assign_simple(subscriptions, partitions, assigned) == assigned, case["id"]
    members: Counter[tuple[UUID, int]] = Counter()
    kept = 0
    for member, topics in assigned.items():
        for topic, parts in topics.items():
            assert topic in subscriptions[member]
            assert set(parts) <= set(partitions[topic])
            members.update((topic, part) for part in parts)
            kept += len(set(parts) & set(previous[member].get(topic, ())))
    for topic, parts in partitions.items():
        subscribers = sum(topic in topics for topics in subscriptions.values())
        if subscribers:
            assert all(members[topic, part] for part in parts), case["id"]
    if case["subscriptionType"] == "homogeneous":
        sizes = [sum(map(len, topics.values())) for topics in assigned.values()]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1, case["id"]
        theirs: Counter[tuple[UUID, int]] = Counter(
            (uuid_from_text(topic), part)
            for topics in case["assignment"].values()
            for topic, parts in (topics or {}).items()
            for part in parts
        )
        assert Counter(members.values()) == Counter(theirs.values()), case["id"]
    return kept


def test_results_have_the_properties_of_kafkas(
    record_property: Callable[[str, object], None],
) -> None:
    for case in CASES:
        # With different subscriptions Kafka also keeps what makes a topic uneven.
        part = 1.0 if case["subscriptionType"] == "homogeneous" else 0.89
        assert check(case) >= part * kept_by_kafka(case), case["id"]
    record_property("summary", f"{len(CASES)} assignments of share groups")
    assert len(CASES) >= 90


def test_members_without_topics_get_nothing() -> None:
    assert assign_simple({"a": []}, {UUID(int=1): [0]}, {}) == {"a": {}}
    assert assign_simple({}, {UUID(int=1): [0]}, {}) == {}
