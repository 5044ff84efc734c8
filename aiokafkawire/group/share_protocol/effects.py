"""Effects of the machine that the consumer protocol does not have; the others are shared."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.group.consumer_protocol.states import Partitions
from aiokafkawire.group.membership.effects import MembershipEffect

__all__ = ("ReplaceAssignment",)


@dataclass(frozen=True, slots=True)
class ReplaceAssignment(MembershipEffect):
    """The member reads exactly these partitions from now on. Other members may read them too."""

    partitions: Partitions
