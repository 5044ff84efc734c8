from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from aiokafkawire.group.assignors import Assignor, MemberSubscription
from aiokafkawire.group.assignors.base import (
    java_order,
    java_table_order,
    member_order,
    members_by_topic,
)
from aiokafkawire.types import TopicPartition


class First(Assignor):
    name = "first"

    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> Mapping[str, Sequence[TopicPartition]]:
        return {}


def test_an_assignor_needs_a_name_and_assign() -> None:
    class Nameless(Assignor):
        def assign(self, partitions: Any, members: Any, racks: Any) -> Any:
            return {}

    with pytest.raises(TypeError, match="name"):
        Nameless()  # type: ignore[abstract]
    with pytest.raises(TypeError, match="assign"):
        Assignor()  # type: ignore[abstract]


def test_other_methods_have_defaults() -> None:
    assignor = First()
    assert not assignor.cooperative
    assert assignor.user_data(["a"]) is None
    assert assignor.on_assignment([TopicPartition("a", 0)], 3) is None  # type: ignore[func-returns-value]


def test_strings_are_ordered_by_code_unit() -> None:
    assert sorted(["\uffff", "\U0001d4b3", "b", "a\ud800"], key=java_order) == [
        "a\ud800",
        "b",
        "\U0001d4b3",
        "\uffff",
    ]


def test_java_table_order_grows_with_the_number_of_strings() -> None:
    # Hash codes 97 + n: one bucket each.
    texts = [chr(code) for code in range(97, 97 + 12)]
    assert java_table_order(texts) == [chr(c) for c in (*range(97, 109),)]
    texts = [chr(code) for code in range(90, 102)]
    assert "".join(java_table_order(texts)) == "`abcdeZ[\\]^_"
    texts.append(chr(102))  # 13 strings need 32 buckets
    assert "".join(java_table_order(texts)) == "`abcdefZ[\\]^_"
    assert java_table_order(["Ea", "FB"]) == java_table_order(["FB", "Ea"])  # equal hash codes


def test_static_members_come_first() -> None:
    members = [
        MemberSubscription("m1", ()),
        MemberSubscription("m0", ()),
        MemberSubscription("m3", (), "b"),
        MemberSubscription("m4", (), "a"),
    ]
    ordered = [member.member_id for member in sorted(members, key=member_order)]
    assert ordered == ["m4", "m3", "m0", "m1"]


def test_members_by_topic_lists_each_member_once_in_order() -> None:
    one, two = MemberSubscription("1", ("b", "a", "b")), MemberSubscription("2", ("b",))
    assert members_by_topic([one, two]) == [("a", [one]), ("b", [one, two])]
