"""A name that counts how often it is compared: what is looked for in a list is compared much."""

from __future__ import annotations


class CountedName(str):
    """A topic's name. `compared` counts for all names; set it to 0 before."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__
