"""Consumer groups: their state machine, the group coordinator, and committed offsets."""

from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.group_coordinator import GroupCoordinator
from aiokafkawire.broker.groups.offsets import CommittedOffset, OffsetStore

__all__ = ("ClassicGroup", "CommittedOffset", "GroupCoordinator", "OffsetStore")
