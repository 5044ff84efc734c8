"""Who of a group reads which partitions: the leader's part of the group protocol."""

from .base import Assignor, MemberSubscription
from .option import assignors_of
from .range import RangeAssignor
from .sticky import CooperativeStickyAssignor

__all__ = (
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "assignors_of",
)
