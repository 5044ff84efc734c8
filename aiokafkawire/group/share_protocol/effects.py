"""Effects of the machine that the consumer protocol does not have; the others are shared."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.group.membership.effects import MembershipEffect
from aiokafkawire.group.topic_id_partition import Partitions

__all__ = ("ReplaceAssignment",)


@dataclass(frozen=True, slots=True)
class ReplaceAssignment(MembershipEffect):
    """The member reads exactly these partitions from now on. Other members may read them too."""

    partitions: Partitions
