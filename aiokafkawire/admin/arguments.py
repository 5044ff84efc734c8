"""Checks of arguments that many operations have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from aiokafkawire.admin.types.topics import NewTopic

__all__ = ("as_list", "check_configs", "new_topics", "parse_names")

T = TypeVar("T")
NameT = TypeVar("NameT", bound=StrEnum)

UNKNOWN = "Unknown"
"""Value of enumerations for a name that only newer brokers have."""


def as_list(name: str, items: Iterable[T]) -> list[T]:
    """Return the items of an argument.

    Raises:
        TypeError: It is one str: its characters would be names of topics or groups.
    """
    if isinstance(items, str):
        raise TypeError(f"{name} must be an iterable such as [{items!r:.80}], not a str")
    return list(items)


def new_topics(topics: Iterable[NewTopic | str]) -> list[NewTopic]:
    """Return the topics of an argument; a name alone is a topic with the brokers' defaults."""
    given = [
        NewTopic(each) if isinstance(each, str) else each for each in as_list("topics", topics)
    ]
    for topic in given:
        check_configs(topic.configs)
    return given


def check_configs(configs: Mapping[str, str | None]) -> None:
    """Raise a `TypeError` for a value that is no text, such as a number."""
    for name, value in configs.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"the config {name} must be a str such as '{value}', not {value!r:.80}")


def parse_names(name: str, kind: type[NameT], values: Iterable[NameT | str]) -> list[NameT]:
    """Return the members of an enumeration whose names are values of an argument.

    Raises:
        TypeError: It is one str.
        ValueError: There is no member of this name: nothing would match it.
    """
    members = []
    for value in as_list(name, values):
        member = kind(value)
        if member.value == UNKNOWN and value != UNKNOWN:
            known = ", ".join(repr(str(each)) for each in kind if each.value != UNKNOWN)
            raise ValueError(f"{name} has {value!r:.80}: give {known}")
        members.append(member)
    return members
