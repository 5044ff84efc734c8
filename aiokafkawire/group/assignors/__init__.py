"""Who of a group reads which partitions: the leader's part of the group protocol."""

from .base import Assignor, MemberSubscription
from .range import RangeAssignor
from .round_robin import RoundRobinAssignor
from .sticky import CooperativeStickyAssignor, StickyAssignor
from .strategy import create_assignors

__all__ = (
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "create_assignors",
)
