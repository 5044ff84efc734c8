from __future__ import annotations

from aiokafkawire.group.assignors import MemberSubscription
from aiokafkawire.group.assignors.constrained_sticky import assign_constrained
from aiokafkawire.group.assignors.racks import RackInfo
from aiokafkawire.types import TopicPartition


def compute_assignments(
    count: int, owned: dict[str, list[int]], racks: dict[str, str] | None = None, replicas: str = ""
) -> dict[str, list[int]]:
    every = [TopicPartition("a", number) for number in range(count)]
    had = {name: [every[number] for number in numbers] for name, numbers in owned.items()}
    members = [MemberSubscription(name, ("a",), rack=(racks or {}).get(name)) for name in owned]
    told = {every[number]: (rack,) for number, rack in enumerate(replicas)}
    given = assign_constrained(every, had, RackInfo(members, every, told))
    return {name: sorted(tp.partition for tp in got) for name, got in given.items()}


def test_newcomers_take_from_those_that_have_too_much() -> None:
    assert compute_assignments(6, {"1": [0, 1, 2], "2": [3, 4, 5], "3": []}) == {
        "1": [0, 1],
        "2": [3, 4],
        "3": [2, 5],
    }


def test_what_a_member_left_goes_to_those_that_have_least() -> None:
    assert compute_assignments(7, {"1": [0, 1, 2], "2": [3]}) == {"1": [0, 1, 2, 6], "2": [3, 4, 5]}


def test_one_more_stays_with_who_had_it() -> None:
    assert compute_assignments(5, {"1": [3], "2": [0, 1, 4], "3": [2]}) == {
        "1": [3, 4],
        "2": [0, 1],
        "3": [2],
    }


def test_more_members_than_partitions() -> None:
    assert compute_assignments(1, {"1": [], "2": [0], "3": []}) == {"1": [], "2": [0], "3": []}
    assert compute_assignments(2, {"1": [], "2": [], "3": []}) == {"1": [0], "2": [1], "3": []}


def test_nothing_to_give() -> None:
    assert compute_assignments(0, {"1": []}) == {"1": []}


def test_partitions_go_to_members_of_their_rack_first() -> None:
    racks = {"1": "x", "2": "y"}
    assert compute_assignments(4, {"1": [], "2": []}, racks, "yxyx") == {"1": [1, 3], "2": [0, 2]}
    assert compute_assignments(4, {"1": [0, 1], "2": [2, 3]}, racks, "yxyx") == {
        "1": [1, 3],
        "2": [0, 2],
    }
    # One more of the rack than the share: the rest goes across.
    assert compute_assignments(4, {"1": [], "2": []}, racks, "yyyx") == {"1": [2, 3], "2": [0, 1]}


def test_the_one_more_goes_to_a_member_of_the_rack() -> None:
    racks = {"1": "x", "2": "y"}
    assert compute_assignments(3, {"1": [0], "2": [1]}, racks, "xyy") == {"1": [0], "2": [1, 2]}
    assert compute_assignments(5, {"1": [0, 1], "2": [2, 3]}, racks, "xxyyy") == {
        "1": [0, 1],
        "2": [2, 3, 4],
    }
