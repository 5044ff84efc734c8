"""Consumer groups: the membership machine, assignors, offsets kept at the coordinator."""

from aiokafkawire.group.assignors import Assignor, RangeAssignor

__all__ = ("Assignor", "RangeAssignor")
