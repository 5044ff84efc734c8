"""The option `partition_assignment_strategy`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafkawire.errors import InvalidOption

from .base import Assignor
from .range import RangeAssignor
from .round_robin import RoundRobinAssignor
from .sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = ("BY_NAME", "create_assignors")

BY_NAME: Mapping[str, type[Assignor]] = {
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
    StickyAssignor.name: StickyAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}


def create_assignors(strategy: Iterable[Any]) -> tuple[Assignor, ...]:
    """Return the assignors of an option: names of built-in ones, `Assignor` objects or classes.

    Raises:
        InvalidOption: An item is not an assignor, or two have the same name.
    """
    if isinstance(strategy, str):
        strategy = [strategy]
    assignors: list[Assignor] = []
    for item in strategy:
        assignor = _create_assignor(item)
        if any(other.name == assignor.name for other in assignors):
            raise InvalidOption(
                f"partition_assignment_strategy names the assignor {assignor.name!r} twice"
            )
        assignors.append(assignor)
    return tuple(assignors)


def _create_assignor(item: Any) -> Assignor:
    if isinstance(item, str) and item in BY_NAME:
        return BY_NAME[item]()
    if isinstance(item, type) and issubclass(item, Assignor):
        try:
            item = item()
        except TypeError as error:
            raise InvalidOption(
                f"partition_assignment_strategy has {item!r}, which cannot be instantiated: {error}"
            ) from error
    if not isinstance(item, Assignor):
        known = ", ".join(map(repr, BY_NAME))
        raise InvalidOption(
            f"partition_assignment_strategy has {item!r}: give {known},"
            " or an object or class derived from Assignor"
        )
    if not isinstance(item.name, str) or not item.name:
        raise InvalidOption(f"the assignor {item!r} needs a name, not {item.name!r}")
    return item
