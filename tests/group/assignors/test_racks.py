from __future__ import annotations

import pytest

from aiokafkawire.group.assignors import MemberSubscription
from aiokafkawire.group.assignors.racks import Racks, racks_matter
from aiokafkawire.types import TopicPartition

P0, P1, P2 = (TopicPartition("a", number) for number in range(3))


@pytest.mark.parametrize(
    ("members", "partitions", "matter"),
    [
        ("x", ["x", "y"], True),
        ("x", ["xy", "xy"], False),
        ("x", ["xy", ""], True),
        ("z", ["x", "y"], False),
        ("", ["x", "y"], False),
        ("x", [], False),
    ],
)
def test_racks_matter_where_some_partition_is_nearer_than_another(
    members: str, partitions: list[str], matter: bool
) -> None:
    assert racks_matter(set(members), [frozenset(racks) for racks in partitions]) is matter


MEMBERS = [
    MemberSubscription("near", ("a",), rack="x"),
    MemberSubscription("far", ("a",), rack="y"),
    MemberSubscription("anywhere", ("a",)),
    MemberSubscription("nowhere", ("a",), rack=""),
]


def test_who_is_near() -> None:
    racks = Racks(MEMBERS, [P0, P1, P2], {P0: ("x",), P1: ("x", "y")})
    assert racks
    assert racks.match("near", P0)
    assert not racks.clash("near", P0)
    assert racks.clash("far", P0)
    assert not racks.match("far", P0)
    for member_id in ("anywhere", "nowhere"):
        assert not racks.match(member_id, P0)
        assert not racks.clash(member_id, P0)
    assert racks.clash("near", P2)
    assert [racks.members_near(tp) for tp in (P0, P1, P2)] == [1, 2, 0]


def test_where_racks_do_not_matter_nobody_is_far() -> None:
    for told in ({}, {P0: ("x", "y"), P1: ("y", "x")}):
        racks = Racks(MEMBERS, [P0, P1], told)
        assert not racks
        assert not racks.clash("far", P0)
        assert not racks.of(P0)
