from __future__ import annotations

from aiokafkawire.group.assignors import MemberSubscription
from aiokafkawire.group.assignors.constrained_sticky import assign_constrained
from aiokafkawire.group.assignors.racks import RackInfo
from aiokafkawire.types import TopicPartition


def compute_assignments(
    count: int, owned: dict[str, list[int]], racks: dict[str, str] | None = None, replicas: str = ""
) -> dict[str, list[int]]:
    all_partitions = [TopicPartition("a", number) for number in range(count)]
    had = {name: [all_partitions[number] for number in numbers] for name, numbers in owned.items()}
    members = [MemberSubscription(name, ("a",), rack=(racks or {}).get(name)) for name in owned]
    replica_racks = {all_partitions[number]: (rack,) for number, rack in enumerate(replicas)}
    assignment = assign_constrained(
        all_partitions, had, RackInfo(members, all_partitions, replica_racks)
    )
    return {name: sorted(tp.partition for tp in got) for name, got in assignment.items()}


def test_new_members_get_partitions_of_members_over_quota() -> None:
    assert compute_assignments(6, {"1": [0, 1, 2], "2": [3, 4, 5], "3": []}) == {
        "1": [0, 1],
        "2": [3, 4],
        "3": [2, 5],
    }


def test_partitions_of_a_removed_member_go_to_the_least_loaded() -> None:
    assert compute_assignments(7, {"1": [0, 1, 2], "2": [3]}) == {"1": [0, 1, 2, 6], "2": [3, 4, 5]}


def test_the_extra_partition_stays_with_its_owner() -> None:
    assert compute_assignments(5, {"1": [3], "2": [0, 1, 4], "3": [2]}) == {
        "1": [3, 4],
        "2": [0, 1],
        "3": [2],
    }


def test_more_members_than_partitions() -> None:
    assert compute_assignments(1, {"1": [], "2": [0], "3": []}) == {"1": [], "2": [0], "3": []}
    assert compute_assignments(2, {"1": [], "2": [], "3": []}) == {"1": [0], "2": [1], "3": []}


def test_no_partitions() -> None:
    assert compute_assignments(0, {"1": []}) == {"1": []}


def test_partitions_go_to_members_in_their_rack_first() -> None:
    racks = {"1": "x", "2": "y"}
    assert compute_assignments(4, {"1": [], "2": []}, racks, "yxyx") == {"1": [1, 3], "2": [0, 2]}
    assert compute_assignments(4, {"1": [0, 1], "2": [2, 3]}, racks, "yxyx") == {
        "1": [1, 3],
        "2": [0, 2],
    }
    # One more partition in the rack than the quota: it goes to another rack.
    assert compute_assignments(4, {"1": [], "2": []}, racks, "yyyx") == {"1": [2, 3], "2": [0, 1]}


def test_the_extra_partition_goes_to_a_member_in_its_rack() -> None:
    racks = {"1": "x", "2": "y"}
    assert compute_assignments(3, {"1": [0], "2": [1]}, racks, "xyy") == {"1": [0], "2": [1, 2]}
    assert compute_assignments(5, {"1": [0, 1], "2": [2, 3]}, racks, "xxyyy") == {
        "1": [0, 1],
        "2": [2, 3, 4],
    }
