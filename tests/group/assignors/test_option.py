from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import InvalidOption
from aiokafkawire.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    assignors_of,
)
from tests.group.assignors.test_base import First


def test_the_names_are_those_of_java() -> None:
    assert [type(found) for found in assignors_of(["range", "roundrobin"])] == [
        RangeAssignor,
        RoundRobinAssignor,
    ]
    assert [type(found) for found in assignors_of(["cooperative-sticky", "sticky"])] == [
        CooperativeStickyAssignor,
        StickyAssignor,
    ]


def test_the_default_is_that_of_java() -> None:
    found = assignors_of(ConsumerConfig(bootstrap_servers="b:1").partition_assignment_strategy)
    assert [assignor.name for assignor in found] == ["range", "cooperative-sticky"]
    assert [assignor.cooperative for assignor in found] == [False, True]


def test_the_option_takes_names_objects_and_classes() -> None:
    own = First()
    assert assignors_of(["range", own])[1] is own
    assert assignors_of([First])[0].name == "first"
    assert assignors_of("range")[0].name == "range"


def test_an_assignor_that_remembers_is_not_shared() -> None:
    assert assignors_of("sticky")[0] is not assignors_of("sticky")[0]


class Duck:
    name = "duck"

    def assign(self, partitions: Any, members: Any, racks: Any) -> Any:
        return {}


class WithArguments(First):
    def __init__(self, needed: int) -> None:
        self.needed = needed


@pytest.mark.parametrize("item", ["rnage", 3, Duck, Duck(), Assignor, WithArguments])
def test_the_option_refuses_what_is_no_assignor(item: Any) -> None:
    with pytest.raises(InvalidOption, match=r"partition_assignment_strategy .*(Assignor|needed)"):
        assignors_of([item])


@pytest.mark.parametrize("name", ["", None, 3])
def test_the_option_refuses_an_assignor_of_no_name(name: Any) -> None:
    own = First()
    own.name = name
    with pytest.raises(InvalidOption, match="needs a name"):
        assignors_of([own])


def test_the_option_refuses_a_name_given_twice() -> None:
    with pytest.raises(InvalidOption, match="twice"):
        assignors_of(["range", RangeAssignor])
