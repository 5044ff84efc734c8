from __future__ import annotations

import pytest

from aiokafkawire.group.assignors import MemberSubscription
from aiokafkawire.group.assignors.racks import RackInfo, use_rack_aware_assignment
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
def test_racks_matter_if_partitions_differ_in_racks(
    members: str, partitions: list[str], matter: bool
) -> None:
    assert (
        use_rack_aware_assignment(set(members), [frozenset(racks) for racks in partitions])
        is matter
    )


MEMBERS = [
    MemberSubscription("near", ("a",), rack="x"),
    MemberSubscription("far", ("a",), rack="y"),
    MemberSubscription("anywhere", ("a",)),
    MemberSubscription("nowhere", ("a",), rack=""),
]


def test_rack_matches_and_mismatches() -> None:
    racks = RackInfo(MEMBERS, [P0, P1, P2], {P0: ("x",), P1: ("x", "y")})
    assert racks
    assert racks.racks_match("near", P0)
    assert not racks.racks_mismatch("near", P0)
    assert racks.racks_mismatch("far", P0)
    assert not racks.racks_match("far", P0)
    for member_id in ("anywhere", "nowhere"):
        assert not racks.racks_match(member_id, P0)
        assert not racks.racks_mismatch(member_id, P0)
    assert racks.racks_mismatch("near", P2)
    assert [racks.count_members_in_rack(tp) for tp in (P0, P1, P2)] == [1, 2, 0]


def test_without_relevant_racks_nothing_mismatches() -> None:
    for replica_racks_by_partition in ({}, {P0: ("x", "y"), P1: ("y", "x")}):
        racks = RackInfo(MEMBERS, [P0, P1], replica_racks_by_partition)
        assert not racks
        assert not racks.racks_mismatch("far", P0)
        assert not racks.replica_racks(P0)
