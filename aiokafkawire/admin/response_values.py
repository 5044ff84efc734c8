"""Values of responses that stand for none, or that this package may not know."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar, cast
from uuid import UUID

__all__ = ("known_member", "unless_negative", "unless_zero")

E = TypeVar("E", bound=IntEnum)


def known_member(kind: type[E], number: int, otherwise: E) -> E:
    """Return the member of an enumeration, or `otherwise` for a number that is newer."""
    # Faster than calling the class, for the many configs of many resources.
    member = kind._value2member_map_.get(number)
    return cast("E", member) if member is not None else otherwise


def unless_negative(number: int) -> int | None:
    """Return a node id, epoch, offset or timestamp; None for -1, which means none."""
    return number if number >= 0 else None


def unless_zero(uuid: UUID) -> UUID | None:
    """Return the id of a topic or directory; None for the zero UUID, which means none."""
    return uuid if uuid.int else None
