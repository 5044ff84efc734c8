"""Consumer groups: the coordinator's machine, its driver, and committed offsets."""

from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.group_coordinator import GroupCoordinator
from aiokafkawire.broker.groups.offsets import CommittedOffset, OffsetStore

__all__ = ("ClassicGroup", "CommittedOffset", "GroupCoordinator", "OffsetStore")
