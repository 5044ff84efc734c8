"""Partition assignors, which the leader of a group runs."""

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
