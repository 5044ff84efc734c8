"""Consumer groups: the coordinator's machine, its driver, and committed offsets."""

from aiokafkawire.broker.groups.coordinator import Groups
from aiokafkawire.broker.groups.machine import ClassicGroup
from aiokafkawire.broker.groups.offsets import Committed, OffsetStore

__all__ = ("ClassicGroup", "Committed", "Groups", "OffsetStore")
