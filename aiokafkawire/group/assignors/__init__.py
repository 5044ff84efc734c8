"""Who of a group reads which partitions: the leader's part of the group protocol."""

from .base import Assignor, MemberSubscription
from .option import assignors_of
from .range import RangeAssignor
from .round_robin import RoundRobinAssignor
from .sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = (
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignors_of",
)
