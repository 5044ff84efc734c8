from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.errors import InvalidOption
from aiokafkawire.group.assignors import Assignor, MemberSubscription, RangeAssignor, assignors_of
from aiokafkawire.types import TopicPartition

VECTORS = Path(__file__).parent.parent / "vectors" / "range-assignor.jsonl.gz"


def vectors() -> list[dict[str, Any]]:
    with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_range_assigns_as_java_does() -> None:
    cases = vectors()
    assert len(cases) > 100
    for case in cases:
        members = [
            MemberSubscription(
                member["memberId"], tuple(member["topics"]), member["groupInstanceId"]
            )
            for member in case["members"]
        ]
        partitions = {topic: info["partitions"] for topic, info in case["topics"].items()}
        result = RangeAssignor().assign(partitions, members, {})
        expected = {
            member: sorted(TopicPartition(topic, number) for topic, number in owned)
            for member, owned in case["assignment"].items()
        }
        assert {member: sorted(owned) for member, owned in result.items()} == expected, case["id"]


TOPICS = ("a", "b", "c")


@given(
    partitions=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
    topics=st.lists(st.lists(st.sampled_from(TOPICS), unique=True), min_size=1, max_size=6),
)
def test_every_partition_has_one_owner_that_subscribed(
    partitions: dict[str, int], topics: list[list[str]]
) -> None:
    members = [MemberSubscription(f"m{i}", tuple(names)) for i, names in enumerate(topics)]
    result = RangeAssignor().assign(partitions, members, {})
    owners = Counter(tp for owned in result.values() for tp in owned)
    wanted = {name for names in topics for name in names}
    assert owners == Counter(
        TopicPartition(topic, n) for topic in wanted for n in range(partitions.get(topic, 0))
    )
    for member in members:
        assert {tp.topic for tp in result[member.member_id]} <= set(member.topics)
    for topic in wanted:
        counts = [
            sum(tp.topic == topic for tp in result[member.member_id])
            for member in members
            if topic in member.topics
        ]
        assert max(counts) - min(counts) <= 1


class Everything(Assignor):
    name = "everything-to-the-first"

    def user_data(self, topics: Any) -> bytes | None:
        return b"x"

    def assign(self, partitions: Any, members: Any, racks: Any) -> Any:
        return {}


def test_the_option_takes_names_objects_and_classes() -> None:
    names = [assignor.name for assignor in assignors_of(["range", Everything])]
    assert names == ["range", "everything-to-the-first"]
    assert assignors_of("range")[0].name == "range"
    assert assignors_of([Everything()])[0].user_data(()) == b"x"


class Duck:
    name = "duck"

    def assign(self, partitions: Any, members: Any, racks: Any) -> Any:
        return {}


@pytest.mark.parametrize("item", ["rnage", 3, Duck, Duck(), Assignor])
def test_the_option_refuses_what_is_no_assignor(item: Any) -> None:
    with pytest.raises(InvalidOption, match=r"partition_assignment_strategy .* Assignor"):
        assignors_of([item])


def test_the_option_refuses_a_name_given_twice() -> None:
    with pytest.raises(InvalidOption, match="twice"):
        assignors_of(["range", RangeAssignor])
