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
    create_assignors,
)
from tests.group.assignors.test_base import First


def test_names_equal_java() -> None:
    assert [type(found) for found in create_assignors(["range", "roundrobin"])] == [
        RangeAssignor,
        RoundRobinAssignor,
    ]
    assert [type(found) for found in create_assignors(["cooperative-sticky", "sticky"])] == [
        CooperativeStickyAssignor,
        StickyAssignor,
    ]


def test_the_default_equals_java() -> None:
    found = create_assignors(ConsumerConfig(bootstrap_servers="b:1").partition_assignment_strategy)
    assert [assignor.name for assignor in found] == ["range", "cooperative-sticky"]
    assert [assignor.cooperative for assignor in found] == [False, True]


def test_the_option_takes_names_objects_and_classes() -> None:
    own = First()
    assert create_assignors(["range", own])[1] is own
    assert create_assignors([First])[0].name == "first"
    assert create_assignors("range")[0].name == "range"


def test_each_consumer_gets_its_own_assignor() -> None:
    assert create_assignors("sticky")[0] is not create_assignors("sticky")[0]


class Duck:
    name = "duck"

    def assign(self, partitions: Any, members: Any, racks: Any) -> Any:
        return {}


class WithArguments(First):
    def __init__(self, needed: int) -> None:
        self.needed = needed


@pytest.mark.parametrize("item", ["rnage", 3, Duck, Duck(), Assignor, WithArguments])
def test_the_option_rejects_other_objects(item: Any) -> None:
    with pytest.raises(InvalidOption, match=r"partition_assignment_strategy .*(Assignor|needed)"):
        create_assignors([item])


@pytest.mark.parametrize("name", ["", None, 3])
def test_the_option_rejects_an_assignor_without_a_name(name: Any) -> None:
    own = First()
    own.name = name
    with pytest.raises(InvalidOption, match="needs a name"):
        create_assignors([own])


def test_the_option_rejects_duplicate_names() -> None:
    with pytest.raises(InvalidOption, match="twice"):
        create_assignors(["range", RangeAssignor])
